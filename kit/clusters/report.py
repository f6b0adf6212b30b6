"""What a cluster stands on: hosts, ranks, devices, backend, memory, links. Facts first, then two ways to read them."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass

import psutil

from kit.clusters.allocation import Allocation, allocation
from kit.clusters.lifecycle import Lifecycle
from kit.clusters.links import INTERFACE, Link, gpu_topology, links
from kit.clusters.system import memory
from kit.tables import html_facts, text_facts
from kit.trace.text import counted, size_text


@dataclass(frozen=True, slots=True)
class Host:
    name: str
    cores: int  # that this process may use
    memory: int  # bytes
    available: int  # bytes
    accelerators: tuple[tuple[str, str, int], ...]  # (device, name, bytes)


@dataclass(frozen=True, slots=True)
class RankFacts:
    rank: int
    pid: int
    host: str
    device: str
    memory: int | None  # bytes, its share of shared pages included; None when the rank is gone
    lost: str = ""  # 'killed by SIGKILL'


@dataclass(frozen=True, slots=True)
class Report:
    """`str()` is plain text, a notebook shows a card; the fields are for programs."""

    hosts: tuple[Host, ...]
    ranks: tuple[RankFacts, ...]
    backend: str
    interface: str
    links: tuple[Link, ...]
    memory: int  # bytes of all processes of the cluster together, the agent and the controller included
    software: str  # 'torch 2.13.0, Python 3.11.7'
    generation: int
    started_in: float  # seconds
    notes: tuple[str, ...] = ()
    job: Allocation | None = None  # the batch job all of it runs in

    @property
    def devices(self) -> tuple[str, ...]:
        return tuple(rank.device for rank in self.ranks)

    def __str__(self) -> str:
        return text_facts(self._title(), self._lines())

    __repr__ = __str__  # what a notebook without HTML, and papermill, show

    def _repr_html_(self) -> str:
        return html_facts(self._title(), "What the cluster stands on", self._lines())

    def _title(self) -> str:
        ranks, hosts = counted(len(self.ranks), "rank"), counted(len(self.hosts), "host")
        return f"{ranks} on {hosts}, {self.backend} · up in {self.started_in:.1f} s"

    def _lines(self) -> list[tuple[str, str]]:
        lines = []
        for host in self.hosts:
            cores = counted(host.cores, "core")
            size = f"{size_text(host.memory)} of memory, {size_text(host.available)} free"
            lines.append(("host", f"{host.name}: {cores}, {size}"))
            lines += [(device, f"{name}, {size_text(held)}") for device, name, held in host.accelerators]
        for rank in self.ranks:
            state = size_text(rank.memory) if rank.memory is not None else rank.lost or "gone"
            lines.append((f"rank {rank.rank}", f"{rank.device} · process {rank.pid} · {state}"))
        over = f" over {self.interface}" if self.backend == "gloo" else ""
        lines.append(("backend", f"{self.backend}{over}"))
        if len(self.links) == 1:
            lines.append(("link", f"{self.links[0].between}: {self.links[0].kind}"))
        else:
            lines += [(link.between, link.kind) for link in self.links]
        lines.append(("memory", f"{size_text(self.memory)} for all processes of the cluster"))
        lines.append(("software", self.software))
        if self.job is not None:
            lines.append(("job", str(self.job)))
            lines += [("time is short", self.job.warning())] if self.job.warning() else []
        lines += [("note", note) for note in self.notes]
        return lines


def report(cluster: Lifecycle) -> Report:
    """Reads the facts of a running cluster now."""
    found, lost = cluster.found, cluster.lost
    total, available = memory()
    name = platform.node()
    topology = gpu_topology() if any(device.startswith("cuda") for device in found.devices) else {}
    return Report(
        hosts=(Host(name, len(os.sched_getaffinity(0)), total, available, found.accelerators),),
        ranks=tuple(
            RankFacts(rank, pid, name, found.devices[rank], _memory_share(pid), lost.get(rank, ""))
            for rank, pid in enumerate(cluster.pids)
        ),
        backend=found.backend,
        interface=INTERFACE,
        links=links(found.devices, found.backend, topology),
        memory=sum(_memory_share(pid) or 0 for pid in cluster.processes),
        software=f"{found.build}, Python {platform.python_version()}",
        generation=cluster.generation,
        started_in=cluster.started_in,
        notes=found.notes,
        job=allocation(),
    )


def _memory_share(pid: int) -> int | None:
    """Bytes of memory that are this process's share (PSS: shared pages divided by their users); None when gone."""
    try:
        return int(psutil.Process(pid).memory_full_info().pss)
    except psutil.Error:
        return None
