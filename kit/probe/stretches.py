"""What a program names itself, with `torch.profiler.record_function`, as it would for torch's own profiler.

Pipelines name their actions so, torch's and ours alike. Nothing is profiled: only the moments are noted at which the
rank's own thread came to a name and left it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from torch.profiler import record_function

from kit.probe.passes import Clock, HostClock
from kit.trace.facts import Stretch

_ENTER: Callable[..., Any] = record_function.__enter__
_EXIT: Callable[..., Any] = record_function.__exit__
_lock = threading.Lock()
_here = threading.local()  # `watches`: of each thread, who watches it
_watched: set[int] = set()  # threads


class Stretches:
    """Watches one thread between `start` and `stop`."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or HostClock()
        self._open: list[tuple[str, Any]] = []
        self._seen: list[tuple[str, Any, Any]] = []  # name, beginning, end

    def start(self) -> None:
        _here.watches = self
        with _lock:
            _watched.add(threading.get_ident())
            _name_moments(_enter, _exit)

    def stop(self) -> None:
        _here.watches = None
        with _lock:
            _watched.discard(threading.get_ident())
            if not _watched:
                _name_moments(_ENTER, _EXIT)

    def begin(self, name: str) -> None:
        self._open.append((name, self._clock.now()))

    def end(self) -> None:
        if self._open:  # it was begun before anybody watched
            self._seen.append((*self._open.pop(), self._clock.now()))

    @property
    def facts(self) -> tuple[Stretch, ...]:
        """In order of their beginnings."""
        found = [Stretch(name, self._clock.when(start), self._clock.when(end)) for name, start, end in self._seen]
        return tuple(sorted(found, key=lambda one: one.start))


def _name_moments(enter: Any, leave: Any) -> None:
    """What `with record_function(name)` does, for the whole process."""
    record_function.__enter__ = enter  # type: ignore[method-assign]
    record_function.__exit__ = leave  # type: ignore[method-assign]


def _enter(named: record_function) -> record_function:
    _ENTER(named)
    watching = getattr(_here, "watches", None)
    if watching is not None:
        watching.begin(named.name)
    return named


def _exit(named: record_function, *error: Any) -> None:
    watching = getattr(_here, "watches", None)
    if watching is not None:
        watching.end()
    _EXIT(named, *error)
