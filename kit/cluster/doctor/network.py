"""The loopback interface that all traffic of a cluster takes: is it there, and can two processes talk over it?"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping

import psutil

from kit.cluster.doctor.finding import Finding
from kit.cluster.links import INTERFACE

_WISHES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "GLOO_DEVICE_TRANSPORT", "NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE")


def interface(found: Mapping[str, bool] | None = None, environment: Mapping[str, str] = os.environ) -> Finding:
    """gloo and nccl are told to use loopback; by themselves they may choose one that leaves the machine.

    found: which interfaces there are, and whether they are up.
    """
    up = found if found is not None else {name: stats.isup for name, stats in psutil.net_if_stats().items()}
    others = ", ".join(sorted(set(up) - {INTERFACE})) or "none"
    if not up.get(INTERFACE):
        state = "is down" if INTERFACE in up else "does not exist"
        fix = f"Bring it up as the administrator: ip link set {INTERFACE} up."
        return Finding("interface", "problem", f"{INTERFACE} {state}; others: {others}", fix)
    said = f"gloo and nccl take {INTERFACE}, which stays on this host; others: {others}"
    wishes = [f"{name}={environment[name]}" for name in _WISHES if name in environment]
    unheard = [wish for wish in wishes if "IFNAME" in wish]
    if unheard:
        return Finding("interface", "note", f"{said}; inside a cluster {' and '.join(unheard)} is overruled")
    if wishes:
        return Finding("interface", "note", f"{said}; the ranks inherit {' and '.join(wishes)}")
    return Finding("interface", "ok", said)


def ports(host: str = "127.0.0.1") -> Finding:
    """Listens on loopback and talks to itself, as controller and ranks do."""
    try:
        with socket.create_server((host, 0)) as listener:
            port = listener.getsockname()[1]
            with socket.create_connection((host, port), timeout=2.0) as caller:
                called, _ = listener.accept()
                with called:
                    caller.sendall(b"lockstep")
                    called.settimeout(2.0)
                    heard = called.recv(8)
    except OSError as refused:
        why = refused.strerror or type(refused).__name__
        return Finding(
            "ports",
            "problem",
            f"a process cannot talk to another over {host} ({why})",
            "Allow connections within this host: a firewall or a sandbox forbids them.",
        )
    assert heard == b"lockstep"
    first, last = _range()
    found = f"listening on {host} works; ports are taken from {first} to {last}"
    if last - first < 200:
        fix = "Widen the range as the administrator: sysctl net.ipv4.ip_local_port_range='32768 60999'."
        return Finding("ports", "warning", found, fix)
    return Finding("ports", "ok", found)


def _range() -> tuple[int, int]:
    with open("/proc/sys/net/ipv4/ip_local_port_range") as file:
        first, last = file.read().split()
    return int(first), int(last)
