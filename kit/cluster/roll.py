"""What the kernel knows of its cluster, kept from the agent's messages: bookkeeping, with a condition to wait on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from kit.probe.wire import Message


@dataclass(frozen=True, slots=True)
class Found:
    """What the agent found and decided before it forked."""

    backend: str
    devices: tuple[str, ...]
    notes: tuple[str, ...]
    accelerators: tuple[tuple[str, str, int], ...]  # (device, name, bytes)
    build: str
    imported_in: float  # seconds


@dataclass(slots=True)
class Roll:
    """`hear` is called in the connection's reader thread; the fields may be read from any."""

    agent: int | None = None  # process ids
    pids: dict[int, int] = field(default_factory=dict)
    engines: dict[int, int] = field(default_factory=dict)  # rank -> ipyparallel's engine number
    found: Found | None = None
    generation: int = -1  # the newest whose ranks are all ready
    forked: int = -1  # the newest that was forked
    lost: dict[int, str] = field(default_factory=dict)  # rank -> 'killed by SIGKILL'
    refusal: Message | None = None
    agent_lost: bool = False
    controller_lost: bool = False
    changed: threading.Condition = field(default_factory=threading.Condition)

    def hear(self, message: Message) -> None:
        with self.changed:
            self._note(message)
            self.changed.notify_all()

    def wait_for(self, truth: Callable[[], bool], seconds: float) -> bool:
        with self.changed:
            return self.changed.wait_for(truth, seconds)

    def _note(self, message: Message) -> None:
        kind = message["kind"]
        if kind == "agent":
            self.agent = message["pid"]
        elif kind == "plan":
            self.found = Found(**{name: message[name] for name in Found.__slots__})
        elif kind == "forked":
            self.pids = dict(enumerate(message["pids"]))
            self.forked, self.engines, self.lost = message["generation"], {}, {}
        elif kind == "engine":
            self.engines[message["rank"]] = message["engine"]
        elif kind == "reset-done":
            self.generation = message["generation"]
        elif kind == "rank-lost":
            self.lost[message["rank"]] = message["detail"]
        elif kind == "refused":
            self.refusal = message
        elif kind == "agent-lost":
            self.agent_lost = True
        elif kind == "controller-lost":
            self.controller_lost = True
