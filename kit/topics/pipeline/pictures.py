"""A pipeline's timelines as a panel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kit.cost.pipeline import Timeline
from kit.panels.figure import FigurePanel
from kit.plot.pipeline import pipeline_figure

if TYPE_CHECKING:
    from kit.topics.pipeline.running import Run


def plot(
    what: Timeline | Run | Mapping[str, Timeline], *, seconds: bool = False, about: str = "", name: str = "Pipeline"
) -> FigurePanel:
    """What every rank computes when, and how many activations it holds meanwhile.

    what: a timeline, a run, or name -> timeline, above each other on one axis. seconds: the times are seconds; else
    units, in each of which F, I or W is done once. ValueError for timelines of different numbers of ranks.
    """
    from kit.topics.pipeline.running import Run

    if isinstance(what, Run):
        return plot({"predicted": what.predicted, "measured": what.timeline}, seconds=True, about=what.about)
    lines = {"time": what} if isinstance(what, Timeline) else what
    return FigurePanel(name, pipeline_figure(lines, "s" if seconds else "units"), about=about)
