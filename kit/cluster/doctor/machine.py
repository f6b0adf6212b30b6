"""The machine under the ranks: its cores, its memory against what is needed, its GPUs and who else uses them."""

from __future__ import annotations

import os
from collections.abc import Callable

from kit.cluster.allocation import ask
from kit.cluster.doctor.finding import Finding
from kit.cluster.links import gpu_topology
from kit.cluster.memory import memory
from kit.cluster.request import RANK_BYTES

# Measured, shares of shared pages included: tests/benchmarks/bench_cluster.py and the card of a cluster say more.
LAB_SERVER = 150_000_000
KERNEL = 200_000_000  # with the widgets, plots and torch's values in it
AGENT = 260_000_000  # torch imported once, the controller and its heart monitor
OPTIMIZER = 75_000_000  # torch._dynamo, which the first optimizer loads
BUSY = 0.1  # the part of a GPU's memory from which somebody else's use matters

Ask = Callable[[tuple[str, ...]], str | None]


def cores(ranks: int, count: int | None = None) -> Finding:
    usable = len(os.sched_getaffinity(0)) if count is None else count
    found = "1 core" if usable == 1 else f"{usable} cores"
    if usable < ranks:
        return Finding("cores", "note", f"{found} for {ranks} ranks: they take turns, so times say little about speed")
    return Finding("cores", "ok", f"{found} for {ranks} ranks")


def need(ranks: int) -> int:
    """Bytes that JupyterLab, one notebook and its ranks want."""
    return LAB_SERVER + KERNEL + AGENT + OPTIMIZER + ranks * RANK_BYTES


def enough_memory(ranks: int, has: tuple[int, int] | None = None) -> Finding:
    """Against what is free, and against the limit of a container or a batch job where there is one."""
    total, available = has or memory()
    wanted = need(ranks)
    found = (
        f"{available / 1e9:.1f} of {total / 1e9:.1f} GB free; JupyterLab, a notebook and {ranks} ranks take about "
        f"{wanted / 1e9:.1f} GB"
    )
    if available < wanted:
        spare = available - need(0)
        fewer = f"ask for {max(1, spare // RANK_BYTES)} ranks" if spare > RANK_BYTES else "use a larger machine"
        return Finding("memory", "problem", found, f"Close other notebooks and programs, or {fewer}.")
    if available < 1.3 * wanted:
        return Finding("memory", "warning", found, "Keep one notebook open at a time: each has ranks of its own.")
    return Finding("memory", "ok", found)


def gpus(answer: Ask = ask) -> Finding:
    """Which NVIDIA GPUs there are and which processes hold their memory."""
    told = answer(
        ("nvidia-smi", "--query-gpu=index,uuid,name,memory.total,memory.used", "--format=csv,noheader,nounits")
    )
    if told is None:
        return Finding("GPUs", "note", "nvidia-smi is not here or finds none: ranks compute on the CPU, over gloo")
    cards = [[cell.strip() for cell in line.split(",")] for line in told.splitlines() if line.strip()]
    if not cards:
        return Finding("GPUs", "note", "nvidia-smi lists no GPU: ranks compute on the CPU, over gloo")
    users = answer(("nvidia-smi", "--query-compute-apps=gpu_uuid,pid,used_memory", "--format=csv,noheader,nounits"))
    held = [[cell.strip() for cell in line.split(",")] for line in (users or "").splitlines() if line.count(",") >= 2]
    words = [f"GPU {index}: {name}, {_part(used, total)} in use" for index, _, name, total, used in cards]
    number = {card[1]: card[0] for card in cards}
    busy = [f"process {pid} on GPU {number.get(uuid, '?')} ({used} MB)" for uuid, pid, used, *_ in held]
    full = [index for index, _, _, total, used in cards if _share(used, total) > BUSY]
    found = "; ".join([*words, f"others: {', '.join(busy)}" if busy else "no other process computes on them"])
    if full:
        fix = f"End what uses GPU {', '.join(full)}, or leave it out with CUDA_VISIBLE_DEVICES."
        return Finding("GPUs", "warning", found, fix)
    return Finding("GPUs", "note" if busy else "ok", found)


def _share(used: str, total: str) -> float:
    try:
        return float(used) / float(total)
    except (ValueError, ZeroDivisionError):  # '[N/A]' on machines where the CPU's memory is the GPU's
        return 0.0


def _part(used: str, total: str) -> str:
    return f"{used} of {total} MB"


def links(topology: dict[tuple[int, int], str] | None = None) -> Finding:
    pairs = gpu_topology() if topology is None else topology
    if not pairs:
        return Finding("links", "note", "no two GPUs to link: ranks meet in this host's memory, over lo")
    kinds: dict[str, list[str]] = {}
    for (one, other), kind in sorted(pairs.items()):
        if one < other:
            kinds.setdefault(kind, []).append(f"{one}-{other}")
    return Finding("links", "ok", "; ".join(f"{kind}: GPUs {', '.join(where)}" for kind, where in kinds.items()))
