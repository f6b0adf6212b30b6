"""The one cluster this kernel has: started by the first who asks, joined by the others, stopped with the kernel."""

from __future__ import annotations

import atexit
import os
import threading
from typing import Any, cast

import kit
from kit.cluster.cluster import Cluster
from kit.cluster.errors import Unavailable
from kit.cluster.idle import checked_minutes
from kit.cluster.request import checked, whole_number

_lock = threading.RLock()
_mine: tuple[int, Cluster] | None = None  # (process that started it, cluster): a fork of the kernel has none
_stand_in: Any = None  # recordings in the place of a cluster, until one can be had


def current() -> Cluster | None:
    """The cluster this kernel has, or None."""
    return _mine[1] if _mine is not None and _mine[0] == os.getpid() else None


def at_hand() -> Any:
    """See `kit.cluster.at_hand`."""
    return _stand_in or start_or_join()


def start_or_join(
    ranks: Any = None, device: Any = "auto", idle_minutes: Any = None, replay: str | None = None, **more: Any
) -> Cluster:
    """See `kit.cluster.start_or_join`."""
    global _stand_in
    try:
        cluster = _start_or_join(ranks, device, idle_minutes, more)
    except (Unavailable, RuntimeError, OSError, ImportError) as problem:  # not what a person can ask for otherwise
        if replay is None:
            raise
        _stand_in = kit.stand_in(replay, problem)
        return cast("Cluster", _stand_in)  # it has a cluster's face
    _stand_in = None
    return cluster


def _start_or_join(ranks: Any, device: Any, idle_minutes: Any, more: dict[str, Any]) -> Cluster:
    global _mine
    minutes = checked_minutes(idle_minutes)
    with _lock:
        cluster = current()
        if cluster is not None:
            joined = _join(cluster, ranks, device, more)
            return joined if minutes is None else joined.stop_when_idle(minutes)
        request = checked(4 if ranks is None else ranks, device, **more)
        cluster = Cluster(request, on_stop=_forget)
        _mine = (os.getpid(), cluster)
        return cluster.stop_when_idle(minutes)


def _join(cluster: Cluster, ranks: Any, device: Any, more: dict[str, Any]) -> Cluster:
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


def _forget(cluster: Cluster) -> None:
    global _mine
    with _lock:
        if _mine is not None and _mine[1] is cluster:
            _mine = None


@atexit.register
def _stop_mine() -> None:
    cluster = current()
    if cluster is not None:
        cluster.stop()
