"""Which device and backend each rank gets, decided from what was asked for and what was found.

`survey` looks for accelerators in a process that is thrown away, since a host agent that had touched CUDA could not
fork ranks that use it. `plan` is a pure function of the findings.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Sequence
from dataclasses import dataclass

from kit.clusters.request import Request
from kit.trace.text import counted

KINDS = ("cuda", "xpu")
NATIVE = {"cuda": "nccl"}  # the backend of a kind of accelerators that ranks have one of each
NODES = ("/dev/nvidia0", "/dev/kfd")  # a driver's, where there is a GPU of NVIDIA's or AMD's


@dataclass(frozen=True, slots=True)
class Accelerator:
    device: str  # 'cuda:0', 'xpu:1'
    name: str
    memory: int  # bytes

    @property
    def kind(self) -> str:
        return self.device.partition(":")[0]


@dataclass(frozen=True, slots=True)
class Plan:
    """The device of each rank, by rank, and the backend all of them use."""

    backend: str
    devices: tuple[str, ...]
    notes: tuple[str, ...] = ()


def plan(request: Request, found: Sequence[Accelerator], build: str) -> Plan:
    """One accelerator per rank uses its own backend; shared accelerators and the CPU use gloo.

    `build` names the torch that was found ('torch 2.13.0+cpu') for the ValueErrors: a device that is not there, more
    ranks than accelerators for a backend that wants one each, a backend that cannot use the device.
    """
    device, notes = _device(request, found, build)
    if device == "cpu":
        _refuse(request, "cpu", found, build)
        return Plan("gloo", ("cpu",) * request.ranks, notes)
    mine = [accelerator for accelerator in found if accelerator.kind == device]
    backend = request.backend
    if backend == "auto":
        backend = NATIVE.get(device, "gloo") if request.ranks <= len(mine) else "gloo"
    if backend != "gloo":
        _refuse(request, device, mine, build)
    if backend == "gloo":
        share = f"{request.ranks} ranks share {counted(len(mine), 'GPU')}: " if request.ranks > len(mine) else ""
        notes += (f"{share}gloo moves their data through the CPU's memory: each operation on copies made there",)
    return Plan(backend, tuple(mine[rank % len(mine)].device for rank in range(request.ranks)), notes)


def _device(request: Request, found: Sequence[Accelerator], build: str) -> tuple[str, tuple[str, ...]]:
    kinds = [kind for kind in KINDS if any(accelerator.kind == kind for accelerator in found)]
    if request.device == "cpu":
        return "cpu", ()
    if request.device == "auto":
        wanted = next((kind for kind in kinds if request.backend in ("auto", "gloo", NATIVE.get(kind))), None)
        if wanted is None:
            return "cpu", ()
        count = sum(accelerator.kind == wanted for accelerator in found)
        if request.ranks > count and request.backend == "auto":
            return "cpu", (
                f"{request.ranks} ranks and {counted(count, 'GPU')}: they compute on the CPU, since ranks that share a "
                "GPU each take some hundred MB of it for themselves, and their messages go through the CPU's memory "
                f"anyway. ranks={count} gives each its own, device={wanted!r} shares what is there.",
            )
        return wanted, ()
    if request.device not in kinds:
        raise ValueError(
            f"device={request.device!r}: no such accelerator was found by {build}. "
            "Write device='auto' or device='cpu', or install the build of torch for this machine's accelerator."
        )
    return request.device, ()


def _refuse(request: Request, device: str, mine: Sequence[Accelerator], build: str) -> None:
    """Raises the ValueError for a backend that cannot serve the device or the number of ranks."""
    if request.backend in ("auto", "gloo"):
        return
    if request.backend == "xccl":
        raise ValueError(
            "backend='xccl' cannot be had: ranks on Intel's GPUs communicate by gloo, through the CPU's memory. Write "
            "backend='auto', with device='xpu' or 'cpu'"
        )
    if device == "cpu":
        raise ValueError(
            f"backend={request.backend!r} moves data between accelerators and {build} "
            f"{'found none' if not mine else 'was told to use the CPU'}: write backend='auto' or backend='gloo'"
        )
    if request.backend != NATIVE.get(device):
        raise ValueError(f"backend={request.backend!r} does not serve {device}: write backend='auto'")
    if request.ranks > len(mine):
        gpus = counted(len(mine), "GPU")
        raise ValueError(
            f"backend={request.backend!r} wants a GPU for each rank, and {request.ranks} ranks have {gpus}: "
            f"write ranks={len(mine)}, or backend='gloo' to share"
        )


def survey() -> tuple[Accelerator, ...]:
    """The accelerators torch can use here, asked for in a forked process, so that this one stays fit to be forked."""
    import torch

    if not torch.version.cuda and not torch.version.hip and not getattr(torch.version, "xpu", None):
        return ()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            with os.fdopen(writer, "wb") as out:
                pickle.dump(_look(), out)
            code = 0
        finally:
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader, "rb") as answer:
        data = answer.read()
    os.waitpid(child, 0)
    if not data:
        raise RuntimeError(
            "looking for GPUs ended the process that looked: kit.cluster(device='cpu') does without them"
        )
    found: tuple[Accelerator, ...] = pickle.loads(data)
    return found


def unseen(found: Sequence[Accelerator], nodes: Sequence[str] = NODES) -> tuple[str, ...]:
    """A note where this machine has a GPU and torch cannot use it, which torch itself does not say."""
    import torch

    there = [node for node in nodes if os.path.exists(node)]
    hidden = "" in (os.environ.get("CUDA_VISIBLE_DEVICES"), os.environ.get("HIP_VISIBLE_DEVICES"))
    if found or not there or hidden:
        return ()
    if torch.version.cuda or torch.version.hip:
        why = "its driver does not answer, or is older than this torch needs"
    else:
        why = f"torch {torch.__version__} is built for the CPU alone"
    return (
        f"this machine has a GPU ({there[0]}), and the ranks compute on the CPU: {why}; `lockstep doctor` says more",
    )


def _look() -> tuple[Accelerator, ...]:
    import torch

    found = []
    for kind in KINDS:
        module = getattr(torch, kind)
        for index in range(module.device_count() if module.is_available() else 0):
            facts = module.get_device_properties(index)
            found.append(Accelerator(f"{kind}:{index}", facts.name, facts.total_memory))
    return tuple(found)
