"""Panels: a session or a recording as a widget, driven by hand or by a script alike.

Each is made here, so that nothing of ipywidgets is loaded before someone asks for a panel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kit.cost.sweep import Pair, Sweep
    from kit.panels.figure import FigurePanel
    from kit.panels.motions import SessionView
    from kit.panels.stepping import SteppingPanel
    from kit.trace.memory import Holdings
    from kit.trace.trace import Trace


def stepping_panel(session: SessionView, predicted: Trace | Callable[[Trace], Trace] | None = None) -> SteppingPanel:
    """Transport, hold switches, source, tensors, messages, time and words of a session, live or replayed."""
    from kit.panels.stepping import SteppingPanel

    return SteppingPanel(session, predicted)


def record_panel(recording: Any, predicted: Trace | Callable[[Trace], Trace] | None = None) -> FigurePanel:
    """Traffic and time by rank of a recording, of a trace, or of the `RankError` a failed run raised."""
    from kit.panels.areas import header_html
    from kit.panels.figure import FigurePanel
    from kit.plot import timeline_figure, traffic_figure, words_html, words_text

    trace: Trace = getattr(recording, "trace", recording)
    about = getattr(recording, "about", "")
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


def bandwidth_panel(
    sweep: Sweep, operations: str | Sequence[str] | None = None, link: Pair | None = None
) -> FigurePanel:
    """Time and bus bandwidth over size for each operation of a sweep; `link` draws a prediction over them, dashed."""
    from kit.panels.figure import FigurePanel
    from kit.plot import bandwidth_figure

    figure = bandwidth_figure(sweep, operations, link)
    return FigurePanel(f"Bandwidth on {sweep.ranks} ranks", figure, about=str(getattr(sweep, "about", "")))


def memory_panel(measured: Holdings | Mapping[str, Holdings], formula: Any = None, about: str = "") -> FigurePanel:
    """What ranks held, as stacked areas; formula: bytes, or name -> bytes, by run where there are several."""
    from kit.panels.figure import FigurePanel
    from kit.plot import memory_figure

    return FigurePanel("Memory by rank", memory_figure(measured, formula), about=about)
