"""Whole messages over a stream socket: a length, then a pickled message of `kit.protocol.messages`.

Used between a rank and its host (a socket pair made before the fork) and between a host and the kernel (a socket in
the cluster's private folder). Only the user who owns both ends can reach either, which is why pickle is acceptable
here; messages hold plain data and numpy arrays, never torch objects, so a kernel reads them without torch.
"""

from __future__ import annotations

import pickle
import socket
import struct
import threading
from collections.abc import Iterator
from typing import Generic, TypeVar, cast

Received = TypeVar("Received")
Sent = TypeVar("Sent")

_LENGTH = struct.Struct("!Q")


def encode(message: object) -> bytes:
    body = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    return _LENGTH.pack(len(body)) + body


class Channel(Generic[Received, Sent]):
    """One end of a message stream, named by what comes in and what goes out.

    `send` may be called from any thread; reading belongs to one thread.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._sending = threading.Lock()
        self._inbox = bytearray()

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, message: Sent) -> None:
        """Sends a whole message; raises OSError when the other end has gone."""
        data = encode(message)
        with self._sending:
            self._socket.sendall(data)

    def receive(self) -> Received | None:
        """Blocks for the next message; None when the other end has closed."""
        while True:
            letter = self._next()
            if letter is not None:
                return self._open(letter)
            try:
                data = self._socket.recv(1 << 18)
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

    def _letters(self) -> Iterator[bytes]:
        """Each whole message that has come, with its length in front, as it travelled."""
        try:
            data = self._socket.recv(1 << 20, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except ConnectionResetError as gone:
            raise EOFError from gone
        if not data:
            raise EOFError
        self._inbox += data
        while (letter := self._next()) is not None:
            yield letter

    def _next(self) -> bytes | None:
        if len(self._inbox) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._inbox)
        end = _LENGTH.size + length
        if len(self._inbox) < end:
            return None
        letter = bytes(self._inbox[:end])
        del self._inbox[:end]
        return letter

    def _open(self, letter: bytes) -> Received:
        return cast("Received", pickle.loads(memoryview(letter)[_LENGTH.size :]))


class Mailbox(Channel[Received, Sent]):
    """A channel whose sending side never blocks: a host waits for nobody, be it a stopped rank or a busy kernel.

    `post` puts a message into the outbox, `flush` sends what the other side can take now. Several messages for one
    side then wake it once.
    """

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock)
        self._outbox = bytearray()
        self.broken = False

    @property
    def backlog(self) -> bool:
        return bool(self._outbox)

    def pump_letters(self) -> list[tuple[Received, bytes]]:
        """As `pump`, each message with the letter it came in, which `relay` can pass on as it is."""
        return [(self._open(letter), letter) for letter in self._letters()]

    def post(self, message: Sent) -> None:
        self._outbox += encode(message)

    def relay(self, letter: bytes) -> None:
        self._outbox += letter

    def flush(self) -> None:
        """Sends what can be sent now. When the other side has closed, the rest is dropped and `broken` says so."""
        while self._outbox and not self.broken:
            try:
                sent = self._socket.send(self._outbox, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            except OSError:
                self.broken = True
            else:
                del self._outbox[:sent]
        if self.broken:
            self._outbox.clear()
