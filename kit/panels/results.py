"""Which panel and which plot show a result: what `result.panel()` and `result.plot()` find."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kit import shown
from kit.cost.sweep import Sweep
from kit.panels.areas import header_html
from kit.panels.figure import FigurePanel
from kit.panels.stepping import SteppingPanel
from kit.plot.bandwidth import bandwidth_figure
from kit.plot.memory import memory_figure
from kit.plot.timeline import timeline_figure
from kit.plot.traffic import traffic_figure
from kit.plot.words import words_html, words_text
from kit.run.cursor import TraceCursor
from kit.run.errors import RankError
from kit.run.results import Comparison, Formula, MemoryRecording, Recording
from kit.trace.trace import Trace

if TYPE_CHECKING:
    from kit.cost.sweep import Pair
    from kit.trace.memory import Holdings

shown.panel.of(TraceCursor)(SteppingPanel)


@shown.panel.of(Recording, RankError, Trace)
def record_panel(
    recording: Recording | RankError | Trace, predicted: Trace | Callable[[Trace], Trace] | None = None
) -> FigurePanel:
    """Traffic and time by rank of a recording, of a trace, or of the `RankError` a failed run raised."""
    trace, about = (recording, "") if isinstance(recording, Trace) else (recording.trace, recording.about)
    failed = bool(trace.positions) and any(state.phase != "finished" for state in trace.positions[-1])
    where = ("recorded at full speed", *(["not every rank finished"] if failed else []))
    traffic = traffic_figure(trace)
    time = timeline_figure(trace, None, predicted(trace) if callable(predicted) else predicted)
    said = (" · ".join((trace.meta.function, *where)), about, traffic.words)
    return FigurePanel(
        f"Recording of {trace.meta.function}",
        traffic,
        time,
        header=header_html(trace, where),
        about=about,
        below=words_html(trace, -1) if trace.positions else "",
        words="\n".join(part for part in (*said, words_text(trace, -1) if trace.positions else "") if part),
    )


@shown.plot.of(TraceCursor)
def _time_so_far(session: TraceCursor) -> FigurePanel:
    return _time(session.trace, session.position, session.about)


@shown.plot.of(Recording)
def _time_of(recording: Recording) -> FigurePanel:
    return _time(recording.trace, None, recording.about)


def _time(trace: Trace, position: int | None, about: str) -> FigurePanel:
    return FigurePanel("Time by rank", timeline_figure(trace, position), about=about)


@shown.plot.of(MemoryRecording)
def _memory(run: MemoryRecording, formula: Formula | None = None) -> FigurePanel:
    return memory_panel(run.holdings, formula, run.about)


@shown.plot.of(Comparison)
def _memory_of_each(compared: Comparison, formula: Mapping[str, Any] | None = None) -> FigurePanel:
    held = {name: run.holdings for name, run in compared.accounted.items()}
    return memory_panel(held, formula, compared.about)


def memory_panel(measured: Holdings | Mapping[str, Holdings], formula: Any = None, about: str = "") -> FigurePanel:
    """What ranks held, as stacked areas; formula: bytes, or name -> bytes, by run where there are several."""
    return FigurePanel("Memory by rank", memory_figure(measured, formula), about=about)


@shown.plot.of(Sweep)
def bandwidth_panel(
    sweep: Sweep, operations: str | Sequence[str] | None = None, link: Pair | None = None
) -> FigurePanel:
    """Time and bus bandwidth over size for each operation of a sweep; `link` draws a prediction over them, dashed."""
    return FigurePanel(
        f"Bandwidth on {sweep.ranks} ranks", bandwidth_figure(sweep, operations, link), about=sweep.about
    )
