"""Lockstep: watch and touch distributed training.

`kit.cluster(ranks=4)` starts real ranks, `kit.step(fn, *args)` walks all of them through a plain torch.distributed
function line by line, `kit.record(fn, *args)` runs it at full speed and keeps what happened. Importing this package
loads neither torch nor a widget library; what is not a function of `kit.api` is fetched when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kit import lazy
from kit.api import bandwidth, check, cluster, compare, link, load, record, step

__version__ = "0.1.0"

if TYPE_CHECKING:
    from kit.classroom.board.member import join
    from kit.grade.answers import NotAttempted, exercise
    from kit.grade.hints import hint, solution
    from kit.panels.predict import predict
    from kit.run import per_rank
    from kit.run.errors import RankError
    from kit.run.options import Options as options  # said as a function: kit.options(ranks=2).record(fn)
    from kit.trace.trace import Trace

__all__ = [
    "NotAttempted",
    "RankError",
    "Trace",
    "bandwidth",
    "check",
    "cluster",
    "compare",
    "exercise",
    "hint",
    "join",
    "link",
    "load",
    "options",
    "per_rank",
    "predict",
    "record",
    "solution",
    "step",
]

if not TYPE_CHECKING:  # a checker knows the names above, and no others
    _lazily = lazy.names(__name__)

    def __getattr__(name: str) -> Any:
        if name in __all__:
            return _lazily(name)
        raise AttributeError(f"kit has no {name!r}; it has {', '.join(__all__)}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
