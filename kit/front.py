"""What a notebook says first: `kit.step`, `kit.record`, `kit.check` ... on the cluster of this kernel, started when
needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from kit.cluster import start_or_join

if TYPE_CHECKING:
    from kit.check.spec import Bench
    from kit.cluster import Cluster
    from kit.cost.sweep import Sweep
    from kit.session.links import LinkSetting
    from kit.session.record import Recording
    from kit.session.session import Session
    from kit.trace.facts import Trace


def step(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Session:
    """Steps `function(*args, **kwargs)` on all ranks: returns a session that stands before its first line.

    Starts four ranks when this kernel has none. All arguments belong to the function; `kit.per_rank([...])` marks one
    that differs by rank. ValueError when something cannot travel to the ranks.
    """
    session: Session = start_or_join().step(function, *args, **kwargs)
    return session


def record(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Recording:
    """Runs `function(*args, **kwargs)` on all ranks at full speed: an object with `trace`, `results` and `panel()`.

    What the ranks print appears with their number in front. RankError, with the sentences a person reads and the
    trace, when ranks fail, wait for ever or disagree.
    """
    recording: Recording = start_or_join().record(function, *args, **kwargs)
    return recording


def reset() -> Cluster:
    """Forks all ranks of this kernel's cluster anew: the way out of every hang. Variables of the kernel stay."""
    return start_or_join().reset()


def bandwidth(
    operations: str | Sequence[str] | None = None,
    sizes: int | Sequence[int] | None = None,
    repeats: int = 7,
    warm_up: int = 2,
    ranks: int | None = None,
) -> Sweep:
    """Times collectives over sizes on this kernel's ranks: a table of time, algbw and busbw, with `fit` and `plot`.

    operations: names, or one (None: send, broadcast, reduce, gather, scatter, all_gather, reduce_scatter, all_reduce,
    all_to_all). sizes: whole buffers S in bytes, as nccl-tests counts them, rounded up to a multiple of 4 n (None:
    100 B to 4 MB). repeats: timed calls for each, after `warm_up` others; a barrier before each. ranks: the first so
    many (None: all).

    A time goes from the last rank's call to the last rank's end, inside the ranks, and nothing is recorded meanwhile,
    unlike in `kit.record`. A line tells how far it is; Ctrl-C ends it, and what was measured until then comes back.
    ValueError for what cannot be swept, and for sizes that would fill the memory.
    """
    from kit.session.bandwidth import sweep

    return sweep(start_or_join(), operations, sizes, repeats, warm_up, ranks)


def link(
    latency: float = 0.0, bandwidth: float = math.inf, between: Sequence[Sequence[int]] | None = None
) -> LinkSetting:
    """Slows the links between ranks: real messages are held back, from the next run on, and the trace says so.

    latency: seconds a message takes beside its bytes. bandwidth: bytes per second. between: groups of ranks ('nodes'):
    only what goes from one group to another is slowed; left out, every link is. Works until `kit.link()` or the
    setting's `off()`, or as `with kit.link(...)` for what runs inside. ValueError for what cannot be.
    """
    from kit.session.links import set_links

    return set_links(start_or_join(), latency, bandwidth, between)


def bench() -> Bench:
    """What `kit.check` works on: how to run a function on the first k ranks of this kernel's cluster."""
    from kit.check.spec import Bench
    from kit.session import per_rank, record_on

    cluster = start_or_join()

    def run(function: Callable[..., Any], world: int, arguments: Sequence[tuple[Any, ...]]) -> tuple[list[Any], Trace]:
        columns = tuple(per_rank(column) for column in zip(*arguments, strict=True))
        recording = record_on(cluster.ensure_running(), function, columns, {}, world=world, show_output=False)
        return recording.results, recording.trace

    return Bench(run, cluster.size, _picture)


def _picture(trace: Trace) -> str:
    """The last exchange of a run as SVG; nothing where nothing was sent."""
    from kit.views import messages_svg, stylesheet

    if not any(rank.operations for rank in trace.ranks):
        return ""
    drawing = messages_svg(trace, len(trace.positions) - 1)
    return f'<style>{stylesheet()}</style><div style="max-width:100%;overflow:hidden">{drawing}</div>'


def panel_of(shown: Any, predicted: Any = None) -> Any:
    """The panel of a session, a replay, a recording, a trace, or of the RankError that a failed run raised.

    predicted: a trace of the same operations by a cost model (`kit.cost.predict`), or for a session a function that
    makes one of its trace; it is drawn above what was measured.
    """
    from kit.panels import record_panel, stepping_panel

    return stepping_panel(shown, predicted) if hasattr(shown, "seek") else record_panel(shown, predicted)


def plot_of(sweep: Sweep, operations: str | Sequence[str] | None = None, link: Any = None) -> Any:
    """The panel of a bandwidth sweep; `link` (a fit, or latency and bandwidth) draws a prediction over it."""
    from kit.panels import bandwidth_panel

    return bandwidth_panel(sweep, operations, link)
