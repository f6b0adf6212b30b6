"""The schedule bench on the ranks of this kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kit.panels.bench import ScheduleBench, Target
from kit.plan.families import schedule as of_family
from kit.topics.pipeline.running import Run, run
from kit.topics.pipeline.work import Stages, Work

if TYPE_CHECKING:
    from kit.plan.schedule import Schedule
    from kit.run.runner import Runner
    from kit.run.slow_links import SlowLinks


def bench(
    begin: str | Schedule = "1F1B",
    *,
    ranks: int = 4,
    micro_batches: int = 8,
    idle: float | None = None,
    held: int | None = None,
    work: Stages | None = None,
    link: SlowLinks | None = None,
    runner: Runner | None = None,
) -> ScheduleBench:
    """A schedule to be dragged, edited or written, beginning with one of the literature or one that is given.

    idle, held: the target, a share of the time and activations on the rank that holds most. work, link, runner: how
    `.run()` runs it, as in `kit.topics.pipeline.run`; what is drawn takes the same times. ValueError for sizes that the
    schedule does not exist for.
    """
    made = of_family(begin, ranks, micro_batches) if isinstance(begin, str) else begin
    stages = work or Work()

    def on_ranks(schedule: Schedule) -> Run:
        return run(schedule, stages, link=link, runner=runner)

    return ScheduleBench(made, Target(idle, held), stages.times(made, link), "s", on_ranks)
