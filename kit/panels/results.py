"""Which panel and which plot show a result: what `result.panel()` and `result.plot()` find."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kit import panels, plot, shown
from kit.cost.sweep import Sweep
from kit.run.comparison import Comparison
from kit.run.cursor import TraceCursor
from kit.run.errors import RankError
from kit.run.record import Formula, MemoryRecording, Recording
from kit.trace.trace import Trace

if TYPE_CHECKING:
    from kit.cost.sweep import Pair
    from kit.panels.figure import FigurePanel
    from kit.panels.stepping import SteppingPanel


@shown.panel_of(TraceCursor)
def _stepping(session: TraceCursor, predicted: Trace | Callable[[Trace], Trace] | None = None) -> SteppingPanel:
    return panels.stepping_panel(session, predicted)


@shown.panel_of(Recording, RankError, Trace)
def _recording(
    recording: Recording | RankError | Trace, predicted: Trace | Callable[[Trace], Trace] | None = None
) -> FigurePanel:
    return panels.record_panel(recording, predicted)


@shown.plot_of(TraceCursor)
def _time_so_far(session: TraceCursor) -> FigurePanel:
    return _time(session.trace, session.position, session.about)


@shown.plot_of(Recording)
def _time_of(recording: Recording) -> FigurePanel:
    return _time(recording.trace, None, recording.about)


@shown.plot_of(MemoryRecording)
def _memory(run: MemoryRecording, formula: Formula | None = None) -> FigurePanel:
    return panels.memory_panel(run.holdings, formula, run.about)


@shown.plot_of(Comparison)
def _memory_of_each(compared: Comparison, formula: Mapping[str, Any] | None = None) -> FigurePanel:
    held = {name: run.holdings for name, run in compared.accounted.items()}
    return panels.memory_panel(held, formula, compared.about)


@shown.plot_of(Sweep)
def _bandwidth(sweep: Sweep, operations: str | Sequence[str] | None = None, link: Pair | None = None) -> FigurePanel:
    return panels.bandwidth_panel(sweep, operations, link)


def _time(trace: Trace, position: int | None, about: str) -> FigurePanel:
    from kit.panels.figure import FigurePanel

    return FigurePanel("Time by rank", plot.timeline_figure(trace, position), about=about)
