"""Pickled objects on their way, and memory files: what is large in an object is written once, and every process that
unpickles it maps the same pages, of which it copies only those that it changes.
"""

from __future__ import annotations

import mmap
import os
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from weakref import WeakSet

LARGE = 1 << 20  # bytes from which a buffer lies in a memory file


class MemoryFile:
    """Bytes that lie in no folder, so that no limit of /dev/shm or a disk counts: they are gone with the last process
    that holds them, however it ends. `kit.protocol.wire` sends them from process to process.
    """

    def __init__(self, descriptor: int | None = None) -> None:
        """A new one, or the one that a descriptor stands for."""
        self._descriptor = os.memfd_create("lockstep", os.MFD_CLOEXEC) if descriptor is None else descriptor
        self.size = os.fstat(self._descriptor).st_size
        _OPEN.add(self)

    def append(self, data: memoryview) -> None:
        """OSError where there is no room."""
        end = self.size + len(data)
        while self.size < end:  # the system takes 2 GB at a time
            self.size += os.pwrite(self._descriptor, data[self.size - end :], self.size)

    def pad(self) -> None:
        """What is appended next begins a page, as what has been mapped must."""
        self.size += -self.size % mmap.PAGESIZE

    def fileno(self) -> int:
        return self._descriptor

    def mapped(self) -> memoryview:
        """All of it. What is written there stays in this process."""
        return memoryview(mmap.mmap(self._descriptor, 0, access=mmap.ACCESS_COPY))

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        self.close()

    def __reduce__(self) -> Any:
        raise TypeError("a memory file is sent by a channel of kit.protocol.wire, and by nothing else")


_OPEN: WeakSet[MemoryFile] = WeakSet()


def _let_go() -> None:
    """In a fork: a copy of a descriptor would keep the memory of a file that everybody else has let go of."""
    for file in tuple(_OPEN):
        file.close()


os.register_at_fork(after_in_child=_let_go)


@dataclass(frozen=True)
class Parcel:
    """A pickled object, whole where it is small; else a file with the stream of its pickle and its large buffers."""

    small: bytes = b""
    file: MemoryFile | None = None
    spans: tuple[tuple[int, int], ...] = ()  # in the file: of the stream, then of each buffer

    def stream(self) -> bytes | memoryview:
        return self.small if self.file is None else self._parts(self.file)[0]

    def opened(self) -> Any:
        """The object, a new one at each call. Large tensors and arrays of it lie in the file as long as they live."""
        stream, *buffers = self.parts()
        return pickle.loads(stream, buffers=buffers)

    def parts(self) -> list[Any]:
        """The stream of the pickle, then each large buffer."""
        return [self.small] if self.file is None else list(self._parts(self.file))

    def _parts(self, file: MemoryFile) -> list[memoryview]:
        whole = file.mapped()
        return [whole[first:last] for first, last in self.spans]


class Stream:
    """What a pickler writes to. Large `bytes` objects are kept as they are, not copied."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []

    def write(self, data: bytes) -> int:
        self.parts.append(data)
        return len(data)


def packed(obj: Any, pickler: Callable[..., pickle.Pickler]) -> Parcel:
    """The parcel of an object. pickler(stream, protocol, buffer_callback): the class that pickles it.

    Raises whatever the object does while it is pickled, and OSError where there is no room for what is large.
    """
    stream, buffers = Stream(), list[memoryview]()

    def stays(buffer: pickle.PickleBuffer) -> bool:
        view = buffer.raw()
        if len(view) >= LARGE:
            buffers.append(view)
        return len(view) < LARGE

    pickler(stream, pickle.HIGHEST_PROTOCOL, stays).dump(obj)
    length = sum(map(len, stream.parts))
    if length < LARGE and not buffers:
        return Parcel(b"".join(stream.parts))
    file = MemoryFile()
    spans = [(0, length)]
    for part in stream.parts:
        file.append(memoryview(part))
    for buffer in buffers:
        file.pad()
        spans.append((file.size, file.size + len(buffer)))
        file.append(buffer)
    return Parcel(b"", file, tuple(spans))
