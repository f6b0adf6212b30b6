"""What a notebook says first: `kit.step`, `kit.record`, `kit.check` ... on the cluster of this kernel, started when
needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from kit.cluster import at_hand

if TYPE_CHECKING:
    from kit.check.spec import Bench
    from kit.cluster import Cluster
    from kit.cost.scaling import Scaling
    from kit.cost.sweep import Sweep
    from kit.panels.stages import StagePanel
    from kit.session.links import LinkSetting
    from kit.session.memory import Accounted
    from kit.session.overlap import Overlaps
    from kit.session.record import Recording
    from kit.session.session import Session
    from kit.session.threads import Threads
    from kit.trace.facts import Trace


def step(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Session:
    """Steps `function(*args, **kwargs)` on all ranks: returns a session that stands before its first line.

    Starts four ranks when this kernel has none. All arguments belong to the function; `kit.per_rank([...])` marks one
    that differs by rank. ValueError when something cannot travel to the ranks.
    """
    session: Session = at_hand().step(function, *args, **kwargs)
    return session


def record(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Recording:
    """Runs `function(*args, **kwargs)` on all ranks at full speed: an object with `trace`, `results` and `panel()`.

    What the ranks print appears with their number in front. RankError, with the sentences a person reads and the
    trace, when ranks fail, wait for ever or disagree.
    """
    recording: Recording = at_hand().record(function, *args, **kwargs)
    return recording


def memory(
    function: Callable[..., Any], *args: Any, kinds: Mapping[str, str | Sequence[str]] | None = None, **kwargs: Any
) -> Accounted:
    """Runs `function(*args, **kwargs)` on all ranks, as `kit.record`, and accounts for what each rank holds meanwhile.

    By kind of memory: parameters, gradients, optimizer state, activations, communication buffers, other. Every
    operation is looked at on its way, so times are longer than in a plain record. Kinds are found by what is done with
    a storage; an object with a method `tensors_held()`, which gives a dict of kind -> tensors, says its own. kinds:
    for a kind the names of the function's variables that hold it, {"optimizer state": ["m", "v"]}. All else belongs to
    the function. Raises as `kit.record`, and ValueError for a kind that there is not.
    """
    from kit.session.memory import Accounted, account

    cluster = at_hand()
    if not cluster.live:
        return Accounted(cluster.record(function, *args, **kwargs))
    return Accounted(account(cluster.ensure_running(), (function, args, kwargs), kinds))


def threads(ranks: int = 16, patience: float = 60.0) -> Threads:
    """More ranks than the machine has room for: threads of one process, `kit.threads(ranks=16).record(fn, *args)`.

    Plain torch.distributed code runs on them as in `kit.record`, with the same result: `trace`, `results`. One rank
    works at a time, until it waits for others, so values, messages and bytes are those of so many processes; times are
    not, and the trace says so. Each run has a process of its own, a fork of this kernel's cluster's, on the CPU.

    ranks: 1 to 128. patience: seconds that one rank may work without talking to another before the run is given up.
    RankError as from `kit.record`; ValueError for a number of ranks that cannot be.
    """
    from kit.session.threads import threads_on

    return threads_on(at_hand(), ranks, patience)


def reset() -> Cluster:
    """Forks all ranks of this kernel's cluster anew: the way out of every hang. Variables of the kernel stay."""
    cluster: Cluster = at_hand().reset()
    return cluster


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
    from kit.session.recorded import keeper

    cluster, kept = at_hand(), keeper()
    if not cluster.live:
        recorded: Sweep = cluster.bandwidth()
        return recorded
    if kept is None:
        return sweep(cluster, operations, sizes, repeats, warm_up, ranks)
    return kept.sweep(lambda: sweep(cluster, operations, sizes, repeats, warm_up, ranks))


def link(
    latency: float = 0.0, bandwidth: float = math.inf, between: Sequence[Sequence[int]] | None = None
) -> LinkSetting:
    """Slows the links between ranks: real messages are held back, from the next run on, and the trace says so.

    latency: seconds a message takes beside its bytes. bandwidth: bytes per second. between: groups of ranks ('nodes'):
    only what goes from one group to another is slowed; left out, every link is. Works until `kit.link()` or the
    setting's `off()`, or as `with kit.link(...)` for what runs inside. ValueError for what cannot be.
    """
    from kit.session.links import set_links

    cluster = at_hand()
    if not cluster.live:
        recorded: LinkSetting = cluster.link()
        return recorded
    return set_links(cluster, latency, bandwidth, between)


