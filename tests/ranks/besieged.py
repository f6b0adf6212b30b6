"""Clusters that form while a stranger calls at every port that opens, in a network where there is nobody else to call.

Run as a script by root; prints, as JSON, what became of each cluster, and how often the stranger came in.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import socket
import struct
import sys
from typing import Any

import torch

from kit.clusters.request import checked
from kit.run.live import LiveRunner
from tests.ranks.faults import fine
from tests.ranks.strangers import answer, begin

CLUSTERS = 2
NOT_PERMITTED = 77  # exit status
CLONE_NEWNET = 0x40000000
SIOCSIFFLAGS, IFF_UP = 0x8914, 1

INTRUDE = """
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
print("trying", flush=True)
tried, held = {}, []
while not select.select([sys.stdin], [], [], 0.002)[0]:
    rows = [line.split() for line in open("/proc/net/tcp").readlines()[1:]]
    listening = {int(row[1][9:], 16) for row in rows if row[3] == "0A" and row[1].startswith("0100007F")}
    for port in listening:
        for number in range(tried.get(port, 0), min(40, tried.get(port, 0) + 8)):
            tried[port] = number + 1
            caller = socket.socket()
            try:
                caller.connect(("127.0.0.1", port))
                caller.sendall(struct.pack("<Q", number))
                held.append(caller)
            except OSError:
                break
print(json.dumps(len(held)))
"""


def move_to_a_network_of_its_own() -> None:
    """For this process and those it starts."""
    if ctypes.CDLL(None).unshare(CLONE_NEWNET) != 0:
        sys.exit(NOT_PERMITTED)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", IFF_UP))


def besieged() -> Any:
    with LiveRunner(checked(3, "cpu")) as cluster:
        cluster.reset()
        return [x.item() for x in cluster.record(fine, torch.ones(1)).results]


def main() -> None:
    move_to_a_network_of_its_own()
    stranger = begin("import resource, select, socket, struct", INTRUDE)
    try:
        assert stranger.stdout is not None and stranger.stdout.readline() == "trying\n"
        outcomes = [besieged() for _ in range(CLUSTERS)]
        print(json.dumps([outcomes, answer(stranger)]))
    finally:
        stranger.kill()
        stranger.wait()


if __name__ == "__main__":
    main()
