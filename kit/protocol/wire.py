"""Whole messages over a stream socket: a length, then a pickled message of `kit.protocol.messages`; the memory files in
it go beside it, as descriptors.

Used between a rank and its host (a socket pair made before the fork) and between a host and the kernel (a socket in
the cluster's private folder). Only the user who owns both ends can reach either, which is why pickle is acceptable
here; messages hold plain data and numpy arrays, never torch objects, so a kernel reads them without torch.
"""

from __future__ import annotations

import io
import pickle
import socket
import struct
import threading
from array import array
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar, cast

from kit.protocol.parcels import MemoryFile

Received = TypeVar("Received")
Sent = TypeVar("Sent")

_HEAD = struct.Struct("!QI")  # the length of what is pickled, the number of files
_MOST_FILES = 253  # that the system takes at once
_ROOM = socket.CMSG_SPACE(_MOST_FILES * array("i").itemsize)


class Letter(NamedTuple):
    """A message as it travels."""

    data: bytes  # its head, then what is pickled
    files: tuple[MemoryFile, ...] = ()


def encode(message: object) -> Letter:
    files: list[MemoryFile] = []

    def enclose(file: MemoryFile) -> tuple[Callable[[int], MemoryFile], tuple[int]]:
        files.append(file)
        return _enclosed, (len(files) - 1,)

    body = io.BytesIO()
    pickler = pickle.Pickler(body, pickle.HIGHEST_PROTOCOL)
    pickler.dispatch_table = {MemoryFile: enclose}
    pickler.dump(message)
    pickled = body.getbuffer()
    return Letter(_HEAD.pack(len(pickled), len(files)) + pickled, tuple(files))


def _enclosed(number: int) -> MemoryFile:
    """Stands in a pickle for a file that goes beside it."""
    raise AssertionError("what has files beside it is opened with them")


class _WithFiles(pickle.Unpickler):
    def __init__(self, letter: Letter) -> None:
        super().__init__(io.BytesIO(memoryview(letter.data)[_HEAD.size :]))
        self._files = letter.files

    def find_class(self, module: str, name: str) -> Any:
        found = super().find_class(module, name)
        return self._files.__getitem__ if found is _enclosed else found


class Channel(Generic[Received, Sent]):
    """One end of a message stream, named by what comes in and what goes out.

    `send` may be called from any thread; reading belongs to one thread.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._sending = threading.Lock()
        self._inbox = bytearray()
        self._files: deque[MemoryFile] = deque()  # that have come, the letters they go with perhaps not whole

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, message: Sent) -> None:
        """Sends a whole message; raises OSError when the other end has gone."""
        letter = encode(message)
        with self._sending:
            sent = self._send_some(letter.data, letter.files) if letter.files else 0
            self._socket.sendall(memoryview(letter.data)[sent:])

    def receive(self) -> Received | None:
        """Blocks for the next message; None when the other end has closed."""
        while True:
            letter = self._next()
            if letter is not None:
                return self._open(letter)
            try:
                data = self._read(1 << 18)
            except ConnectionResetError:
                return None
            if not data:
                return None
            self._inbox += data

    def pump(self) -> list[Received]:
        """Reads what is there without blocking and returns the messages completed by it; EOFError when closed."""
        return [self._open(letter) for letter in self._letters()]

    def shutdown(self) -> None:
        """Ends the stream from any thread: a reader that waits in `receive` wakes, gets None and closes."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:  # the other end was quicker
            return

    def close(self) -> None:
        self._socket.close()

    def _send_some(self, data: bytes | bytearray, files: tuple[MemoryFile, ...], flags: int = 0) -> int:
        """Sends what can be sent of `data`, the files with its first byte; returns how much."""
        descriptors = array("i", [file.fileno() for file in files])
        beside = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)] if files else []
        return self._socket.sendmsg([data], beside, flags)

    def _read(self, most: int, flags: int = 0) -> bytes:
        data, beside, _, _ = self._socket.recvmsg(most, _ROOM, flags | socket.MSG_CMSG_CLOEXEC)
        for _, _, content in beside:
            descriptors = array("i")
            descriptors.frombytes(content[: len(content) - len(content) % descriptors.itemsize])
            self._files.extend(map(MemoryFile, descriptors))
        return data

    def _letters(self) -> Iterator[Letter]:
        """Each whole message that has come, as it travelled."""
        try:
            data = self._read(1 << 20, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except ConnectionResetError as gone:
            raise EOFError from gone
        if not data:
            raise EOFError
        self._inbox += data
        while (letter := self._next()) is not None:
            yield letter

    def _next(self) -> Letter | None:
        if len(self._inbox) < _HEAD.size:
            return None
        length, files = _HEAD.unpack_from(self._inbox)
        end = _HEAD.size + length
        if len(self._inbox) < end:
            return None
        if len(self._files) < files:
            raise OSError("a memory file did not arrive: this process may open no more files (see `ulimit -n`)")
        letter = Letter(bytes(self._inbox[:end]), tuple(self._files.popleft() for _ in range(files)))
        del self._inbox[:end]
        return letter

    def _open(self, letter: Letter) -> Received:
        if letter.files:
            return cast("Received", _WithFiles(letter).load())
        return cast("Received", pickle.loads(memoryview(letter.data)[_HEAD.size :]))


@dataclass(slots=True)
class _Outgoing:
    """Letters one behind the other; the files of the first alone, which leave with its first byte."""

    data: bytearray
    files: tuple[MemoryFile, ...]


class Mailbox(Channel[Received, Sent]):
    """A channel whose sending side never blocks: a host waits for nobody, be it a stopped rank or a busy kernel.

    `post` puts a message into the outbox, `flush` sends what the other side can take now. Several messages for one
    side then wake it once.
    """

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock)
        self._outbox: deque[_Outgoing] = deque()
        self.broken = False

    @property
    def backlog(self) -> bool:
        return bool(self._outbox)

    def pump_letters(self) -> list[tuple[Received, Letter]]:
        """As `pump`, each message with the letter it came in, which `relay` can pass on as it is."""
        return [(self._open(letter), letter) for letter in self._letters()]

    def post(self, message: Sent) -> None:
        self.relay(encode(message))

    def relay(self, letter: Letter) -> None:
        if letter.files or not self._outbox:
            self._outbox.append(_Outgoing(bytearray(letter.data), letter.files))
        else:
            self._outbox[-1].data += letter.data

    def flush(self) -> None:
        """Sends what can be sent now. When the other side has closed, the rest is dropped and `broken` says so."""
        while self._outbox and not self.broken:
            first = self._outbox[0]
            try:
                sent = self._send_some(first.data, first.files, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            except OSError:
                self.broken = True
            else:
                first.files = ()
                del first.data[:sent]
                if not first.data:
                    self._outbox.popleft()
        if self.broken:
            self._outbox.clear()
