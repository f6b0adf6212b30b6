"""Steps 9, 10 and 12: training in every way, memory and bandwidth, and what ordinary scripts use."""

from __future__ import annotations

import math
import shutil
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

from kit.cli.gpu.step import Step
from kit.clusters.links import gpu_topology
from kit.clusters.system import ask
from kit.trace.text import size_text, speed_text

if TYPE_CHECKING:
    from kit.cli.gpu.bench import Bench
    from kit.run.live import LiveRunner

STEPS = 3
LOSS_WITHIN = 1e-4  # relative: float32 that is added up in another order, over three steps of AdamW
WORKSPACES = (
    64_000_000  # bytes that a library may take of the device beside what is asked for: cuBLAS's, at most 32 MiB
)
ACCOUNT_WITHIN = 0.01


class Training(Step):
    """DDP, the kit's wrappers, ZeRO and FSDP2: losses of one process, recorded and stepped."""

    number, title, limit = 9, "training", 35.0
    patience = 20.0  # the first optimizer loads torch's compiler

    def run(self, bench: Bench) -> str:
        ways = list(bench.programs.WAYS)
        with bench.cluster() as cluster:
            alone = bench.record(cluster, bench.programs.train_alone, bench.ranks, STEPS, ranks=1).results[0]
            bench.fact("losses of one process", alone)
            for way in ways:
                with bench.part(f"{way}, recorded"):
                    self._recorded(bench, cluster, way, alone)
                with bench.part(f"{way}, stepped"):
                    losses = mean_losses(bench.step(cluster, bench.programs.train, way, 1))
                    judge_losses(bench, f"{way}, stepped", losses, alone[:1])
        return f"{len(ways)} ways to train, recorded and stepped: the losses of one process, and communication seen"

    def _recorded(self, bench: Bench, cluster: LiveRunner, way: str, alone: list[float]) -> None:
        run = bench.record(cluster, bench.programs.train, way, STEPS)
        judge_losses(bench, f"{way}, recorded", mean_losses(run.results), alone)
        if bench.ranks < 2:
            return
        sent = run.trace.bytes_sent(0).payload
        seen = min(rank.communication for rank in run.trace.overlap().ranks)
        bench.fact(f"{way}: bytes that rank 0 sent, seconds of communication", [sent, round(seen, 6)])
        bench.expect(sent > 0, f"{way}: no byte was recorded that rank 0 sent")
        bench.expect(seen > 0, f"{way}: no time was recorded in which something was under way")


def mean_losses(by_rank: list[list[float]]) -> list[float]:
    """The loss of the whole batch at each step: its parts are of one size."""
    return [fmean(step) for step in zip(*by_rank, strict=True)]


def judge_losses(bench: Bench, way: str, losses: list[float], alone: list[float]) -> None:
    for step, (loss, right) in enumerate(zip(losses, alone, strict=True)):
        close = math.isclose(loss, right, rel_tol=LOSS_WITHIN)
        if not bench.expect(close, f"{way}: the loss of step {step} is {loss:.6f}, one process has {right:.6f}"):
            return


@dataclass(frozen=True, slots=True)
class Sheet:
    """What one device's links to the others of its node carry, in bytes per second and direction."""

    name: str  # a part of what torch calls the device
    nvlink: float


# NVIDIA's data sheets: A100 (2021) 600 GB/s both ways together, H100 SXM (2023) and H200 SXM (2024) 900 GB/s
SHEETS = (Sheet("A100", 300e9), Sheet("H100", 450e9), Sheet("H200", 450e9))
SHARE = 0.5  # of it that an all-reduce of a gigabyte must reach: nccl-tests see three quarters and more
NCCL_TESTS_WITHIN = 0.2


