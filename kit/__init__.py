"""Lockstep: watch and touch distributed training.

`kit.cluster(ranks=4)` starts real ranks, `kit.step(fn, *args)` walks all of them through a plain torch.distributed
function line by line, `kit.record(fn, *args)` runs it at full speed and keeps what happened. Importing this package
loads neither torch nor a widget library; each name is fetched when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from kit import check as check
    from kit import cluster as cluster
    from kit.check import NotAttempted as NotAttempted
    from kit.check import hint as hint
    from kit.check import solution as solution
    from kit.check.exercise import exercise as exercise
    from kit.front import bandwidth as bandwidth
    from kit.front import bench as bench
    from kit.front import link as link
    from kit.front import memory as memory
    from kit.front import overlap as overlap
    from kit.front import panel_of as panel_of
    from kit.front import plot_memory as plot_memory
    from kit.front import plot_of as plot_of
    from kit.front import plot_overlap as plot_overlap
    from kit.front import record as record
    from kit.front import reset as reset
    from kit.front import step as step
    from kit.front import threads as threads
    from kit.front import zero_stages as zero_stages
    from kit.panels.predict import predict as predict
    from kit.session import per_rank as per_rank
    from kit.session import record_on as record_on
    from kit.session import step_on as step_on
    from kit.session.errors import RankError as RankError
    from kit.session.recorded.standin import stand_in as stand_in
    from kit.session.replay import Replay as Replay
    from kit.trace import Trace as Trace

_HOME = {
    "cluster": ("kit.cluster", None),
    "stand_in": ("kit.session.recorded.standin", "stand_in"),
    "step": ("kit.front", "step"),
    "step_on": ("kit.session", "step_on"),
    "record_on": ("kit.session", "record_on"),
    "record": ("kit.front", "record"),
    "reset": ("kit.front", "reset"),
    "threads": ("kit.front", "threads"),
    "check": ("kit.check", None),
    "bandwidth": ("kit.front", "bandwidth"),
    "bench": ("kit.front", "bench"),
    "panel_of": ("kit.front", "panel_of"),
    "overlap": ("kit.front", "overlap"),
    "plot_memory": ("kit.front", "plot_memory"),
    "zero_stages": ("kit.front", "zero_stages"),
    "plot_of": ("kit.front", "plot_of"),
    "plot_overlap": ("kit.front", "plot_overlap"),
    "link": ("kit.front", "link"),
    "memory": ("kit.front", "memory"),
    "predict": ("kit.panels.predict", "predict"),
    "per_rank": ("kit.session", "per_rank"),
    "RankError": ("kit.session.errors", "RankError"),
    "Replay": ("kit.session.replay", "Replay"),
    "Trace": ("kit.trace", "Trace"),
    "exercise": ("kit.check", "exercise"),
    "hint": ("kit.check", "hint"),
    "solution": ("kit.check", "solution"),
    "NotAttempted": ("kit.check", "NotAttempted"),
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"kit has no {name!r}; it has {', '.join(sorted(_HOME))}")
    module, attribute = _HOME[name]
    found = importlib.import_module(module)
    return found if attribute is None else getattr(found, attribute)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
