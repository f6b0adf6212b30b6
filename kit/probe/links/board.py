"""What ranks of one host tell each other of transfers on slow links: who has asked for which, and when it is over.

A transfer begins when all its parts have been asked for and the links it takes are free, so whoever asks last knows
when it will be over, and writes that down for the others. All times are seconds of the clock that the processes of a
host share. The memory is a file in the cluster's private folder, of some hundred kB, held by one rank at a time for a
few microseconds; a rank that dies lets go of it.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import socket
import struct
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from io import BufferedRandom

RANKS = 1024
BUCKETS, WIDTH = 512, 8  # of transfers under way; when a bucket is full the oldest of it is forgotten
_LINK = struct.Struct("<Qd")  # run, until when the link is taken in it
_KEYS = struct.Struct(f"<{WIDTH}Q")
_RECORD = struct.Struct("<qddd")  # parts that have not asked (were not told, once it has an end), latest, busy, due
_LINKS = 2 * RANKS * _LINK.size
_BUCKET = _KEYS.size + WIDTH * _RECORD.size
SIZE = _LINKS + BUCKETS * _BUCKET


@dataclass(frozen=True, slots=True)
class Transfer:
    """What one rank knows of a transfer. It takes its links for `occupied` seconds and arrives `latency` later.

    name: the same on all its ranks and for no other transfer of the run. out, into: the ranks whose outgoing, and whose
    incoming, link it takes; all of them ask for it. asked: when this rank did.
    """

    name: str
    out: Sequence[int]
    into: Sequence[int]
    occupied: float
    latency: float
    asked: float

    @property
    def ranks(self) -> set[int]:
        return {*self.out, *self.into}

    @property
    def is_message(self) -> bool:
        return self.out != self.into


class Board:
    """The memory of one run, numbered from 1. path: where it lies, the same for all ranks; '' for a rank alone."""

    def __init__(self, path: str = "", run: int = 1) -> None:
        self._run = run
        self._file = _opened(path)
        os.posix_fallocate(self._file.fileno(), 0, SIZE)  # on a full disk this raises; writing to memory would kill
        self._memory = mmap.mmap(self._file.fileno(), SIZE)
        self._threads = threading.Lock()  # the file's lock is one for all threads of a process
        self.closed = False  # the run is over: nobody will ask any more

    def come(self, rank: int) -> None:
        """A rank that will ask here, with both its links free."""
        with self._alone():
            for link in (2 * rank, 2 * rank + 1):
                _LINK.pack_into(self._memory, link * _LINK.size, self._run, 0.0)

    def waits_for_more(self, transfer: Transfer) -> bool:
        """Whether those who have not asked for it can still do so here: they have come, as all of this host do."""
        came = (_LINK.unpack_from(self._memory, 2 * rank * _LINK.size)[0] == self._run for rank in transfer.ranks)
        return not self.closed and all(came)

    def ask(self, transfer: Transfer) -> float | None:
        """Asks for this rank's part. When the transfer is over, if that is known now."""
        with self._alone():
            at, record = self._find(transfer, make=True)
            missing, latest, busy, due = _RECORD.unpack_from(self._memory, record)
            if due:  # the others have settled it
                return self._told(at, record)
            missing -= 1
            latest, busy = max(latest, transfer.asked), max(busy, transfer.occupied)
            _RECORD.pack_into(self._memory, record, missing, latest, busy, 0.0)
            return self._decide(transfer, at, record) if missing == 0 else None

    def due(self, transfer: Transfer) -> float | None:
        """When a transfer that this rank has asked for is over; None while somebody has not asked for it."""
        with self._alone():
            at, record = self._find(transfer, make=False)
            return self._told(at, record) if record and self._due_at(record) else None

    def settle(self, transfer: Transfer, began: float) -> float:
        """When a transfer is over that really began at `began`, whatever the others wrote of it."""
        with self._alone():
            at, record = self._find(transfer, make=True)
            if self._due_at(record):
                return self._told(at, record)
            _, latest, busy, _ = _RECORD.unpack_from(self._memory, record)
            latest, busy = max(latest, transfer.asked, began), max(busy, transfer.occupied)
            _RECORD.pack_into(self._memory, record, 0, latest, busy, 0.0)
            return self._decide(transfer, at, record)

    def _decide(self, transfer: Transfer, at: int, record: int) -> float:
        """All is known: takes the links and writes down until when."""
        _, latest, busy, _ = _RECORD.unpack_from(self._memory, record)
        links = [2 * rank for rank in transfer.out] + [2 * rank + 1 for rank in transfer.into]
        for link in links:
            run, until = _LINK.unpack_from(self._memory, link * _LINK.size)
            latest = max(latest, until) if run == self._run else latest
        for link in links:
            _LINK.pack_into(self._memory, link * _LINK.size, self._run, latest + busy)
        due = latest + busy + transfer.latency
        _RECORD.pack_into(self._memory, record, len(transfer.ranks), latest, busy, due)
        return self._told(at, record)

    def _told(self, at: int, record: int) -> float:
        """Its end, to one more of its ranks; after the last of them the place is free."""
        left, latest, busy, due = _RECORD.unpack_from(self._memory, record)
        _RECORD.pack_into(self._memory, record, left - 1, latest, busy, due)
        if left == 1:
            struct.pack_into("<Q", self._memory, at, 0)
        return float(due)

    def _due_at(self, record: int) -> float:
        return float(_RECORD.unpack_from(self._memory, record)[3])

    def _find(self, transfer: Transfer, make: bool) -> tuple[int, int]:
        """Where its key and its record are; (0, 0) where there is none and none is to be made."""
        key = int.from_bytes(blake2b(f"{self._run}/{transfer.name}".encode(), digest_size=8).digest(), "little") or 1
        bucket = _LINKS + key % BUCKETS * _BUCKET
        keys = _KEYS.unpack_from(self._memory, bucket)
        records = [bucket + _KEYS.size + slot * _RECORD.size for slot in range(WIDTH)]
        if key in keys:
            slot = keys.index(key)
        elif not make:
            return 0, 0
        else:
            slot = keys.index(0) if 0 in keys else min(range(WIDTH), key=lambda one: self._latest(records[one]))
            struct.pack_into("<Q", self._memory, bucket + 8 * slot, key)
            _RECORD.pack_into(self._memory, records[slot], len(transfer.ranks), 0.0, 0.0, 0.0)
        return bucket + 8 * slot, records[slot]

    def _latest(self, record: int) -> float:
        return float(_RECORD.unpack_from(self._memory, record)[1])

    @contextmanager
    def _alone(self) -> Iterator[None]:
        with self._threads:
            fcntl.flock(self._file, fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.flock(self._file, fcntl.LOCK_UN)


def _opened(path: str) -> BufferedRandom:
    """A file of this host alone: another host's clock is another."""
    if not path:
        return tempfile.TemporaryFile()
    descriptor = os.open(f"{path}-{socket.gethostname()}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    return os.fdopen(descriptor, "r+b")
