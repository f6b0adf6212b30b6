"""Who is at the other end of this process's connections: another user of this host must not be a peer of a group.

gloo lets in whoever names the right small number while a group forms. The system knows the user behind each end of a
connection within the host, so it is asked once the group stands; after that gloo lets nobody in any more.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_ESTABLISHED = 1
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
    users = strangers(own_inodes() - before, os.geteuid())
    if users:
        names = ", ".join(str(user) for user in sorted(users))
        raise Intruded(
            f"another user of this host (number {names}) connected to this rank while its group formed: the group is "
            "given up, because that user could read or change what ranks send. Tell the administrator, then reset()."
        )


def strangers(inodes: set[int], user: int) -> set[int]:
    """The users, other than `user` and root, at the far ends of these sockets of this process, where they are here."""
    try:
        users = set(asked(inodes))
    except OSError:  # not every container lets a process ask
        users = listed(connections(), inodes)
    return users - {user, 0}


# ------------------------------------------------------------------------- asked for each connection: sock_diag(7)

_HEADER = struct.Struct("=IHHII")  # nlmsghdr: length, type, flags, sequence, port
_WHICH = struct.Struct("!HH16s16s12x")  # inet_diag_sockid: both ports and addresses; the interface; a cookie
_ASK = struct.Struct("=BBBxI")  # inet_diag_req_v2: family, protocol, extensions, states
_TOLD = struct.Struct("=BBxx48xIIIII")  # inet_diag_msg: family, state; a sockid; expires, queues, user, inode
_BY_FAMILY, _REQUEST, _ERROR, _ANY = 20, 1, 2, b"\xff" * 8  # any cookie


def asked(inodes: set[int]) -> Iterator[int]:
    """Whose the far ends of these sockets of this process are. Raises OSError where the system does not tell."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 4) as system:  # NETLINK_SOCK_DIAG
        for family, here, there in _connected(inodes):
            which = _WHICH.pack(there[1], here[1], _packed(family, there[0]), _packed(family, here[0]))[:-8] + _ANY
            request = _ASK.pack(family, socket.IPPROTO_TCP, 0, 1 << _ESTABLISHED) + which
            system.send(_HEADER.pack(_HEADER.size + len(request), _BY_FAMILY, _REQUEST, 0, 0) + request)
            answer = system.recv(4096)
            kind = _HEADER.unpack_from(answer)[1]
            if kind == _ERROR:
                (refused,) = struct.unpack_from("=i", answer, _HEADER.size)
                if -refused != errno.ENOENT:  # else it is on another host, or gone
                    raise OSError(-refused, os.strerror(-refused))
                continue
            _, state, _, _, _, user, _ = _TOLD.unpack_from(answer, _HEADER.size)
            if state == _ESTABLISHED:
                yield user


def _connected(inodes: set[int]) -> Iterator[tuple[int, tuple[str, int], tuple[str, int]]]:
    """Family, and address and port of both ends, of those of these sockets that are TCP connections."""
    for inode, number in _own_sockets():
        if inode not in inodes:
            continue
        try:
            with socket.socket(fileno=os.dup(number)) as copy:
                if copy.family in (socket.AF_INET, socket.AF_INET6) and copy.type == socket.SOCK_STREAM:
                    yield copy.family, copy.getsockname()[:2], copy.getpeername()[:2]
        except OSError as gone:
            if gone.errno not in (errno.EBADF, errno.ENOTCONN):
                raise


def _packed(family: int, address: str) -> bytes:
    return socket.inet_pton(family, address.partition("%")[0])


# ------------------------------------------------------------------------- read from the table of all connections


def listed(known: Iterable[Connection], inodes: set[int]) -> set[int]:
    """The users at the far ends of the sockets `inodes`."""
    known = list(known)
    far_ends = {(one.there, one.here) for one in known if one.inode in inodes}
    return {one.user for one in known if (one.here, one.there) in far_ends}


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
        if int(fields[3], 16) == _ESTABLISHED:
            here, there = (field.removeprefix(_MAPPED) for field in fields[1:3])
            yield Connection(here, there, int(fields[7]), int(fields[9]))


def own_inodes() -> set[int]:
    """The sockets of this process, by the numbers the system gives them."""
    return {inode for inode, _ in _own_sockets()}


def _own_sockets() -> Iterator[tuple[int, int]]:
    """Inode and file descriptor of each."""
    for entry in os.scandir("/proc/self/fd"):
        try:
            target = os.readlink(entry.path)
        except FileNotFoundError:  # closed meanwhile
            continue
        if target.startswith("socket:["):
            yield int(target[8:-1]), int(entry.name)
