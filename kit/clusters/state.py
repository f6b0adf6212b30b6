"""What the kernel knows of its cluster, kept from the host's messages, with a condition to wait on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from kit.protocol.messages import (
    AllReady,
    ControllerLost,
    Forked,
    Found,
    HostLost,
    HostUp,
    RankLost,
    Refused,
    Registered,
    ToKernel,
)


@dataclass(slots=True)
class ClusterState:
    """`hear` is called in the connection's reader thread; the fields may be read from any."""

    agent: int | None = None  # process id
    pids: dict[int, int] = field(default_factory=dict)  # by rank
    engines: dict[int, int] = field(default_factory=dict)  # rank -> ipyparallel's engine number
    found: Found | None = None
    generation: int = -1  # the newest whose ranks are all ready
    forked: int = -1  # the newest that was forked
    lost: dict[int, str] = field(default_factory=dict)  # rank -> 'killed by SIGKILL'
    refusal: Refused | None = None
    agent_lost: bool = False
    controller_lost: bool = False
    changed: threading.Condition = field(default_factory=threading.Condition)

    def hear(self, message: ToKernel) -> None:
        with self.changed:
            match message:
                case HostUp(pid):
                    self.agent = pid
                case Found():
                    self.found = message
                case Forked(generation, pids):
                    self.pids = dict(enumerate(pids))
                    self.forked, self.engines, self.lost, self.refusal = generation, {}, {}, None
                case Registered(rank, engine):
                    self.engines[rank] = engine
                case AllReady(generation):
                    self.generation = generation
                case RankLost():
                    self.lost[message.rank] = message.detail
                case Refused():
                    self.refusal = message
                case HostLost():
                    self.agent_lost = True
                case ControllerLost():
                    self.controller_lost = True
                case _:
                    return  # of a run, or of no consequence here
            self.changed.notify_all()

    def wait_for(self, truth: Callable[[], bool], seconds: float) -> bool:
        with self.changed:
            return self.changed.wait_for(truth, seconds)
