"""The panel of a recorded run: who sent how much, when, and, when it failed, why."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import ipywidgets as widgets

from kit.panels.areas import about_rows, area, header_html
from kit.panels.embed import Prediction, TimePicture
from kit.panels.page import Ear, foothold, panel_styles
from kit.panels.pages import record_page, traffic_area
from kit.panels.still import Still
from kit.views import traffic_words, words_html, words_text

if TYPE_CHECKING:
    from kit.trace.facts import Trace


class RecordPanel(widgets.VBox):
    """Traffic bars and time by rank of a trace, and a sentence per rank. `text()` reads it without a browser."""

    def __init__(
        self, trace: Trace, predicted: Trace | Callable[[Trace], Trace] | None = None, about: str = ""
    ) -> None:
        self.trace = trace
        self.about = about
        self._predicted = Prediction(predicted)
        self._time = TimePicture(self._predicted)
        self._time.paint(trace, None)
        self._ear = Ear(self._time.heard)
        header, traffic, words = area("header"), area("traffic"), area("words")
        header.remove_class("lsp-area")
        header.value = header_html(trace, self._where())
        traffic.value = traffic_area(trace)
        two = widgets.Box([traffic, self._time.widget])
        two.add_class("lsp-two")
        parts: list[widgets.Widget] = [header, *about_rows(about), two]
        if trace.positions:
            words.value = words_html(trace, len(trace.positions) - 1)
            parts.append(words)
        self._still = Still(self._page, self.text, panel_styles)
        foot = foothold(f"Recording of {trace.meta.function}", self._still.hiding_style)
        super().__init__([foot, self._ear.widget, *parts])
        for style in ("ls", "lsp-frame", "lsp-panel", "lsp-record"):
            self.add_class(style)

    def text(self) -> str:
        """All that the panel says, as plain text."""
        words = words_text(self.trace, len(self.trace.positions) - 1) if self.trace.positions else ""
        head = " · ".join((self.trace.meta.function, *self._where()))
        return "\n".join(part for part in (head, self.about, traffic_words(self.trace), words) if part)

    def _where(self) -> tuple[str, ...]:
        failed = bool(self.trace.positions) and any(s.phase != "finished" for s in self.trace.positions[-1])
        return ("recorded at full speed", "not every rank finished") if failed else ("recorded at full speed",)

    def _page(self) -> tuple[str, int]:
        header = header_html(self.trace, self._where())
        return record_page(self.trace, self._predicted.of(self.trace), header, self.about)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None, **more: Any) -> dict[str, Any]:
        bundle = super()._repr_mimebundle_(include=include, exclude=exclude, **more)
        return {**(bundle or {}), **self._still.bundle()}

    def _ipython_display_(self, **_: Any) -> None:
        self._still.show(super()._repr_mimebundle_() or {})
