"""A schedule on real ranks: refused where it cannot run, and else measured and compared with what was expected of it.

The stages are paced: a small layer each, and sleep in the place of computing, so that four ranks on two processors take
what the schedule says and not what the processors can. Messages, values and gradients are real.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from kit import shown
from kit.cost.pipeline import Timeline, Times, measured, simulated
from kit.plan.flaws import flaws
from kit.run.errors import RankError
from kit.run.options import Options

if TYPE_CHECKING:
    from kit.plan.schedule import Schedule
    from kit.run.results import Recording
    from kit.run.runner import Runner
    from kit.run.slow_links import SlowLinks

shown.look_in("kit.topics.pipeline.pictures")

FLOAT = 4  # bytes
SLEEPS = "stages sleep in the place of computing"


@dataclass(frozen=True)
class Work:
    """Seconds of an action at a stage, which sleeps so long: F, I and W; a whole backward pass takes I and W.

    slow: stage -> how many times longer all of it takes there. width: of the small layer that a stage computes, C: a
    message is (8, C).
    """

    forward: float = 0.02
    input: float = 0.02
    weight: float = 0.02
    slow: Mapping[int, float] = field(default_factory=dict)
    width: int = 32

    def __post_init__(self) -> None:
        if not min(self.forward, self.input, self.weight, *self.slow.values()) >= 0:
            raise ValueError("an action takes 0 seconds or more")
        if not self.width >= 1:
            raise ValueError(f"a layer is 1 wide or more, not {self.width!r}")

    def seconds(self, stage: int) -> tuple[float, float, float]:
        longer = self.slow.get(stage, 1.0)
        return self.forward * longer, self.input * longer, self.weight * longer

    @property
    def nbytes(self) -> int:
        """Of what passes between two stages."""
        from kit.topics.pipeline.drives import BATCH

        return BATCH * self.width * FLOAT

    def times(self, schedule: Schedule, link: SlowLinks | None = None) -> Times:
        slow = {copy * schedule.stages + s: k for copy in range(schedule.copies) for s, k in self.slow.items()}
        times = Times(self.forward, self.input, self.weight, stages=slow)
        if link is None:
            return times
        message = 0.0 if math.isinf(link.bandwidth) else self.nbytes / link.bandwidth
        return replace(times, latency=link.latency, message=message, between=link.pairs)


@dataclass(frozen=True)
class Run:
    """A schedule that has run: `timeline` was measured, `predicted` is what its work and link made one expect, and
    `replayed` what waiting makes of the times that its actions really took. `wrong` says what differs from a run
    without a pipeline; '' where nothing does.
    """

    schedule: Schedule
    work: Work
    link: SlowLinks | None
    recording: Recording

    @property
    def about(self) -> str:
        return self.recording.about

    @cached_property
    def timeline(self) -> Timeline:
        return measured(self.schedule, self.recording.trace)

    @cached_property
    def predicted(self) -> Timeline:
        return simulated(self.schedule, self.work.times(self.schedule, self.link))

    @cached_property
    def replayed(self) -> Timeline:
        return simulated(self.schedule, self.timeline.times(self.work.times(self.schedule, self.link)))

    @cached_property
    def wrong(self) -> str:
        from kit.topics.pipeline import drives

        return drives.wrong(self.recording.results, self.schedule.stages, self.schedule.micro_batches, self.work.width)

    @property
    def right(self) -> bool:
        """Losses and gradients are those of a run without a pipeline."""
        return not self.wrong

    def plot(self) -> Any:
        """The schedule as it was expected above what was measured, on one axis."""
        return shown.plot(self)

    def __str__(self) -> str:
        ran, expected = self.timeline, self.predicted
        batches = f"{self.schedule.micro_batches} micro-batch{'es' * (self.schedule.micro_batches > 1)}"
        held = ", ".join(str(ran.most_held(rank)) for rank in range(self.schedule.ranks))
        same = "losses and gradients are those of a run without a pipeline" if self.right else self.wrong
        links = f"; {self.link!r}" if self.link is not None else ""
        return (
            f"{self.schedule.name}, {self.schedule.ranks} ranks, {batches} ({SLEEPS}{links})\n"
            f"predicted {expected.seconds * 1e3:.0f} ms, idle {expected.idle_share:.1%} of the time\n"
            f"measured {ran.seconds * 1e3:.0f} ms, idle {ran.idle_share:.1%} of the time,"
            f" an overhead of {ran.overhead:.1%}\n"
            f"activations held at most, by rank: {held}\n{same}"
        )

    def __repr__(self) -> str:
        return str(self)


def run(
    schedule: Schedule,
    work: Work | None = None,
    *,
    steps: int = 2,
    link: SlowLinks | None = None,
    force: bool = False,
    runner: Runner | None = None,
) -> Run:
    """Runs a schedule on as many ranks as it has, and measures its last step.

    steps: the first one warms up. link: slower links, `kit.link(...)`. force: also where its validator says that it
    cannot run, to see who waits for whom. runner: whose ranks; None: this kernel's. ValueError for a schedule that
    cannot run, with the reason, and for another number of ranks than there are; RankError for what fails on them, where
    it was forced to run with the actions that cannot be done.
    """
    from kit.topics.pipeline.drives import train

    found = flaws(schedule)
    if found and not force:
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        raise ValueError(f"this schedule cannot run: {found[0].sentence}{more}")
    if not steps >= 1:
        raise ValueError(f"a run has 1 step or more, not {steps!r}")
    work = work or Work()
    how = Options(ranks=schedule.ranks, link=link, cluster=runner)
    seconds = {stage: work.seconds(stage) for stage in range(schedule.stages)}
    try:
        recording = how.record(train, schedule.text(), schedule.stages, work.width, seconds, steps)
    except RankError as error:
        if not found:
            raise
        rows = [f"rank {flaw.rank}, action {flaw.position}: {flaw.sentence}" for flaw in found if flaw.rank is not None]
        ran = re.sub(r" \(line \d+\)", "", str(error))  # a line of the runtime: who waits stands in a row
        raise RankError("\n".join([ran, *rows]), error.trace, error.about) from error
    return Run(schedule, work, link, recording)
