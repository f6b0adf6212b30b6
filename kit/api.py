"""What a notebook says: `kit.cluster`, `kit.step`, `kit.record`, `kit.check` ... on the ranks of this kernel.

Nothing heavy is loaded before a function is called: `import kit` takes no time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kit import shown

if TYPE_CHECKING:
    from pathlib import Path

    from kit.cost.sweep import Sweep
    from kit.grade.verdict import Verdict
    from kit.run.cursor import Replay, Steppable
    from kit.run.results import Comparison, Recording
    from kit.run.runner import Runner
    from kit.run.slow_links import SlowLinks
    from kit.trace.trace import Trace

shown.look_in("kit.panels.results")


def cluster(
    ranks: int | None = None,
    device: str = "auto",
    *,
    backend: str = "auto",
    port: int | None = None,
    folder: str | None = None,
    engines: str = "local",
    idle_minutes: float | None = None,
    replay: str | None = None,
) -> Runner:
    """Starts a cluster of `ranks` ranks (4 unless said), or joins the one this kernel has.

    device: 'auto' (a GPU for each rank where there are enough, else the CPU), 'cpu', 'cuda', 'xpu'.
    backend: 'auto' (nccl with one GPU of NVIDIA's or AMD's per rank, else gloo), 'gloo', 'nccl'.
    port: MASTER_PORT of the ranks, for code that wants one; a free one unless said.
    folder: where the private run folder is made. engines: how the ranks are started, 'local'.
    idle_minutes: the cluster stops itself after so long without a run; the next use starts it again. None: never.
    replay: a lab, '01a_collectives'. Where this machine cannot give a cluster, its recordings answer the lab's calls,
    and say so. Left out, the reason is raised.

    Raises ValueError, with what to do in its text, for what cannot be had, and for joining with other wishes than the
    cluster was started with. Raises ClusterError when its processes fail.
    """
    from kit.run.current import start_or_join

    wishes = {"backend": backend, "port": port, "folder": folder, "engines": engines}
    return start_or_join(ranks, device, idle_minutes=idle_minutes, replay=replay, **wishes)


def step(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Steppable:
    """Steps `function(*args, **kwargs)` on all ranks: returns a session that stands before its first line.

    Starts four ranks when this kernel has none. All arguments belong to the function; `kit.per_rank([...])` marks one
    that differs by rank. ValueError when something cannot travel to the ranks.
    """
    from kit.run import current

    return current.runner().step(function, *args, **kwargs)


def record(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Recording:
    """Runs `function(*args, **kwargs)` on all ranks at full speed: `trace`, `results`, `panel()`, `plot()`, `export()`.

    All arguments belong to the function; `kit.options(...).record(function, ...)` says how it is run. What the ranks
    print appears with their number in front; after three seconds, who runs and who waits. RankError, with the sentences
    a person reads and the trace, when ranks fail, wait for ever or disagree.
    """
    from kit.run import current

    return current.runner().record(function, *args, **kwargs)


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
    from kit.run import current
    from kit.run.runner import SweepPlan

    return current.runner().sweep(SweepPlan(operations, sizes, repeats, warm_up, ranks))


def link(
    latency: float = 0.0, bandwidth: float = math.inf, between: Sequence[Sequence[int]] | None = None
) -> SlowLinks:
    """Slow links: `with kit.link(latency=1e-3): ...` holds real messages back, and every trace says so.

    latency: seconds a message takes beside its bytes. bandwidth: bytes per second. between: groups of ranks ('nodes'):
    only what goes from one group to another is slowed; left out, every link is. In force for runs that begin inside
    `with`, for those of `kit.options(link=...)`, or from `.on()` to `.off()`. ValueError for what cannot be.
    """
    from kit.run import current
    from kit.run.slow_links import SlowLinks

    return SlowLinks(latency, bandwidth, between, current.runner)


def load(path: str | Path) -> Replay:
    """Opens a session's trace that `session.trace.save(path)` wrote: back, forward, seek and panel, without any ranks.

    ValueError for a file of another version or a broken one, and for a trace that was recorded, not stepped, which has
    no positions to go through: `kit.Trace.load(path)` reads it.
    """
    from kit.run.cursor import Replay

    return Replay.load(path)


def compare(runs: Mapping[str, Recording]) -> Comparison:
    """Several runs side by side: a table of what was sent, waited for and held; `plot()` draws their memory.

    runs: name -> recording. ValueError without any.
    """

    from kit.run.results import Comparison

    return Comparison(runs)


def check(function: Callable[..., Any], *, seed: int | None = None, limit: float | None = 60.0) -> Verdict:
    """Checks a learner's answer on the cluster of this kernel, which is started when there is none.

    function: marked with `@exercise("id")`. seed: repeats the inputs of an earlier check; drawn fresh when left out.
    limit: seconds that one run of it may take before the check ends with who ran or waited, and where. None: no end.
    Returns a Verdict: not attempted, failed with the first sentence that is not fulfilled, or passed; what
    the learner's code raises becomes such a sentence. Where recordings stand in for ranks it is not attempted, and says
    why. Raises ValueError for a function that is no exercise.
    """
    from kit.grade import checker
    from kit.run import current
    from kit.run.errors import RanksHeld

    runner = current.runner()
    if runner.no_ranks_because:
        return checker.check_without_ranks(function, runner.no_ranks_because)
    if runner.held_by:
        raise RanksHeld(runner.held_by)
    runner.reset()  # what an earlier run left on the ranks, a patched function for one, must not decide
    return checker.check(function, runner_of(runner, limit), runner.size, seed)


def runner_of(runner: Runner, limit: float | None) -> Callable[..., tuple[list[Any], Trace]]:
    """How a check runs a function: on the first `world` ranks, or on more than there are, as threads."""
    from kit.probe.shipping import PerRank
    from kit.run.call import Call
    from kit.run.runner import RunOptions

    def run(function: Callable[..., Any], world: int, arguments: Sequence[tuple[Any, ...]]) -> tuple[list[Any], Trace]:
        many = world > runner.size
        options = RunOptions(ranks=world, threads=True) if many else RunOptions(ranks=world, limit=limit)
        columns = tuple(PerRank(column) for column in zip(*arguments, strict=True))
        recording = runner.run(Call(function, columns), options, quiet=True)
        return recording.results, recording.trace

    return run
