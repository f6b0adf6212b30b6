"""The proof: starts real ranks, lets them meet in an all-reduce, and ends them."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from kit.clusters.doctor.finding import Finding, note, ok, problem, sentence, warning
from kit.clusters.errors import ClusterError, Lacking
from kit.clusters.request import checked
from kit.trace.text import counted

CALLS = 20


@dataclass(frozen=True, slots=True)
class Trial:
    """What the ranks said. `refusal`: why there were none, or why they did not come to their end; `remedy`: what helps,
    where it is known.
    """

    ranks: int
    started_in: float = 0.0  # seconds until all had joined their group
    per_call: float = 0.0  # seconds of one all-reduce of one number, the median
    right: bool = False  # every rank had the right sum
    backend: str = ""
    devices: tuple[str, ...] = ()
    build: str = ""
    backends: tuple[str, ...] = ()  # of torch.distributed in this build
    accelerators: int = 0
    refusal: str = ""
    remedy: str = ""


def run(ranks: int) -> Trial:
    """Starts `ranks` ranks as a notebook would. Whatever refuses is a fact, not an error of the doctor's."""
    from kit.clusters.cluster import Cluster

    try:
        with Cluster(checked(ranks)) as cluster:
            told = cluster.view.apply_sync(meet, CALLS)
            found = cluster.found
            return Trial(
                ranks=ranks,
                started_in=cluster.started_in,
                per_call=max(each["seconds"] for each in told),
                right=all(each["sum"] == sum(range(1, ranks + 1)) for each in told),
                backend=found.backend,
                devices=found.devices,
                build=found.build,
                backends=told[0]["backends"],
                accelerators=len(found.accelerators),
            )
    except Lacking as lacking:
        return Trial(ranks, refusal=lacking.found, remedy=lacking.fix)
    except ValueError as refused:  # which says what is wrong, and what to do instead
        what, _, instead = str(refused).partition(": ")
        return Trial(ranks, refusal=what, remedy=instead)
    except (ClusterError, OSError) as refused:
        return Trial(ranks, refusal=str(refused) or type(refused).__name__)


def meet(calls: int) -> dict[str, Any]:
    """On every rank: all-reduces of rank + 1."""
    import os
    import statistics

    import torch
    import torch.distributed as dist

    on_gpu = dist.get_backend() in ("nccl", "xccl")
    device = ("cuda" if torch.cuda.is_available() else "xpu") if on_gpu else "cpu"
    times = []
    for _ in range(calls):
        x = torch.tensor([float(os.environ["RANK"]) + 1.0], device=device)
        began = time.perf_counter()
        dist.all_reduce(x)
        total = float(x)
        times.append(time.perf_counter() - began)
    known = ("gloo", "nccl", "xccl", "mpi", "ucc")
    return {
        "seconds": statistics.median(times),
        "sum": total,
        "backends": tuple(name for name in known if getattr(dist, f"is_{name}_available", lambda: False)()),
    }


def ranks(trial: Trial) -> Finding:
    if trial.refusal:
        first, _, rest = trial.refusal.partition("\n")
        words = f" Its processes' last words: {' / '.join(rest.splitlines()[-3:])}" if rest else ""
        fix = trial.remedy or "report it with the output of lockstep doctor --json"
        return problem(first + words, sentence(fix))
    devices = ", ".join(dict.fromkeys(trial.devices))
    found = (
        f"{counted(trial.ranks, 'rank')} on {devices} up in {trial.started_in:.1f} s; "
        f"an all-reduce over {trial.backend} takes {trial.per_call * 1e3:.1f} ms"
    )
    if not trial.right:
        fix = "Report it with the output of lockstep doctor --json: the links between the ranks cannot be trusted."
        return problem(f"{found}, and its sum was wrong", fix)
    return ok(found)


def backends(trial: Trial, has_gpus: bool = False) -> Finding:
    """What this build of torch can use. has_gpus: nvidia-smi lists one."""
    if trial.refusal:
        return note("not known: no rank came up")
    found = f"{trial.build} has {', '.join(trial.backends) or 'none'}; these ranks use {trial.backend}"
    if "gloo" not in trial.backends and trial.backend != "nccl":
        fix = "Install a build of torch with gloo, such as those of PyPI."
        return problem(found, fix)
    if has_gpus and not trial.accelerators:
        fix = "Install the build of torch for this machine's GPU (pytorch.org/get-started), or stay on the CPU."
        return warning(f"{found}; torch cannot use the GPU that is here", fix)
    return ok(found)
