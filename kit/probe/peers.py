"""Who is at the other end of this process's connections: another user of this host must not be a peer of a group.

gloo lets in whoever names the right small number while a group forms. The system knows the user behind each end of a
connection within the host, so it is asked once the group stands; after that gloo lets nobody in any more.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_ESTABLISHED = "01"
_MAPPED = "0000000000000000FFFF0000"  # an IPv4 address as /proc/net/tcp6 writes it


@dataclass(frozen=True, slots=True)
class Connection:
    """One end of a TCP connection, as /proc/net/tcp lists it."""

    here: str  # address:port, in the system's hexadecimal
    there: str
    user: int
    inode: int


class Intruded(PermissionError):
    """Another user of this host got into a group."""


@contextmanager
def only_ours() -> Iterator[None]:
    """Around the making of a group: Intruded when another user of this host, root apart, got into it.

    Connections that were there before are not part of it and do no harm.
    """
    before = own_inodes()
    yield
    users = strangers(connections(), own_inodes() - before, os.geteuid())
    if users:
        names = ", ".join(str(user) for user in sorted(users))
        raise Intruded(
            f"another user of this host (number {names}) connected to this rank while its group formed: the group is "
            "given up, because that user could read or change what ranks send. Tell the administrator, then reset()."
        )


def strangers(known: Iterable[Connection], inodes: set[int], user: int) -> set[int]:
    """The users, other than `user` and root, at the far ends of the sockets `inodes`."""
    known = list(known)
    far_ends = {(one.there, one.here) for one in known if one.inode in inodes}
    return {one.user for one in known if (one.here, one.there) in far_ends} - {user, 0}


def connections() -> Iterator[Connection]:
    """All established TCP connections of this host, both ends of those within it; some twice, when others come and go
    while the system's table is read.
    """
    for table in ("tcp", "tcp6"):
        path = Path("/proc/net") / table
        if path.exists():
            yield from parse(path.read_text())


def parse(text: str) -> Iterator[Connection]:
    for line in text.splitlines()[1:]:
        fields = line.split()
        if fields[3] == _ESTABLISHED:
            here, there = (field.removeprefix(_MAPPED) for field in fields[1:3])
            yield Connection(here, there, int(fields[7]), int(fields[9]))


def own_inodes() -> set[int]:
    """The sockets of this process, by the numbers the system gives them."""
    found = set()
    for entry in os.scandir("/proc/self/fd"):
        try:
            target = os.readlink(entry.path)
        except FileNotFoundError:  # closed meanwhile
            continue
        if target.startswith("socket:["):
            found.add(int(target[8:-1]))
    return found
