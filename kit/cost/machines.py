"""Accelerators and machines as their makers and their centres describe them: peaks, memory, links.

Figures are those of dense arithmetic, for one accelerator, one direction of a link. GB = 10**9 bytes, GiB = 2**30.

Sources, cited below by these letters:
A    NVIDIA, A100 Tensor Core GPU datasheet (2021)
H    NVIDIA, H100 Tensor Core GPU datasheet (2023); its tensor figures are with sparsity, twice those here
H2   NVIDIA, H200 Tensor Core GPU datasheet (2024), likewise
ALCF docs.alcf.anl.gov/polaris/hardware-overview/machine-overview: 560 nodes of 4 A100 with 40 GiB, NVLink 600 GB/s
     both ways together, a pair of Slingshot 11 adapters
S11  HPE Slingshot 11: 200 Gb/s for each adapter and direction
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

GIB = 2**30
T = 10**12


@dataclass(frozen=True, slots=True)
class Accelerator:
    """One device: bytes of memory, and flops per second by number format."""

    name: str
    memory: int
    fp32: float
    tf32: float
    half: float  # fp16 and bf16 alike

    def peak(self, precision: str) -> float:
        """Flops per second in 'fp32', 'tf32', 'fp16' or 'bf16'. Raises ValueError for another format."""
        peaks = {"fp32": self.fp32, "tf32": self.tf32, "fp16": self.half, "bf16": self.half}
        if precision not in peaks:
            raise ValueError(f"no peak of the {self.name} is known for {precision!r}: choose from {', '.join(peaks)}")
        return peaks[precision]


@dataclass(frozen=True, slots=True)
class Machine:
    """Nodes of equal accelerators; bandwidths in bytes per second and direction, of an accelerator and of a node."""

    name: str
    accelerator: Accelerator
    per_node: int
    nodes: int
    inside: float  # of one accelerator, to the others of its node
    between: float  # of one node, to other nodes


ACCELERATORS: Mapping[str, Accelerator] = {
    "A100-40": Accelerator("A100 40 GB", 40 * GIB, 19.5 * T, 156 * T, 312 * T),  # A
    "A100-80": Accelerator("A100 80 GB", 80 * GIB, 19.5 * T, 156 * T, 312 * T),  # A
    "H100": Accelerator("H100 SXM", 80 * GIB, 67 * T, 495 * T, 989 * T),  # H
    "H200": Accelerator("H200 SXM", 141 * 10**9, 67 * T, 495 * T, 989 * T),  # H2
}

POLARIS = Machine(  # ALCF, S11
    "Polaris", ACCELERATORS["A100-40"], per_node=4, nodes=560, inside=300e9, between=2 * 25e9
)


def peak(device: str, precision: str) -> float:
    """Flops per second of an accelerator by its name here ('A100-40', 'H100', ...) and number format.

    There is no entry for a CPU: measure it (a large matrix product) and pass the number on. ValueError for unknown
    names.
    """
    if device not in ACCELERATORS:
        raise ValueError(f"no figures are known for {device!r}: choose from {', '.join(ACCELERATORS)}, or measure it")
    return ACCELERATORS[device].peak(precision)
