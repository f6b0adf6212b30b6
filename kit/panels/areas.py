"""The pictures of a stepping panel, each in its fixed place: source, tensors, messages or flow, time, words."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

import ipywidgets as widgets

from kit.panels.embed import FlowChart, Prediction, TimePicture
from kit.panels.transport import button
from kit.views import messages_html, source_html, tensor_names, tensors_html, words_html
from kit.views.markup import escape
from kit.views.variables import default_name

if TYPE_CHECKING:
    from kit.trace.facts import Trace

FOLLOW = "follow the code"


def header_html(trace: Trace, where: Collection[str]) -> str:
    """'ring_all_reduce · 4 ranks · gloo · cpu · x: 8 × float32' and, at the right, where the panel stands."""
    meta = trace.meta
    devices = ", ".join(dict.fromkeys(device.partition(":")[0] for device in meta.devices))
    ranks = "1 rank" if meta.world == 1 else f"{meta.world} ranks"
    quiet = " · ".join(part for part in (ranks, meta.backend, devices, meta.arguments.replace(" x ", " × ")) if part)
    notes = "".join(f" <span>· {escape(note)}</span>" for note in meta.notes)
    right = " · ".join(where)
    return (
        f'<div title="{escape(meta.function)} · {escape(quiet)}"><b>{escape(meta.function)}</b>'
        f" <span>· {escape(quiet)}</span>{notes}</div>"
        f'<span title="{escape(right)}">{escape(right)}</span>'
    )


class Areas:
    """Paints a position into the areas. `chosen(name)` is called when the reader picks a variable (None: follow)."""

    def __init__(self, predicted: Prediction, chosen: Callable[[str | None], object]) -> None:
        self._source, self._tensors, self._messages, self._words = (
            area(name) for name in ("source", "tensors", "messages", "words")
        )
        self._time = TimePicture(predicted)
        self._flow = FlowChart()
        self._flow_shown = False
        self.name: str | None = None
        self._chosen = chosen
        self._painting = False
        self._variables = widgets.Dropdown(options=[(FOLLOW, "")])  # None would leave the box blank
        self._variables.add_class("lsp-select")
        self._variables.observe(self._picked, "value")
        self._swap = button("Flow chart", "The shape of this operation", "swap", self._swapped)

    def rows(self) -> tuple[widgets.Widget, ...]:
        tensors = widgets.Box([self._tensors, self._variables])
        tensors.add_class("lsp-cell")
        tensors.add_class("lsp-picked")
        moving = widgets.Box([self._messages, self._flow.widget, self._swap])
        moving.add_class("lsp-cell")
        upper, lower = widgets.Box([self._source, tensors]), widgets.Box([moving, self._time.widget])
        for two in (upper, lower):
            two.add_class("lsp-two")
        return upper, lower, self._words

    def select(self, name: str | None) -> None:
        self.name = name

    def show(self, what: str) -> None:
        if what not in ("messages", "flow"):
            raise ValueError(f"a panel shows 'messages' or 'flow' there, not {what!r}")
        self._flow_shown = what == "flow"

    def heard(self, page: dict[str, Any]) -> None:
        """What the page said of itself: see `kit.panels.page.Ear`."""
        self._time.heard(page)

    def paint(self, trace: Trace, position: int, held: Collection[int]) -> None:
        self._source.value = source_html(trace, position, held=held)
        self._paint_variables(trace, position)
        self._tensors.value = tensors_html(trace, position, self.name)
        self._words.value = words_html(trace, position, held=held)
        self._time.paint(trace, position)
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


def about_rows(sentence: str) -> list[widgets.Widget]:
    """The row below a header that says that this is a recording; no row without a sentence."""
    row = area("about")
    row.value = _about_html(sentence)
    return [row] if sentence else []


def about_area(sentence: str) -> str:
    """The same row as plain HTML."""
    return f'<div class="lsp-area lsp-about">{_about_html(sentence)}</div>' if sentence else ""


def about_height(sentence: str) -> int:
    """px, without the edge below; words wrap at 110 characters or later."""
    return 18 * -(-len(sentence) // 110) + 10 if sentence else 0


def _about_html(sentence: str) -> str:
    return f'<div role="note" style="height:{about_height(sentence)}px">{escape(sentence)}</div>'


def area(name: str) -> widgets.HTML:
    """An empty place for a view, found by the class `lsp-NAME`."""
    place = widgets.HTML()
    place.add_class("lsp-area")
    place.add_class(f"lsp-{name}")
    return place
