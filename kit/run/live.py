"""Live ranks: a cluster on which functions are stepped, recorded and timed."""

from __future__ import annotations

from contextlib import nullcontext
from functools import cached_property
from typing import TYPE_CHECKING

from kit.clusters.cluster import Cluster
from kit.run.runner import Runner

if TYPE_CHECKING:
    from typing import Self

    from kit.cost.sweep import Sweep
    from kit.run.call import Call
    from kit.run.results import Recording
    from kit.run.runner import RunOptions, SweepPlan
    from kit.run.scheduler import RunScheduler
    from kit.run.session import Session
    from kit.run.slow_links import SlowLinks


class LiveRunner(Cluster, Runner):
    """Real ranks behind this kernel. Use `kit.cluster(ranks=4)`, which starts one or joins the one there is.

    As a context manager it stops what it started: `with kit.cluster(2) as c: ...`.
    """

    @property
    def live(self) -> Self:
        return self

    @cached_property
    def scheduler(self) -> RunScheduler:
        """Who begins and ends the runs on these ranks."""
        from kit.run.scheduler import RunScheduler

        return RunScheduler(self)

    def open_session(self, call: Call, options: RunOptions) -> Session:
        from kit.run.session import Session

        return Session(self.ensure_running().scheduler, call, options.link)

    def run(self, call: Call, options: RunOptions, quiet: bool = False) -> Recording:
        from kit.run.record import run
        from kit.run.threads import ThreadRunner

        if options.threads:
            return ThreadRunner(self, options.world(self.size), options.patience).run(call, options, quiet)
        account = options.variables() if options.memory else None
        with options.link.of(self) if options.link else nullcontext():
            return run(self.ensure_running().scheduler, call, options.ranks, not quiet, account, options.limit)

    def sweep(self, plan: SweepPlan) -> Sweep:
        from kit.run.bandwidth import sweep

        return sweep(self.scheduler, plan)

    @property
    def held_by(self) -> str:  # type: ignore[override]
        return self.scheduler.held_by

    @property
    def links(self) -> SlowLinks | None:
        return self.scheduler.links

    @links.setter
    def links(self, slow: SlowLinks | None) -> None:
        self.scheduler.links = slow
