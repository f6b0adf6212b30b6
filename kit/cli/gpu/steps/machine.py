"""Steps 1 to 4: what the machine is, and ranks that come up on it where they should."""

from __future__ import annotations

import os
import platform
import shutil
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from kit.cli.gpu.step import Needs, Step
from kit.clusters.links import gpu_topology
from kit.clusters.system import Ask, ask, memory
from kit.run.cursor import PATIENCE
from kit.trace.text import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kit.cli.gpu.bench import Bench

ASKED = "index,uuid,name,driver_version,compute_mode,mig.mode.current,ecc.mode.current,memory.total,memory.used"
DEVICE_FILES = ("/dev/nvidia", "/dev/kfd", "/dev/dri/render", "/dev/dxg")
SHARED = Path("/dev/shm")
CONTEXT = 200  # MB: less than what any process that uses a GPU holds of it, more than a driver keeps for itself
RESETS = 3
TO_GIVE_BACK = 3.0  # s that a driver has to free what a process held that has ended


class Machine(Step):
    """Versions, devices and their modes, topology, free memory."""

    number, title, limit = 1, "the machine", 30.0
    needs = Needs(torch=False)

    def run(self, bench: Bench) -> str:
        self._host(bench)
        cards = nvidia_cards()
        bench.fact("nvidia-smi", cards)
        bench.fact("topology", {f"{a}-{b}": words for (a, b), words in gpu_topology().items() if a < b})
        for card in cards:
            mode = card["compute_mode"]
            bench.expect(mode != "Prohibited", f"GPU {card['index']} may not compute: its compute mode is {mode}")

        bench.doing("importing torch")
        import torch

        bench.fact("torch", torch.__version__)
        bench.fact("cuda, hip, xpu", [str(getattr(torch.version, name, None)) for name in ("cuda", "hip", "xpu")])
        kind = first_kind() if bench.device == "auto" else bench.device
        module: Any = getattr(torch, kind)
        count = module.device_count() if module.is_available() else 0
        bench.fact("kind", kind)
        bench.fact("devices", count)
        if kind == "cpu":
            return f"{counted(len(os.sched_getaffinity(0)), 'core')}, torch {torch.__version__}, no device asked for"
        nccl = (
            ".".join(map(str, module.nccl.version()))
            if kind == "cuda" and torch.distributed.is_nccl_available()
            else ""
        )
        bench.fact("nccl", nccl)
        hidden = "CUDA_VISIBLE_DEVICES" in os.environ
        listed = len(cards) if kind == "cuda" and cards and not hidden else count
        bench.expect(
            count, f"torch {torch.__version__} sees no {kind} device: is it the build for this machine's driver?"
        )
        bench.expect(count == listed, f"nvidia-smi lists {counted(listed, 'GPU')} and torch sees {count}")
        names = []
        for index in range(count):
            device = f"{kind}:{index}"
            with bench.part(device):
                facts = module.get_device_properties(index)
                names.append(facts.name)
                free = module.mem_get_info(index)[0] if hasattr(module, "mem_get_info") else None
                bench.fact(device, {"name": facts.name, "memory": facts.total_memory, "free": free})
                total = float(torch.ones(1000, device=device).sum())
                bench.expect(total == 1000.0, f"{device} adds a thousand ones up to {total}")
        peers = [(a, b) for a in range(count) for b in range(count) if a != b]
        reach = getattr(module, "can_device_access_peer", None)
        bench.fact("no peer access", [f"{a}-{b}" for a, b in peers if reach and not reach(a, b)])
        unique = ", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names))
        return f"{unique or 'no device'}, torch {torch.__version__}{f', NCCL {nccl}' if nccl else ''}"

    def _host(self, bench: Bench) -> None:
        from kit.clusters.allocation import allocation
        from kit.clusters.doctor.sites import site

        total, available = memory()
        found, job = site(), allocation()
        bench.fact("host", {"kernel": platform.release(), "cores": len(os.sched_getaffinity(0)), "memory": total})
        bench.fact("memory free", available)
        bench.fact("site", found.name if found else None)
        bench.fact("batch job", str(job) if job else None)
        bench.fact("/dev/shm free", shutil.disk_usage(SHARED).free if SHARED.is_dir() else None)