class Size(Step):
    """kit.memory against the allocator, and bandwidth against nccl-tests or the data sheet."""

    number, title, limit = 10, "memory and bandwidth", 25.0

    def run(self, bench: Bench) -> str:
        said = []
        with bench.cluster() as cluster:
            with bench.part("memory"):
                said.append(self._memory(bench, cluster))
            if bench.ranks > 1:
                with bench.part("bandwidth"):
                    said.append(self._bandwidth(bench, cluster))
        return "; ".join(said)

    def _memory(self, bench: Bench, cluster: LiveRunner) -> str:
        held = 2 * bench.scale.held
        run: Any = bench.record(cluster, bench.programs.holds, bench.scale.held, memory=True)
        bench.expect_right("what was held", run.results)
        for rank, told in enumerate(run.results):
            peak, real = run.peak(rank).nbytes, told["allocator"]
            bench.fact(f"peak of rank {rank}", {"kit": peak, "asked for": held, **told})
            at_most = held * (1 + ACCOUNT_WITHIN) + (0 if real is None else WORKSPACES)
            bench.expect(
                held <= peak <= at_most, f"rank {rank} held {size_text(held)}, and kit.memory says {size_text(peak)}"
            )
            if real is not None:
                bench.expect(
                    abs(peak - real) <= ACCOUNT_WITHIN * real + WORKSPACES,
                    f"rank {rank}: kit.memory says {size_text(peak)} at most, the allocator {size_text(real)}",
                )
        return f"{size_text(held)} held and accounted for"

    def _bandwidth(self, bench: Bench, cluster: LiveRunner) -> str:
        from kit.run.runner import SweepPlan

        sizes = bench.scale.sizes
        sweep = cluster.sweep(SweepPlan(("all_reduce", "all_gather", "send"), sizes, repeats=5, warm_up=2))
        for row in sweep.rows:
            bench.fact(f"{row.operation} of {size_text(row.nbytes)}", {"seconds": row.seconds, "busbw": row.busbw})
        best = sweep.of("all_reduce")[-1].busbw
        judge_bandwidth(bench, best, nccl_tests(bench, sizes[-1]), data_sheet(cluster))
        return f"an all-reduce of {size_text(sizes[-1])} has a busbw of {speed_text(best)}"


def judge_bandwidth(bench: Bench, best: float, beside: float | None, sheet: float | None) -> None:
    """best, beside (nccl-tests), sheet: bytes per second; None where it is not known."""
    bench.fact("busbw of nccl-tests, of the data sheet", [beside, sheet])
    if beside is not None:
        off = abs(best - beside) / beside
        bench.expect(
            off <= NCCL_TESTS_WITHIN,
            f"an all-reduce has a busbw of {speed_text(best)}, nccl-tests measure {speed_text(beside)} here",
        )
    if sheet is not None:
        bench.expect(
            best <= sheet, f"a busbw of {speed_text(best)} is more than the {speed_text(sheet)} of the data sheet"
        )
        bench.expect(
            best >= SHARE * sheet,
            f"a busbw of {speed_text(best)} is less than half of the data sheet's {speed_text(sheet)}",
        )


def data_sheet(cluster: LiveRunner) -> float | None:
    """Of the links between the ranks' devices; None where they are not all NVLink, or no sheet is known."""
    names = [name for _, name, _ in cluster.found.accelerators]
    known = [sheet.nvlink for sheet in SHEETS if names and all(sheet.name in name for name in names)]
    links = gpu_topology().values()
    return known[0] if known and links and all("NVLink" in link for link in links) else None


def nccl_tests(bench: Bench, nbytes: int) -> float | None:
    """The busbw that all_reduce_perf of nccl-tests measures; None where it is not installed."""
    if bench.device != "cuda" or shutil.which("all_reduce_perf") is None:
        return None
    command = ("all_reduce_perf", "-b", str(nbytes), "-e", str(nbytes), "-g", str(bench.ranks))
    told = ask(command, seconds=20.0) or ""
    found = [line.split()[-1] for line in told.splitlines() if line.startswith("# Avg bus bandwidth")]
    return float(found[0]) * 1e9 if found else None


class Scripts(Step):
    """A DataLoader with its sampler, torch.compile, bfloat16: recorded and stepped."""

    number, title, limit = 12, "what ordinary scripts use", 20.0
    patience = 20.0  # the compiler compiles

    def run(self, bench: Bench) -> str:
        programs = bench.programs
        with bench.cluster() as cluster:
            for name, program, rest in (
                ("DataLoader and DistributedSampler", programs.loaded, ()),
                ("bfloat16", programs.in_bf16, ()),
                ("torch.compile", programs.compiled, (bench.scale.compiler,)),
            ):
                with bench.part(f"{name}, recorded"):
                    bench.expect_right(f"{name}, recorded", bench.record(cluster, program, *rest).results)
                with bench.part(f"{name}, stepped"):
                    bench.expect_right(f"{name}, stepped", bench.step(cluster, program, *rest))
        return "a DataLoader with its sampler, bfloat16 and torch.compile, recorded and stepped"
