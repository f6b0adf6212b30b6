"""A panel of one drawing: an SVG, the same in Bokeh where the page can show it, and words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ipywidgets as widgets

from kit.panels.areas import about_area, about_height, about_rows
from kit.panels.embed import Picture
from kit.panels.page import Ear, foothold, panel_styles
from kit.panels.still import Still

_PADDING, _HEADING, _LINE, _LETTERS = 9, 22, 16, 140  # px, as in the style sheets; letters of a line of words


class Drawn(Picture):
    """html(), and bokeh(dark) as a Bokeh model."""

    def __init__(self, html: Callable[[], str], bokeh: Callable[[bool], Any]) -> None:
        super().__init__()
        self._drawn_html, self._drawn_bokeh = html, bokeh
        self._svg.value = html()

    def _html(self) -> str:
        return self._drawn_html()

    def _bokeh(self, dark: bool) -> Any:
        return self._drawn_bokeh(dark)


class DrawnPanel(widgets.VBox):
    """`text()` reads it without a browser. name: for screen readers. words(): the drawing in words. about: of a
    recording, that it is one.
    """

    def __init__(
        self,
        name: str,
        html: Callable[[], str],
        bokeh: Callable[[bool], Any],
        words: Callable[[], str],
        about: str = "",
    ) -> None:
        self._drawn_as, self._words, self._about = html, words, about
        self._picture = Drawn(html, bokeh)
        self._picture.widget.add_class("lsp-alone")
        self._ear = Ear(self._picture.heard)
        self._still = Still(self._page, self.text, panel_styles)
        foot = foothold(name, self._still.hiding_style)
        super().__init__([foot, self._ear.widget, *about_rows(about), self._picture.widget])
        for style in ("ls", "lsp-frame", "lsp-panel", "lsp-record"):
            self.add_class(style)

    def text(self) -> str:
        """All that the panel says, as plain text."""
        return "\n".join(part for part in (self._about, self._words()) if part)

    def _page(self) -> tuple[str, int]:
        drawn = self._drawn_as()
        height = int(drawn.split('height="', 1)[1].split('"', 1)[0])
        said = sum(-(-len(line) // _LETTERS) for line in self._words().splitlines()) * _LINE + 4
        page = f'{about_area(self._about)}<div class="lsp-area">{drawn}</div>'
        return page, about_height(self._about) + _HEADING + height + said + 2 * _PADDING

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None, **more: Any) -> dict[str, Any]:
        bundle = super()._repr_mimebundle_(include=include, exclude=exclude, **more)
        return {**(bundle or {}), **self._still.bundle()}

    def _ipython_display_(self, **_: Any) -> None:
        self._still.show(super()._repr_mimebundle_() or {})