def first_kind() -> str:
    """The first kind of device that torch can use; 'cuda' (which ROCm's are, too) where it can use none."""
    import torch

    kinds = [kind for kind in ("cuda", "xpu") if getattr(torch, kind).is_available()]
    return kinds[0] if kinds else "cuda"


def nvidia_cards(answer: Ask = ask) -> list[dict[str, str]]:
    """What nvidia-smi tells of each GPU, by what was asked for; none where it is not here."""
    told = answer(("nvidia-smi", f"--query-gpu={ASKED}", "--format=csv,noheader,nounits")) or ""
    rows = [[cell.strip() for cell in line.split(",")] for line in told.splitlines() if "," in line]
    return [dict(zip(ASKED.split(","), row, strict=False)) for row in rows]


def used_memory(answer: Ask = ask) -> dict[str, int]:
    """MB in use by GPU, whoever uses them."""
    cards = nvidia_cards(answer)
    return {card["index"]: int(card["memory.used"]) for card in cards if card.get("memory.used", "").isdigit()}


def contexts(answer: Ask = ask) -> dict[int, set[str]]:
    """Process id -> the GPUs whose memory it holds."""
    told = answer(("nvidia-smi", "--query-compute-apps=pid,gpu_uuid", "--format=csv,noheader")) or ""
    found: dict[int, set[str]] = {}
    for line in told.splitlines():
        pid, _, gpu = (part.strip() for part in line.partition(","))
        if pid.isdigit():
            found.setdefault(int(pid), set()).add(gpu)
    return found


class Forks(Step):
    """The agent holds no device, has one thread, and its children can use theirs."""

    number, title, limit = 2, "ranks are forked cleanly", 15.0

    def run(self, bench: Bench) -> str:
        with bench.cluster() as cluster:
            agent = cluster.processes[0]
            held, threads = device_files(agent), psutil.Process(agent).num_threads()
            bench.fact("held by the agent", held)
            bench.expect(
                threads == 1, f"the host agent has {threads} threads: locks that they hold stay so in its forks"
            )
            bench.expect(not held, f"the host agent holds {', '.join(held)}: what it forks cannot use the device")
            told = bench.record(cluster, bench.programs.about).results
            bench.fact("ranks", told)
            for rank, one in enumerate(told):
                bench.expect(
                    not one["in a bad fork"], f"rank {rank} was forked after its device was in use: torch refuses it"
                )
                bench.expect(
                    one["parent"] == agent, f"rank {rank} is a child of process {one['parent']}, not of the agent"
                )
            own = len({one["pid"] for one in told})
            bench.expect(own == len(told), f"{len(told)} ranks are {own} processes")
        return f"the agent holds no device; {counted(len(told), 'rank')} forked from it can use theirs"


def device_files(pid: int) -> list[str]:
    """The files of devices that a process holds open."""
    links = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            links.append(os.readlink(entry))
        except FileNotFoundError:  # closed meanwhile
            continue
    return sorted({link for link in links if link.startswith(DEVICE_FILES)})


