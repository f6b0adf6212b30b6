"""What a cluster needs of its host, looked at before anything is started: what is missing is said then, with what
helps, and not by the traceback of whichever process stumbles over it.
"""

from __future__ import annotations

import os
import resource
import socket
from contextlib import ExitStack

import psutil

from kit.clusters.errors import Lacking
from kit.clusters.links import INTERFACE
from kit.clusters.request import LOOPBACK

FILES, FILES_PER_RANK = 100, 8  # that the controller, who has most, holds open: 78 and 6 for each rank, counted
PORTS = 4  # beside one for each rank, which listens for the others


def look(ranks: int) -> None:
    """Lacking when something is missing."""
    open_files(ranks)
    interface()
    ports(ranks)


def open_files(ranks: int) -> int:
    """The number that a process may have open: `boot` makes use of all that the system allows."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    need = FILES + FILES_PER_RANK * ranks
    if limit != resource.RLIM_INFINITY and limit < need:
        fewer = (limit - FILES) // FILES_PER_RANK
        raise Lacking(
            f"a process may have {limit} files open here, and the controller of {ranks} ranks needs {need}",
            "start Jupyter where `ulimit -Hn` says more, or ask the administrator for it"
            + (f"; {fewer} ranks can be had as it is" if fewer > 0 else ""),
        )
    return limit


def interface() -> None:
    found = psutil.net_if_stats()
    if INTERFACE not in found or not found[INTERFACE].isup:
        state = "is down" if INTERFACE in found else "does not exist"
        raise Lacking(
            f"{INTERFACE}, over which ranks talk within this host, {state}",
            f"bring it up as the administrator: ip link set {INTERFACE} up",
        )


def ports(ranks: int, address: str = LOOPBACK) -> None:
    """Listens at as many as the ranks will, and talks to itself over one."""
    need = ranks + PORTS
    with ExitStack() as opened:
        for had in range(need):
            try:
                listener = opened.enter_context(socket.create_server((address, 0)))
            except OSError as refused:
                raise Lacking(
                    f"{ranks} ranks need {need} free ports on {address}, and {had} could be had ({_why(refused)})",
                    "end what holds them, or have the administrator widen the range: "
                    "sysctl net.ipv4.ip_local_port_range='32768 60999'",
                ) from refused
        try:
            with socket.create_connection(listener.getsockname(), timeout=2.0) as caller:
                called, _ = listener.accept()
                with called:
                    caller.sendall(b"lockstep")
                    called.settimeout(2.0)
                    called.recv(8)
        except OSError as refused:
            raise Lacking(
                f"a process cannot talk to another over {address} ({_why(refused)})",
                "allow connections within this host: a firewall or a sandbox forbids them",
            ) from refused


def _why(refused: OSError) -> str:
    return os.strerror(refused.errno) if refused.errno else type(refused).__name__
