"""The kernel's line to the host agent: send from any thread, and one thread that reads and tells the subscribers."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from kit.protocol.messages import HostLost, ToHost, ToKernel
from kit.protocol.wire import Channel

_log = logging.getLogger(__name__)


class Connection:
    """Outlives the agents behind it: subscribers stay when a cluster is started again."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._channel: Channel[ToKernel, ToHost] | None = None
        self._subscribers: list[Callable[[ToKernel], object]] = []
        self._sent_to: list[Callable[[ToHost], object]] = []

    def open(self, channel: Channel[ToKernel, ToHost]) -> None:
        """Takes a fresh channel into use; a reader thread serves it until it closes."""
        with self._lock:
            if self._channel is not None:
                raise RuntimeError("close the old channel first")
            self._channel = channel
        threading.Thread(target=self._read, args=(channel,), daemon=True, name="read from the agent").start()

    def send(self, message: ToHost) -> None:
        """Sends one message to the agent; ConnectionError when there is none."""
        channel = self._channel
        if channel is None:
            raise ConnectionError("the cluster is not running: kit.cluster() starts one")
        try:
            channel.send(message)
        except OSError as gone:
            raise ConnectionError("the cluster's host agent has ended: reset() starts the cluster again") from gone
        for callback in tuple(self._sent_to):
            callback(message)

    def subscribe(self, callback: Callable[[ToKernel], object]) -> Callable[[], None]:
        """Calls `callback(message)` for every message from now on, in order, in the reader thread.

        HostLost tells that no more will come. Returns the function that ends the subscription.
        """
        with self._lock:
            self._subscribers.append(callback)

        def unsubscribe() -> None:
            with self._lock:
                if callback in self._subscribers:
                    self._subscribers.remove(callback)

        return unsubscribe

    def subscribe_to_sent(self, callback: Callable[[ToHost], object]) -> Callable[[], None]:
        """Calls `callback(message)` for every message that was sent, in the sender's thread; returns its end."""
        self._sent_to.append(callback)
        return lambda: self._sent_to.remove(callback)

    def close(self) -> None:
        """Lets go of the channel on purpose: nobody is told that the agent was lost."""
        with self._lock:
            channel, self._channel = self._channel, None
        if channel is not None:
            channel.shutdown()

    def _read(self, channel: Channel[ToKernel, ToHost]) -> None:
        while (message := channel.receive()) is not None:
            self._tell(message)
        with self._lock:
            lost = self._channel is channel
            if lost:
                self._channel = None
        channel.close()
        if lost:
            self._tell(HostLost())

    def _tell(self, message: ToKernel) -> None:
        with self._lock:
            subscribers = tuple(self._subscribers)
        for callback in subscribers:
            try:
                callback(message)
            except Exception:  # a broken listener must not cut off the others
                _log.exception("a subscriber failed on %s", type(message).__name__)
