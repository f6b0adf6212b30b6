"""A schedule on real ranks: refused where it cannot run, and else measured and compared with what was expected of it.

As handed out, the stages are paced: a small layer each, and sleep in the place of computing, so that four ranks on two
processors take what the schedule says and not what the processors can. Messages, values and gradients are real.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from kit import shown
from kit.cost.pipeline import Timeline, measured, simulated
from kit.plan.flaws import flaws
from kit.run.errors import RankError
from kit.run.options import Options
from kit.topics.pipeline.work import Stages, Work

if TYPE_CHECKING:
    from kit.plan.schedule import Schedule
    from kit.run.results import Recording
    from kit.run.runner import Runner
    from kit.run.slow_links import SlowLinks

shown.look_in("kit.topics.pipeline.pictures")


@dataclass(frozen=True)
class Run:
    """A schedule that has run: `timeline` was measured, `predicted` is what its work and link made one expect, and
    `replayed` what waiting makes of the times that its actions really took. `wrong` says what differs from a run
    without a pipeline; '' where nothing does.
    """

    schedule: Schedule
    work: Stages
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
        return self.work.wrong(self.schedule, self.recording.results)

    @property
    def loss(self) -> float:
        """The mean over all micro-batches."""
        losses = [float(loss) for own, _ in self.recording.results for loss in own.values()]
        return sum(losses) / len(losses)

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
            f"{self.schedule.name}, {self.schedule.ranks} ranks, {batches} ({self.work.about}{links})\n"
            f"predicted {expected.seconds * 1e3:.0f} ms, idle {expected.idle_share:.1%} of the time\n"
            f"measured {ran.seconds * 1e3:.0f} ms, idle {ran.idle_share:.1%} of the time,"
            f" an overhead of {ran.overhead:.1%}\n"
            f"activations held at most, by rank: {held}\nloss {self.loss:.4f}; {same}"
        )

    def __repr__(self) -> str:
        return str(self)


def run(
    schedule: Schedule,
    work: Stages | None = None,
    *,
    steps: int = 2,
    link: SlowLinks | None = None,
    force: bool = False,
    runner: Runner | None = None,
) -> Run:
    """Runs a schedule on as many ranks as it has, and measures its last step.

    work: what the stages do: they sleep, or compute a GPT. steps: the first one warms up. link: slower links,
    `kit.link(...)`. force: also where its validator says that it cannot run, to see who waits for whom. runner: whose
    ranks; None: this kernel's. ValueError for a schedule that cannot run, with the reason, and for another number of
    ranks than there are; RankError for what fails on them, where it was forced to run with the actions that cannot be
    done.
    """
    found = flaws(schedule)
    if found and not force:
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        raise ValueError(f"this schedule cannot run: {found[0].sentence}{more}")
    if not steps >= 1:
        raise ValueError(f"a run has 1 step or more, not {steps!r}")
    work = work or Work()
    how = Options(ranks=schedule.ranks, link=link, cluster=runner)
    function, arguments = work.task(schedule, steps)
    try:
        recording = how.record(function, *arguments)
    except RankError as error:
        if not found:
            raise
        rows = [f"rank {flaw.rank}, action {flaw.position}: {flaw.sentence}" for flaw in found if flaw.rank is not None]
        ran = re.sub(r" \(line \d+\)", "", str(error))  # a line of the runtime: who waits stands in a row
        raise RankError("\n".join([ran, *rows]), error.trace, error.about) from error
    return Run(schedule, work, link, recording)
