"""What the scheduler says of the job this runs in: PBS or Slurm."""

from __future__ import annotations

import platform
from collections.abc import Callable

from kit.cluster.allocation import Allocation, allocation
from kit.cluster.doctor.finding import Finding


def job(ranks: int, ask: Callable[[], Allocation | None] = allocation, host: str = platform.node()) -> Finding:
    found = ask()
    if found is None:
        return Finding("batch job", "ok", "none: neither PBS nor Slurm started this")
    said = str(found)
    if found.slots:
        said += f"; it offers {found.slots} processes"
    if found.warning():
        return Finding("batch job", "warning", said, f"Ask for a new one: {found.warning()}.")
    short = {name.partition(".")[0] for name in found.hosts}
    if found.hosts and host.partition(".")[0] not in short:
        fix = f"Start Jupyter on a host of the job ({', '.join(found.hosts[:3])}): this one is not part of it."
        return Finding("batch job", "warning", f"{said}; this host is {host}", fix)
    if len(found.hosts) > 1:
        return Finding("batch job", "note", f"{said}; the {ranks} ranks of a cluster live on this host alone")
    if found.ends is None:
        return Finding("batch job", "note", said)
    return Finding("batch job", "ok", said)
