"""Whole messages over a stream socket: a length, then a pickled dict.

Used between a rank and its host agent (a socket pair made before the fork) and between the agent and the kernel (a
socket in the cluster's private folder). Only the user who owns both ends can reach either, which is why pickle is
acceptable here; messages hold plain data and numpy arrays, never torch objects, so a kernel reads them without torch.
"""

from __future__ import annotations

import pickle
import socket
import struct
import threading
from typing import Any

Message = dict[str, Any]

_LENGTH = struct.Struct("!Q")


def encode(message: Message) -> bytes:
    body = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    return _LENGTH.pack(len(body)) + body


class Channel:
    """One end of a message stream. `send` may be called from any thread; reading belongs to one thread."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._sending = threading.Lock()
        self._inbox = bytearray()

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, message: Message) -> None:
        """Sends a whole message; raises OSError when the other end has gone."""
        data = encode(message)
        with self._sending:
            self._socket.sendall(data)

    def receive(self) -> Message | None:
        """Blocks for the next message; None when the other end has closed."""
        while True:
            message = self._next()
            if message is not None:
                return message
            try:
                data = self._socket.recv(1 << 18)
            except ConnectionResetError:
                return None
            if not data:
                return None
            self._inbox += data

    def pump(self) -> list[Message]:
        """Reads what is there without blocking and returns the messages completed by it; EOFError when closed."""
        try:
            data = self._socket.recv(1 << 20, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return []
        except ConnectionResetError as gone:
            raise EOFError from gone
        if not data:
            raise EOFError
        self._inbox += data
        messages = []
        while (message := self._next()) is not None:
            messages.append(message)
        return messages

    def shutdown(self) -> None:
        """Ends the stream from any thread: a reader that waits in `receive` wakes and gets None. It closes
        afterwards.
        """
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:  # the other end was quicker
            return

    def close(self) -> None:
        self._socket.close()

    def _next(self) -> Message | None:
        if len(self._inbox) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._inbox)
        end = _LENGTH.size + length
        if len(self._inbox) < end:
            return None
        message: Message = pickle.loads(bytes(self._inbox[_LENGTH.size : end]))
        del self._inbox[:end]
        return message
