"""Running functions on ranks, step by step or at full speed, and what is kept of it.

`runner.Runner` is the one interface: live ranks (`live`), threads (`threads`), recordings of a lab (`recordings`).
`current` holds the runner of this kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kit.probe.shipping import PerRank


def per_rank(values: Sequence[Any]) -> PerRank:
    """Marks an argument that differs by rank: rank r gets `values[r]`. One value for each rank."""
    return PerRank(values)
