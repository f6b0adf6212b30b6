"""Clusters of real ranks: `kit.cluster(ranks=4)` starts one or joins the one this kernel has.

The package can be called, since `kit.cluster` is both this room and what a notebook says first. Importing it loads
neither torch nor ipyparallel.
"""

from __future__ import annotations

import sys
import types
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kit.cluster.cluster import Cluster
    from kit.cluster.errors import ClusterError

__all__ = ["Cluster", "ClusterError", "at_hand", "current", "start_or_join"]


def start_or_join(
    ranks: int | None = None,
    device: str = "auto",
    *,
    backend: str = "auto",
    port: int | None = None,
    folder: str | None = None,
    engines: str = "local",
    idle_minutes: float | None = None,
    replay: str | None = None,
) -> Cluster:
    """Starts a cluster of `ranks` ranks (4 unless said), or joins the one this kernel has.

    device: 'auto' (a GPU for each rank where there are enough, else the CPU), 'cpu', 'cuda', 'xpu'.
    backend: 'auto' (nccl with one GPU per rank, else gloo), 'gloo', 'nccl', 'xccl'.
    port: MASTER_PORT of the ranks, for code that wants one; a free one unless said.
    folder: where the private run folder is made. engines: how the ranks are started, 'local'.
    idle_minutes: the cluster stops itself after so long without a run; the next use starts it again. None: never.
    replay: a lab, '01_collectives'. Where this machine cannot give a cluster, its recordings stand in: an object with a
    cluster's face, `live` False, that answers the lab's calls from them and says so. Left out, the reason is raised.

    Raises ValueError, with what to do in its text, for what cannot be had, and for joining with other wishes than the
    cluster was started with. Raises ClusterError when its processes fail.
    """
    from kit.cluster.mine import start_or_join as run

    wishes = {"backend": backend, "port": port, "folder": folder, "engines": engines}
    return run(ranks, device, idle_minutes=idle_minutes, replay=replay, **wishes)


def current() -> Cluster | None:
    """The cluster this kernel has, or None."""
    from kit.cluster.mine import current as run

    return run()


def at_hand() -> Any:
    """What this kernel's cells run on: the recordings that stand in, or its cluster, which is started when needed."""
    from kit.cluster.mine import at_hand as run

    return run()


def __getattr__(name: str) -> Any:
    if name in ("Cluster", "ClusterError"):
        from kit.cluster import cluster

        return getattr(cluster, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class _CallableRoom(types.ModuleType):
    def __call__(self, *args: Any, **kwargs: Any) -> Cluster:
        return start_or_join(*args, **kwargs)


_CallableRoom.__call__.__doc__ = start_or_join.__doc__
sys.modules[__name__].__class__ = _CallableRoom
