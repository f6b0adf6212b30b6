"""A channel whose sending side never blocks: the host agent waits for nobody, be it a stopped rank or a busy kernel."""

from __future__ import annotations

import socket

from kit.probe.wire import Channel, Message, encode


class Mailbox(Channel):
    """`post` queues what the other side cannot take yet; `flush` goes on when the selector says that it can."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock)
        self._outbox = bytearray()
        self.broken = False

    @property
    def backlog(self) -> bool:
        return bool(self._outbox)

    def post(self, message: Message) -> None:
        self._outbox += encode(message)
        self.flush()

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
