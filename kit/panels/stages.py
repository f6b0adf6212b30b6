"""A switch from stage 0 to stage 3 of ZeRO: what was measured of each, in one place and to one scale."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import ipywidgets as widgets

from kit.panels.areas import about_area, about_height, about_rows, area
from kit.panels.page import foothold, panel_styles
from kit.panels.still import Still
from kit.panels.transport import button
from kit.views import stages_height, stages_html, stages_words
from kit.views.stages import stages

if TYPE_CHECKING:
    from kit.trace.facts import Trace

_NAMES = {0: "Stage 0: data parallel", 1: "Stage 1", 2: "Stage 2", 3: "Stage 3"}
_DOES = {
    0: "Every rank has everything; gradients are averaged.",
    1: "Each rank steps its share, then weights are gathered.",
    2: "Gradients are summed to whose share they are, then gone.",
    3: "A layer's weights are gathered to compute, then freed.",
}
_PADDING = 9  # px, as in the style sheets


class StagePanel(widgets.VBox):
    """`stage(2)` moves the switch, `chosen` says where it stands, `text()` reads all without a browser.

    `figures[2]`: what was measured of stage 2 and what formulas say, a `kit.views.stages.Stage`.
    runs: stage -> a trace with accounts of memory (`kit.memory`). parameters: P. about: of a recording, that it is one.
    """

    def __init__(self, runs: Mapping[int, Trace], parameters: int, precision: str = "fp32", about: str = "") -> None:
        self._runs, self._what = dict(sorted(runs.items())), (parameters, precision)
        self._about = about
        self.figures = stages(self._runs, *self._what)[1]  # refuses what cannot be shown
        self._height = stages_height(self._runs, *self._what)
        self._buttons = {
            number: button(_NAMES[number], _DOES[number], f"stage-{number}", partial(self.stage, number))
            for number in self._runs
        }
        self._does = widgets.HTML()
        self._does.add_class("lsp-label")
        bar = widgets.HBox([*self._buttons.values(), self._does])
        bar.add_class("lsp-bar")
        self._picture = area("stages")
        self._picture.add_class("lsp-alone")
        self._still = Still(self._page, self.text, panel_styles)
        foot = foothold("Stages of ZeRO", self._still.hiding_style)
        super().__init__([foot, *about_rows(about), bar, self._picture])
        for style in ("ls", "lsp-frame", "lsp-panel", "lsp-record"):
            self.add_class(style)
        self.stage(min(self._runs))

    def stage(self, number: int) -> None:
        """Show one of the stages. Raises ValueError for one that was not run."""
        self._picture.value = self._html(number)
        self.chosen = number
        self._does.value = f"<span>{_DOES[number]}</span>"
        for other, made in self._buttons.items():
            (made.add_class if other == number else made.remove_class)("lsp-primary")
        self._still.stale()

    def text(self) -> str:
        """All that the panel says, as plain text."""
        said = stages_words(self._runs, self.chosen, *self._what)
        parts = (self._about, f"{_NAMES[self.chosen]}. {_DOES[self.chosen]}", *said)
        return "\n".join(part for part in parts if part)

    def _html(self, number: int) -> str:
        return stages_html(self._runs, number, *self._what)

    def _page(self) -> tuple[str, int]:
        page = f'{about_area(self._about)}<div class="lsp-area lsp-alone">{self._html(self.chosen)}</div>'
        return page, about_height(self._about) + self._height + 2 * _PADDING

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None, **more: Any) -> dict[str, Any]:
        bundle = super()._repr_mimebundle_(include=include, exclude=exclude, **more)
        return {**(bundle or {}), **self._still.bundle()}

    def _ipython_display_(self, **_: Any) -> None:
        self._still.show(super()._repr_mimebundle_() or {})