class Devices(Step):
    """The current device of every thread of a rank's is the rank's own."""

    number, title, limit = 3, "each rank stands on its own device", 15.0

    def run(self, bench: Bench) -> str:
        from kit.cli.gpu.programs import current_devices

        with bench.cluster() as cluster:
            programs = bench.programs
            ways: dict[str, Callable[[], Any]] = {
                "recorded": lambda: bench.record(cluster, programs.current_devices).results,
                "stepped": lambda: bench.step(cluster, programs.current_devices),
                "as an ipyparallel engine": lambda: cluster.view.apply_sync(current_devices, bench.device),
            }
            for way, ask_ranks in ways.items():
                with bench.part(way):
                    told = ask_ranks()
                    bench.fact(way, told)
                    for rank, places in enumerate(told):
                        for where, device in places.items():
                            right = cluster.devices[rank]
                            bench.expect(
                                device == right, f"{way}, rank {rank} {where} stands on {device}, not on {right}"
                            )
            held = contexts()
            own = {rank: sorted(held[pid]) for rank, pid in enumerate(cluster.pids) if pid in held}
            bench.fact("GPUs in which ranks hold memory", own)
            for rank, gpus in own.items():
                bench.expect(len(gpus) == 1, f"rank {rank} holds memory of {len(gpus)} GPUs: one is its own")
            return f"recorded, stepped, in backward and as engines: {', '.join(dict.fromkeys(cluster.devices))}"


class Starts(Step):
    """The first all-reduce, three resets, and what is left of memory and files."""

    number, title, limit = 4, "start and reset", 35.0

    def run(self, bench: Bench) -> str:
        files, used = shared_files(), used_memory()
        bench.fact("MB used before", used)
        resets = []
        with bench.cluster() as cluster:
            bench.fact("seconds to ranks that have met", round(cluster.started_in, 3))
            bench.fact("backend", cluster.backend)
            first = 0.0
            with bench.part("the first all-reduce"):
                first = self._sums(bench, "after the start", cluster)
            for number in range(1, RESETS + 1):
                with bench.part(f"reset {number}"):
                    resets.append(self._reset(bench, number, cluster))
            bench.fact("MB used with ranks", used_memory())
        left, new = until_given_back(used), sorted(shared_files() - files)
        bench.fact("MB used after", left)
        bench.fact("new in /dev/shm", new)
        for gpu, kept in beyond(left, used).items():
            bench.expect(kept < CONTEXT, f"GPU {gpu} holds {kept} MB more than before, with all ranks ended")
        bench.expect(not new, f"left in {SHARED}: {', '.join(new[:4])}")
        often = f"; a reset takes {statistics.median(resets):.1f} s" if resets else ""
        return f"the first all-reduce of a run takes {first:.2f} s, with {cluster.started_in:.1f} s to start{often}"

    def _sums(self, bench: Bench, when: str, cluster: Any) -> float:
        """Seconds of the first all-reduce, on the slowest rank."""
        told = bench.record(cluster, bench.programs.sums, 5).results
        bench.expect_right(f"all_reduce {when}", told)
        first, later = (max(one["seconds"][at] for one in told) for at in (0, -1))
        bench.fact(f"seconds of all-reduces {when}", [first, later])
        bench.expect(
            first < PATIENCE,
            f"the first all-reduce {when} took {first:.1f} s: a motion waits {PATIENCE:g} s for its ranks",
        )
        return float(first)

    def _reset(self, bench: Bench, number: int, cluster: Any) -> float:
        began = time.perf_counter()
        cluster.reset()
        took = time.perf_counter() - began
        bench.fact(f"seconds of reset {number}", round(took, 3))
        bench.fact(f"MB used after reset {number}", used_memory())
        self._sums(bench, f"after reset {number}", cluster)
        return took


def until_given_back(before: Mapping[str, int]) -> dict[str, int]:
    """MB in use by GPU, as soon as it is what it was, or when a driver has had its time."""
    deadline = time.monotonic() + TO_GIVE_BACK
    while any(kept >= CONTEXT for kept in beyond(used_memory(), before).values()) and time.monotonic() < deadline:
        time.sleep(0.1)
    return used_memory()


def beyond(now: Mapping[str, int], before: Mapping[str, int]) -> dict[str, int]:
    return {gpu: used - before.get(gpu, 0) for gpu, used in now.items()}


def shared_files() -> set[str]:
    """The names of this user's files in /dev/shm."""
    mine = set()
    for path in SHARED.iterdir() if SHARED.is_dir() else ():
        try:
            mine |= {path.name} if path.stat().st_uid == os.getuid() else set()
        except FileNotFoundError:  # removed meanwhile
            continue
    return mine
