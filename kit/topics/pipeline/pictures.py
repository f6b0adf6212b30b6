"""A pipeline's timelines as a panel."""

from __future__ import annotations

from collections.abc import Mapping

from kit import shown
from kit.cost.pipeline import Timeline
from kit.panels.figure import FigurePanel
from kit.plot.pipeline import pipeline_figure
from kit.topics.pipeline.running import Run


def plot(what: Timeline | Mapping[str, Timeline], *, seconds: bool = False, about: str = "") -> FigurePanel:
    """What every rank computes when, and how many activations it holds meanwhile.

    what: a timeline, or name -> timeline, above each other on one axis. seconds: the times are seconds; else units, in
    each of which F, I or W is done once. ValueError for timelines of different numbers of ranks.
    """
    lines = {"time": what} if isinstance(what, Timeline) else what
    return FigurePanel("Pipeline", pipeline_figure(lines, "s" if seconds else "units"), about=about)


@shown.plot.of(Run)
def _run(run: Run) -> FigurePanel:
    return plot({"predicted": run.predicted, "measured": run.timeline}, seconds=True, about=run.about)