def bench() -> Bench:
    """What `kit.check` works on: how to run a function on the first k ranks of this kernel's cluster."""
    from kit.check.spec import Bench
    from kit.session import per_rank
    from kit.session.record import run as run_on
    from kit.session.recorded import keeper

    cluster = at_hand()

    def run(function: Callable[..., Any], world: int, arguments: Sequence[tuple[Any, ...]]) -> tuple[list[Any], Trace]:
        if (kept := keeper()) is not None:
            kept.make_way()
        columns = tuple(per_rank(column) for column in zip(*arguments, strict=True))
        recording = run_on(cluster.ensure_running(), (function, columns, {}), world, show_output=False)
        return recording.results, recording.trace

    return Bench(run, cluster.size, _picture, "" if cluster.live else cluster.why)


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


def plot_memory(measured: Any, formula: Any = None) -> Any:
    """What ranks held over a run, as stacked areas by kind of memory, one panel for each rank, all on one axis.

    measured: what `kit.memory` returns, a trace or holdings (`run.holdings.step(-1)`: the last training step alone); or
    name -> that, for several runs side by side. formula: bytes, or name -> bytes, drawn as dashed lines; for several
    runs the run's name -> that. ValueError for a formula of a run that there is not.
    """
    from kit.panels import holdings_panel
    from kit.trace.holdings import Holdings

    def held(one: Any) -> Any:
        holdings = one.holdings if not isinstance(one, Holdings) else one
        return holdings() if callable(holdings) else holdings

    if not isinstance(measured, Mapping):
        return holdings_panel(held(measured), formula, getattr(measured, "about", ""))
    about = next((said for one in measured.values() if (said := getattr(one, "about", ""))), "")
    return holdings_panel({name: held(one) for name, one in measured.items()}, formula, about)


def zero_stages(
    runs: Mapping[int, Accounted | Trace], *, parameters: int, precision: Literal["fp32", "mixed"] = "fp32"
) -> StagePanel:
    """A switch from stage 0 to stage 3 of ZeRO: memory by rank over a step, what is held at rest, what is sent.

    runs: stage -> what `kit.memory` returned for a function that trains at that stage and ends with the optimizer's
    step. parameters: P, for the formulas. `.stage(2)` moves the switch, `.text()` reads it. ValueError for a run
    without a training step.
    """
    from kit.panels import stages_panel

    return stages_panel(runs, parameters, precision)


def overlap(
    function: Callable[..., Any],
    settings: Mapping[str, Any] | Sequence[Any],
    *args: Any,
    step: int = -1,
    **kwargs: Any,
) -> Overlaps:
    """Records `function(setting, *args, **kwargs)` for each setting, and says how much communication each run hid.

    settings: name -> value, or values: bytes of a bucket, None for no overlap. step: which training step of each run
    is looked at (negative: counted from the last; the first ones warm up). Ranks that share processors cannot show
    overlap honestly, so use it with slow links: `with kit.link(latency=1e-3, bandwidth=5e7): ...`; only then ends of
    operations and passes are noted exactly. Raises as `kit.record`.
    """
    from kit.session.overlap import compare

    return compare(at_hand(), function, settings, args, kwargs, step)


def plot_overlap(measured: Any, step: int = -1, about: str = "") -> Any:
    """Computing over communication in a training step, what was exposed in its own colour and as a number.

    measured: a recording, a trace or its `overlap()`; or name -> that, for several settings on one time axis.
    """
    from kit.panels import overlap_panel

    def trace_of(one: Any) -> Any:
        return getattr(one, "trace", one)

    if not isinstance(measured, Mapping):
        return overlap_panel(trace_of(measured), step, about or getattr(measured, "about", ""))
    return overlap_panel({name: trace_of(one) for name, one in measured.items()}, step, about)


def plot_of(measured: Sweep | Scaling, *how: Any) -> Any:
    """The panel of a bandwidth sweep (how: operations, and a link, which draws a prediction over it), or the picture of
    a scaling curve (how: a predicted curve).
    """
    from kit.cost.scaling import Scaling

    if isinstance(measured, Scaling):
        from kit.views import scaling_picture

        return scaling_picture(measured, *how)
    from kit.panels import bandwidth_panel

    return bandwidth_panel(measured, *how)
