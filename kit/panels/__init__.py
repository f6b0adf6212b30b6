"""Panels: a session or a recording as a widget, driven by hand or by a script alike.

Each is made here, so that nothing of ipywidgets is loaded before someone asks for a panel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kit.cost.sweep import Pair, Sweep
    from kit.panels.bandwidth import BandwidthPanel
    from kit.panels.motions import Face
    from kit.panels.recorded import RecordPanel
    from kit.panels.stepper import Stepper
    from kit.trace.facts import Trace


def stepping_panel(session: Face, predicted: Trace | Callable[[Trace], Trace] | None = None) -> Stepper:
    """Transport, hold switches, source, tensors, messages, time and words of a session, live or replayed."""
    from kit.panels.stepper import Stepper

    return Stepper(session, predicted)


def record_panel(recording: Any, predicted: Trace | Callable[[Trace], Trace] | None = None) -> RecordPanel:
    """Traffic and time by rank of a recording, of a trace, or of the `RankError` a failed run raised."""
    from kit.panels.recorded import RecordPanel

    return RecordPanel(getattr(recording, "trace", recording), predicted)


def bandwidth_panel(
    sweep: Sweep, operations: str | Sequence[str] | None = None, link: Pair | None = None
) -> BandwidthPanel:
    """Time and bus bandwidth over size for each operation of a sweep; `link` draws a prediction over them, dashed."""
    from kit.panels.bandwidth import BandwidthPanel

    return BandwidthPanel(sweep, operations, link)
