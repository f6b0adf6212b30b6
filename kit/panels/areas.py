"""The pictures of a stepping panel, each in its fixed place: source, tensors, messages or flow, time, words."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

import ipywidgets as widgets

from kit.panels.embed import FigureView, FlowChart, Prediction
from kit.panels.panel import area, row, row_html
from kit.panels.transport import button
from kit.plot.markup import escape
from kit.plot.messages import messages_height, messages_html
from kit.plot.render_svg import html
from kit.plot.source import source_height, source_html
from kit.plot.tensors import tensor_names, tensors_height, tensors_html
from kit.plot.timeline import timeline_figure
from kit.plot.variables import default_name
from kit.plot.words import words_html
from kit.trace.text import counted

if TYPE_CHECKING:
    from kit.panels.page_bridge import PageFacts
    from kit.plot.figure import Figure
    from kit.trace.trace import Trace

    Moment = Callable[[Trace, int], Figure]

FOLLOW = "follow the code"


def header_html(trace: Trace, where: Collection[str]) -> str:
    """'ring_all_reduce · 4 ranks · gloo · cpu · x: 8 × float32' and, at the right, where the panel stands."""
    meta = trace.meta
    devices = ", ".join(dict.fromkeys(device.partition(":")[0] for device in meta.devices))
    ranks = counted(meta.world, "rank")
    quiet = " · ".join(part for part in (ranks, meta.backend, devices, meta.arguments.replace(" x ", " × ")) if part)
    notes = "".join(f" <span>· {escape(note)}</span>" for note in meta.notes)
    right = " · ".join(where)
    return (
        f'<div title="{escape(meta.function)} · {escape(quiet)}"><b>{escape(meta.function)}</b>'
        f" <span>· {escape(quiet)}</span>{notes}</div>"
        f'<span title="{escape(right)}">{escape(right)}</span>'
    )


def header_area(inner: str) -> widgets.HTML:
    """The line on top of a panel."""
    return area("header", inner)


def header_area_html(inner: str) -> str:
    """The same as plain HTML."""
    return f'<div class="lsp-header"><div class="widget-html-content">{inner}</div></div>'


class Areas:
    """Paints a position into the areas. `chosen(name)` is called when the reader picks a variable (None: follow).

    moment: a topic's own picture of a position, of one size at all of them; it stands above the others.
    """

    def __init__(self, predicted: Prediction, chosen: Callable[[str | None], object], moment: Moment | None) -> None:
        self._source, self._tensors, self._messages, self._words = (
            area(name) for name in ("source", "tensors", "messages", "words")
        )
        self._predicted = predicted
        self._time = FigureView("time")
        self._moment = moment
        self._own = FigureView("moment")
        self._flow = FlowChart()
        self._flow_shown = False
        self.name: str | None = None
        self._chosen = chosen
        self._painting = False
        self._variables = widgets.Dropdown(options=[(FOLLOW, "")])  # None would leave the box blank
        self._variables.add_class("lsp-select")
        self._variables.observe(self._picked, "value")
        self._swap = button("Flow chart", "The shape of this operation", "swap", self._swapped)

        self._own.widget.add_class("lsp-alone")

    def rows(self) -> tuple[widgets.Widget, ...]:
        tensors = row(self._tensors, self._variables, name="cell")
        tensors.add_class("lsp-picked")
        moving = row(self._messages, self._flow.widget, self._swap, name="cell")
        own = (self._own.widget,) if self._moment else ()
        return *own, row(self._source, tensors), row(moving, self._time.widget), self._words

    def inside(self, trace: Trace, position: int, held: Collection[int]) -> tuple[str, int]:
        """The same pictures as plain HTML, messages in the place of the flow, and a height that is enough for them."""
        own = self._moment(trace, position) if self._moment else None
        page = (
            (f'<div class="lsp-area lsp-alone">{html(own)}</div>' if own else "")
            + row_html(source_html(trace, position, held=held), tensors_html(trace, position, self.name))
            + row_html(
                messages_html(trace, position), html(timeline_figure(trace, position, self._predicted.of(trace)))
            )
            + f'<div class="lsp-words">{words_html(trace, position, held=held)}</div>'
        )
        world = trace.meta.world
        pictures = max(source_height(trace), tensors_height(world)) + messages_height(world)
        return page, pictures + 22 * world + 180 + (own.whole + 12 if own else 0)

    def select(self, name: str | None) -> None:
        self.name = name

    def show(self, what: str) -> None:
        if what not in ("messages", "flow"):
            raise ValueError(f"a panel shows 'messages' or 'flow' there, not {what!r}")
        self._flow_shown = what == "flow"

    def heard(self, page: PageFacts) -> None:
        """What the page said of itself."""
        self._time.heard(page)
        self._own.heard(page)

    def paint(self, trace: Trace, position: int, held: Collection[int]) -> None:
        self._source.value = source_html(trace, position, held=held)
        self._paint_variables(trace, position)
        self._tensors.value = tensors_html(trace, position, self.name)
        self._words.value = words_html(trace, position, held=held)
        self._time.show(timeline_figure(trace, position, self._predicted.of(trace)))
        if self._moment:
            self._own.show(self._moment(trace, position))
        if self._flow_shown:
            self._flow.paint(trace, position)
        else:
            self._messages.value = messages_html(trace, position)
        self._messages.layout.visibility = "hidden" if self._flow_shown else "visible"
        self._flow.widget.layout.visibility = "visible" if self._flow_shown else "hidden"
        self._swap.description = "Messages" if self._flow_shown else "Flow chart"

    def _paint_variables(self, trace: Trace, position: int) -> None:
        shown = self.name if self.name is not None else default_name(trace, position)
        names = list(tensor_names(trace, position))
        if shown is not None and shown not in names:
            names.insert(0, shown)
        options = ((FOLLOW, ""), *((name, name) for name in names))
        self._painting = True
        try:
            if self._variables.options != options:
                self._variables.options = options
            self._variables.value = shown or ""
        finally:
            self._painting = False

    def _picked(self, change: dict[str, Any]) -> None:
        if not self._painting:
            self._chosen(change["new"] or None)

    def _swapped(self) -> None:
        self._flow_shown = not self._flow_shown
        self._chosen(self.name)
