"""A panel of figures: SVG until the page can show Bokeh, the same words, a still picture; and one with a switch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

import ipywidgets as widgets

from kit.panels.areas import header_area, header_area_html
from kit.panels.embed import FigureView
from kit.panels.panel import Panel, about_html, about_rows, area, row, row_html
from kit.panels.transport import button
from kit.plot.render_svg import html

if TYPE_CHECKING:
    from kit.panels.page_bridge import PageFacts
    from kit.plot.figure import Figure

Key = TypeVar("Key")
_AROUND, _HEADER, _LINE = 70, 40, 22  # px: around figures, a header, a line of words below


class FigurePanel(Panel):
    """One figure, or two beside each other. `text()` reads it without a browser.

    name: for screen readers. about: of a recording, that it is one. header, below: HTML above and below the figures.
    words: what `text()` says, where that is more or less than the figures' words.
    """

    def __init__(
        self,
        name: str,
        *figures: Figure,
        about: str = "",
        header: str = "",
        below: str = "",
        words: str | None = None,
        controls: tuple[widgets.Widget, ...] = (),
    ) -> None:
        self._figures = figures
        self._about, self._header, self._below, self._words = about, header, below, words
        self._views = [FigureView(figure.name, figure) for figure in figures]
        places = [view.widget for view in self._views]
        if len(places) == 1:
            places[0].add_class("lsp-alone")
        parts = [
            *([header_area(header)] if header else []),
            *about_rows(about),
            *controls,
            *(places if len(places) == 1 else [row(*places)]),
            *([area("words", below)] if below else []),
        ]
        super().__init__(name, parts, self._heard)
        self.add_class("lsp-record")

    def show(self, *figures: Figure) -> None:
        """Shows other figures in the places of those before."""
        self._figures = figures
        for view, figure in zip(self._views, figures, strict=True):
            view.show(figure)
        self._still.stale()

    def text(self) -> str:
        """All that the panel says, as plain text."""
        words = (figure.words for figure in self._figures) if self._words is None else (self._words,)
        return "\n".join(part for part in (self._about, *words) if part)

    def inside(self) -> tuple[str, int]:
        drawn = [html(figure) for figure in self._figures]
        alone = f'<div class="lsp-area lsp-alone">{drawn[0]}</div>'
        page = header_area_html(self._header) if self._header else ""
        page += about_html(self._about) + (alone if len(drawn) == 1 else row_html(*drawn))
        page += f'<div class="lsp-area lsp-words">{self._below}</div>' if self._below else ""
        height = _AROUND + max(figure.whole for figure in self._figures) + (_HEADER if self._header else 0)
        return page, height + _LINE * self._below.count('class="ls-word')

    def _heard(self, page: PageFacts) -> None:
        for view in self._views:
            view.heard(page)


@dataclass(frozen=True, slots=True)
class Choice:
    """One of the figures of a switch: the button's name, what it stands for, the figure."""

    name: str
    tip: str
    figure: Figure


class FigureSwitch(FigurePanel, Generic[Key]):
    """Figures of one size in one place. `choose(key)` moves the switch, `chosen` says where it stands.

    kind: what is chosen; a page script finds a button by the class `lsp-KIND-KEY`.
    """

    def __init__(self, name: str, choices: Mapping[Key, Choice], about: str = "", kind: str = "choice") -> None:
        self._choices = dict(choices)
        self.chosen = next(iter(self._choices))
        self._buttons = {
            key: button(one.name, one.tip, f"{kind}-{key}", partial(self.choose, key)) for key, one in choices.items()
        }
        self._tip = widgets.HTML()
        self._tip.add_class("lsp-label")
        bar = widgets.HBox([*self._buttons.values(), self._tip])
        bar.add_class("lsp-bar")
        super().__init__(name, self._choices[self.chosen].figure, about=about, controls=(bar,))
        self.choose(self.chosen)

    def choose(self, key: Key) -> None:
        """Shows one of the figures. Raises ValueError for a key that is none of them."""
        if key not in self._choices:
            raise ValueError(f"{key!r} is not among the figures here: choose from {', '.join(map(str, self._choices))}")
        self.chosen = key
        one = self._choices[key]
        self._tip.value = f"<span>{one.tip}</span>"
        for other, made in self._buttons.items():
            (made.add_class if other == key else made.remove_class)("lsp-primary")
        self.show(one.figure)

    def text(self) -> str:
        """What is chosen, and all that its figure says, as plain text."""
        one = self._choices[self.chosen]
        return "\n".join(part for part in (self._about, f"{one.name}. {one.tip}", one.figure.words) if part)
