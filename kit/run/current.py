"""The one runner this kernel has: started by the first who asks, joined by the others, stopped with the kernel."""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kit.clusters.errors import Unavailable
from kit.clusters.idle import checked_minutes
from kit.clusters.request import checked, whole_number
from kit.run.live import LiveRunner

if TYPE_CHECKING:
    from kit.run.runner import Runner

_lock = threading.RLock()
_held: tuple[int, Runner] | None = None  # (process that started it, runner): a fork of the kernel has none
_refused: ValueError | None = None  # a wish that cannot be had: nothing else is started in its place
_around: Callable[[Runner], Runner] | None = None  # what is put around it while a lab is recorded


def held() -> Runner | None:
    """The runner this kernel has, or None."""
    return _held[1] if _held is not None and _held[0] == os.getpid() else None


def runner() -> Runner:
    """What this kernel's cells run on; four ranks are started where there is nothing yet.

    Raises ValueError where the last cluster that was asked for could not be had: others would not be what was wanted.
    """
    there = held()
    if there is None and _refused is not None:
        raise ValueError(f"{_refused} Nothing runs before kit.cluster(...) has given this kernel ranks.") from _refused
    return _wrapped(there or start_or_join())


def put_around(wrap: Callable[[Runner], Runner] | None) -> None:
    """From now on this kernel's cells run on `wrap(runner)`; None: on the runner itself."""
    global _around
    _around = wrap


def start_or_join(
    ranks: Any = None, device: Any = "auto", idle_minutes: Any = None, replay: str | None = None, **more: Any
) -> Runner:
    """See `kit.cluster`."""
    global _refused
    try:
        _refused, started = None, _start_or_join(ranks, device, idle_minutes, more)
        return _wrapped(started)
    except (Unavailable, RuntimeError, OSError, ImportError) as problem:  # not what a person can ask for otherwise
        if replay is None:
            raise
        from kit.run.recordings.replay_runner import ReplayRunner

        return _wrapped(_hold(ReplayRunner.in_place_of_ranks(replay, problem)))
    except ValueError as refusal:
        _refused = refusal if held() is None else None
        raise


def _start_or_join(ranks: Any, device: Any, idle_minutes: Any, more: dict[str, Any]) -> Runner:
    minutes = checked_minutes(idle_minutes)
    with _lock:
        cluster = held()
        if isinstance(cluster, LiveRunner):
            joined = _join(cluster, ranks, device, more)
            return joined if minutes is None else joined.stop_when_idle(minutes)
        request = checked(4 if ranks is None else ranks, device, **more)
        started = LiveRunner(request, on_stop=_forget)
        _hold(started)
        return started.stop_when_idle(minutes)


def _join(cluster: LiveRunner, ranks: Any, device: Any, more: dict[str, Any]) -> LiveRunner:
    has = cluster.request
    if ranks is not None and whole_number("ranks", ranks, 4) != has.ranks:
        raise ValueError(
            f"this kernel has a cluster of {has.ranks} ranks, not {ranks}: leave ranks out to join it, "
            "or stop it first with kit.cluster().stop()"
        )
    for name, wish in {"device": device, **more}.items():
        unsaid = wish in ("auto", None, "local")
        if not unsaid and wish != getattr(has, name):
            raise ValueError(
                f"this kernel's cluster was started with {name}={getattr(has, name)!r}, not {wish!r}: leave {name} out "
                "to join it, or stop it first with kit.cluster().stop()"
            )
    cluster.fresh = False
    return cluster.ensure_running()


def _hold(runner: Runner) -> Runner:
    global _held
    with _lock:
        _held = (os.getpid(), runner)
    return runner


def _wrapped(runner: Runner) -> Runner:
    return runner if _around is None else _around(runner)


def _forget(cluster: object) -> None:
    global _held
    with _lock:
        if _held is not None and _held[1] is cluster:
            _held = None


@atexit.register
def _stop_held() -> None:
    runner = held()
    if runner is not None:
        runner.stop()
