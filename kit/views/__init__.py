"""Pictures of a trace: pure functions of (trace, position), without widgets and without a cluster.

HTML and SVG need `stylesheet()` on the page once; Bokeh and mermaid-py are imported by the functions that use them.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_HOMES = {
    "messages": ("messages_caption", "messages_height", "messages_html", "messages_svg", "messages_words"),
    "source": ("source_height", "source_html"),
    "style": ("stylesheet",),
    "tensors": ("tensor_names", "tensors_height", "tensors_html"),
    "bandwidth": ("bandwidth_words",),
    "sweep_bokeh": ("bandwidth_plot",),
    "scaling": ("scaling_words",),
    "curve_bokeh": ("scaling_plot",),
    "curve_svg": ("scaling_html", "scaling_picture", "scaling_svg"),
    "losses": ("loss_picture",),
    "sweep_svg": ("bandwidth_html", "bandwidth_svg"),
    "holdings": ("holdings_words",),
    "memory_bokeh": ("holdings_plot",),
    "memory_svg": ("holdings_html", "holdings_svg"),
    "stages_svg": ("stages_height", "stages_html", "stages_words"),
    "overlap": ("overlap_words",),
    "lanes_bokeh": ("overlap_plot",),
    "lanes_svg": ("overlap_html", "overlap_svg"),
    "bars": ("timeline_words",),
    "charts": ("COLLECTIVES", "collective_chart"),
    "diagram": ("Diagram",),
    "flow": ("flowchart",),
    "time_bokeh": ("timeline", "timeline_data", "update_timeline"),
    "time_svg": ("timeline_html", "timeline_svg"),
    "training": ("TRAINING", "step_in_hand", "training_chart"),
    "traffic": ("traffic_bars", "traffic_html", "traffic_svg", "traffic_words"),
    "words": ("words_html", "words_text"),
}
_WHERE = {name: module for module, names in _HOMES.items() for name in names}

__all__ = sorted(_WHERE)


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"kit.views has no {name!r}")
    return getattr(import_module(f"kit.views.{_WHERE[name]}"), name)


def __dir__() -> list[str]:
    return __all__
