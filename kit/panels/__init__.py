"""Panels: a session or a recording as a widget, driven by hand or by a script alike.

Each is made here, so that nothing of ipywidgets is loaded before someone asks for a panel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kit.cost.sweep import Pair, Sweep
    from kit.panels.bandwidth import BandwidthPanel
    from kit.panels.drawn import DrawnPanel
    from kit.panels.motions import Face
    from kit.panels.recorded import RecordPanel
    from kit.panels.stages import StagePanel
    from kit.panels.stepper import Stepper
    from kit.trace.facts import Trace
    from kit.trace.holdings import Holdings


def stepping_panel(session: Face, predicted: Trace | Callable[[Trace], Trace] | None = None) -> Stepper:
    """Transport, hold switches, source, tensors, messages, time and words of a session, live or replayed."""
    from kit.panels.stepper import Stepper

    return Stepper(session, predicted)


def record_panel(recording: Any, predicted: Trace | Callable[[Trace], Trace] | None = None) -> RecordPanel:
    """Traffic and time by rank of a recording, of a trace, or of the `RankError` a failed run raised."""
    from kit.panels.recorded import RecordPanel

    return RecordPanel(getattr(recording, "trace", recording), predicted, getattr(recording, "about", ""))


def bandwidth_panel(
    sweep: Sweep, operations: str | Sequence[str] | None = None, link: Pair | None = None
) -> BandwidthPanel:
    """Time and bus bandwidth over size for each operation of a sweep; `link` draws a prediction over them, dashed."""
    from kit.panels.bandwidth import BandwidthPanel

    return BandwidthPanel(sweep, operations, link)


def holdings_panel(measured: Holdings | Mapping[str, Holdings], formula: Any = None, about: str = "") -> DrawnPanel:
    """What ranks held, as stacked areas; formula: bytes, or name -> bytes, by run where there are several."""
    from kit.panels.drawn import DrawnPanel
    from kit.views import holdings_html, holdings_plot, holdings_words

    return DrawnPanel(
        "Memory by rank",
        lambda: holdings_html(measured, formula),
        lambda dark: holdings_plot(measured, formula, dark=dark),
        lambda: holdings_words(measured, formula),
        about,
    )


def stages_panel(runs: Mapping[int, Any], parameters: int, precision: str = "fp32") -> StagePanel:
    """A switch between stages of ZeRO; runs: stage -> what `kit.memory` returned for it, or its trace."""
    from kit.panels.stages import StagePanel

    traces = {stage: getattr(run, "trace", run) for stage, run in runs.items()}
    about = next((run.about for run in runs.values() if getattr(run, "about", "")), "")
    return StagePanel(traces, parameters, precision, about)


def overlap_panel(measured: Any, step: int = -1, about: str = "") -> DrawnPanel:
    """Computing over communication in a training step: a trace or an overlap, or name -> that for several settings."""
    from kit.panels.drawn import DrawnPanel
    from kit.views import overlap_html, overlap_plot, overlap_words

    return DrawnPanel(
        "Overlap of computing and communication",
        lambda: overlap_html(measured, step),
        lambda dark: overlap_plot(measured, step, dark=dark),
        lambda: overlap_words(measured, step),
        about,
    )
