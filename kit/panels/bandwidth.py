"""The panel of a bandwidth sweep: time and bus bandwidth over size, with the fit and what a link predicts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import ipywidgets as widgets

from kit.panels.areas import about_area, about_height, about_rows
from kit.panels.embed import BandwidthPicture
from kit.panels.page import Ear, foothold, panel_styles
from kit.panels.still import Still
from kit.views import bandwidth_html, bandwidth_words

if TYPE_CHECKING:
    from kit.cost.sweep import Pair, Sweep

_PADDING, _HEADING = 9, 22  # px, as in the style sheets


class BandwidthPanel(widgets.VBox):
    """Curves per operation. `text()` reads them without a browser."""

    def __init__(self, sweep: Sweep, operations: str | Sequence[str] | None = None, link: Pair | None = None) -> None:
        self.sweep = sweep
        self._shown = sweep, operations, link
        self._picture = BandwidthPicture(*self._shown)
        self._picture.widget.add_class("lsp-alone")
        self._ear = Ear(self._picture.heard)
        self._still = Still(self._page, self.text, panel_styles)
        foot = foothold(f"Bandwidth on {sweep.ranks} ranks", self._still.hiding_style)
        self._about = str(getattr(sweep, "about", ""))
        super().__init__([foot, self._ear.widget, *about_rows(self._about), self._picture.widget])
        for style in ("ls", "lsp-frame", "lsp-panel", "lsp-record"):
            self.add_class(style)

    def text(self) -> str:
        """All that the panel says, as plain text."""
        return "\n".join(part for part in (self._about, bandwidth_words(*self._shown)) if part)

    def _page(self) -> tuple[str, int]:
        drawn = bandwidth_html(*self._shown)
        height = int(drawn.split('height="', 1)[1].split('"', 1)[0])
        page = f'{about_area(self._about)}<div class="lsp-area">{drawn}</div>'
        return page, about_height(self._about) + _HEADING + height + 2 * _PADDING

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None, **more: Any) -> dict[str, Any]:
        bundle = super()._repr_mimebundle_(include=include, exclude=exclude, **more)
        return {**(bundle or {}), **self._still.bundle()}

    def _ipython_display_(self, **_: Any) -> None:
        self._still.show(super()._repr_mimebundle_() or {})
