"""What lies between two ranks: the words for a link, read from what the system says."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from kit.clusters.system import ask

_PCIE = {
    "PIX": "PCIe through one switch",
    "PXB": "PCIe through several switches",
    "PHB": "PCIe through the CPU",
    "NODE": "PCIe between two bridges of one CPU",
    "SYS": "PCIe and the link between CPU sockets",
}
INTERFACE = "lo"  # that gloo and nccl are told to use: by themselves they may choose one that leaves the machine


@dataclass(frozen=True, slots=True)
class Link:
    between: str  # 'every two ranks', 'ranks 0 and 1'
    kind: str  # 'TCP over lo, in this host's memory'; 'NVLink, 18 links'


def links(devices: tuple[str, ...], backend: str, topology: Mapping[tuple[int, int], str]) -> tuple[Link, ...]:
    """The link of each pair of ranks, or one for all where they are alike. `topology`: see `gpu_topology`."""
    if len(devices) < 2:
        return ()
    pairs = [(a, b) for a in range(len(devices)) for b in range(a + 1, len(devices))]
    kinds = {pair: _kind(devices[pair[0]], devices[pair[1]], backend, topology) for pair in pairs}
    if len(set(kinds.values())) == 1:
        return (Link("every two ranks" if len(pairs) > 1 else "ranks 0 and 1", kinds[pairs[0]]),)
    return tuple(Link(f"ranks {a} and {b}", kind) for (a, b), kind in kinds.items())


def _kind(one: str, other: str, backend: str, topology: Mapping[tuple[int, int], str]) -> str:
    if backend == "gloo":
        return f"TCP over {INTERFACE}, within this host's memory"
    if one == other:
        return "the memory of one device"
    numbers = int(one.partition(":")[2]), int(other.partition(":")[2])
    found = topology.get(numbers) or topology.get((numbers[1], numbers[0]))
    return found or "between two devices of this host (nvidia-smi does not say how)"


def gpu_topology() -> dict[tuple[int, int], str]:
    """Words for the link between two CUDA devices, by their numbers in torch; empty where nvidia-smi cannot tell."""
    numbers = _visible(os.environ.get("CUDA_VISIBLE_DEVICES"))
    if numbers is None:
        return {}
    told = ask(("nvidia-smi", "topo", "-m"), seconds=10)  # a driver that does not answer costs one line of the report
    return renumber(parse_topology(told or ""), numbers)


def parse_topology(text: str) -> dict[tuple[int, int], str]:
    """Reads the table of `nvidia-smi topo -m`: {(0, 1): 'NVLink, 18 links'}."""
    rows = [re.sub(r"\x1b\[\d*m", "", line).split("\t") for line in text.splitlines()]
    rows = [[cell.strip() for cell in row] for row in rows]
    header = next((row for row in rows if "GPU0" in row and row[0] != "GPU0"), None)
    if header is None:
        return {}
    found = {}
    for row in rows:
        if not (match := re.fullmatch(r"GPU(\d+)", row[0])):
            continue
        for name, cell in zip(header[1:], row[1:], strict=False):
            column = re.fullmatch(r"GPU(\d+)", name)
            if column and cell != "X":
                found[int(match[1]), int(column[1])] = _words(cell)
    return found


def _words(cell: str) -> str:
    if lanes := re.fullmatch(r"NV(\d+)", cell):
        return f"NVLink, {lanes[1]} links"
    return _PCIE.get(cell, cell)


def _visible(variable: str | None) -> list[int] | None:
    """nvidia-smi's numbers of torch's devices 0, 1, ...; [] for all in order, None when they are named otherwise."""
    if not variable:
        return []
    entries = [entry.strip() for entry in variable.split(",")]
    return [int(entry) for entry in entries] if all(entry.isdigit() for entry in entries) else None


def renumber(topology: Mapping[tuple[int, int], str], numbers: list[int]) -> dict[tuple[int, int], str]:
    if not numbers:
        return dict(topology)
    ours = {theirs: mine for mine, theirs in enumerate(numbers)}
    return {(ours[a], ours[b]): words for (a, b), words in topology.items() if a in ours and b in ours}
