"""What a person asks of `kit.cluster`, checked before anything is started. Every refusal says what to do instead."""

from __future__ import annotations

import operator
import os
import socket
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kit.clusters.errors import Unavailable
from kit.clusters.system import memory

LOOPBACK = "127.0.0.1"
DEVICES = ("auto", "cpu", "cuda", "xpu")
BACKENDS = ("auto", "gloo", "nccl", "xccl")
RANK_BYTES = 40_000_000  # own memory of a forked rank with a process group; the rest it shares with its agent


@dataclass(frozen=True, slots=True)
class Request:
    ranks: int
    device: str = "auto"
    backend: str = "auto"
    port: int | None = None
    folder: str | None = None
    engines: str = "local"


@dataclass(frozen=True, slots=True)
class Settings:
    """What the kernel tells its host agent beside the request."""

    socket: str
    folder: str
    profile: str
    cluster_id: str
    address: str  # of the host that rank 0 is on
    port: int
    first_generation: int  # numbers go on when a cluster is started again, so that no two generations share one
    directory: str
    path: list[str]  # the kernel's sys.path: what can be imported there can be imported on the ranks


def checked(
    ranks: Any = 4,
    device: Any = "auto",
    backend: Any = "auto",
    port: Any = None,
    folder: Any = None,
    engines: Any = "local",
) -> Request:
    """The request, or a ValueError with the remedy in its text."""
    if sys.platform != "linux":
        raise Unavailable(
            f"a cluster needs Linux, this is {sys.platform!r}: use WSL, a container or Binder. "
            "Recorded traces can be looked at anywhere."
        )
    _need_process_descriptors()
    return Request(
        ranks=_ranks(ranks),
        device=_choice("device", device, DEVICES),
        backend=_choice("backend", backend, BACKENDS),
        port=None if port is None else _port(port),
        folder=None if folder is None else _folder(folder),
        engines=_engines(engines),
    )


def _need_process_descriptors() -> None:
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError as refused:
        raise Unavailable(
            f"this system does not let a process be watched by descriptor ({refused.strerror}): a cluster needs "
            "Linux 5.3 or later, and a container whose security profile allows pidfd_open"
        ) from refused


def whole_number(name: str, value: Any, example: int) -> int:
    """`value` as an int; numpy's integers count, True and '4' do not."""
    if not isinstance(value, bool):
        try:
            return operator.index(value)
        except TypeError:
            pass  # the sentence below is for all that are no whole numbers
    raise ValueError(f"{name} must be a whole number, not {value!r}: write {name}={example}")


def _ranks(value: Any) -> int:
    ranks = whole_number("ranks", value, 4)
    if ranks < 1:
        raise ValueError(f"a cluster has at least one rank, not {ranks}: write ranks=4, for instance")
    free = memory()[1]
    need = ranks * RANK_BYTES
    if need > free:
        raise Unavailable(
            f"{ranks} ranks need about {need / 1e9:.1f} GB and this machine has {free / 1e9:.1f} GB free: "
            f"ask for {max(1, free // RANK_BYTES)} ranks at most, or look at a predicted trace of the larger world"
        )
    return ranks


def _choice(name: str, value: Any, choices: tuple[str, ...]) -> str:
    if value in choices:
        return str(value)
    instead = "'cuda'" if name == "device" and str(value).lower() in {"gpu", "cuda:0", "nvidia"} else "'auto'"
    known = ", ".join(repr(choice) for choice in choices)
    raise ValueError(f"{name} must be one of {known}, not {value!r}: write {name}={instead}")


def _port(value: Any) -> int:
    port = whole_number("port", value, 29500)
    if not 1 <= port <= 65535:
        raise ValueError(f"a port lies between 1 and 65535, not {port}: leave port out and a free one is chosen")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError as refused:
            raise ValueError(
                f"port {port} cannot be had ({refused.strerror}): leave port out and a free one is chosen, "
                "or name one above 1024 that nobody uses"
            ) from refused
    return port


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def _folder(value: Any) -> str:
    try:
        folder = Path(value).expanduser()
    except TypeError as wrong:
        raise ValueError(f"folder must be a path, not {value!r}: leave it out and a private one is chosen") from wrong
    if not folder.is_dir():
        raise ValueError(f"there is no folder {str(folder)!r}: create it first, or leave folder out")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ValueError(f"the folder {str(folder)!r} cannot be written to: name one of your own, or leave folder out")
    return str(folder.resolve())


def _engines(value: Any) -> str:
    if value == "local":
        return "local"
    raise ValueError(
        f"engines={value!r} cannot be had: the ranks of a cluster are forked on this host, because they talk to their "
        "agent through private sockets and meet in a private folder. On a cluster of machines ask the scheduler for "
        "one node (for instance `salloc -N 1` or `qsub -I -l select=1`), start Jupyter on it and leave engines out."
    )
