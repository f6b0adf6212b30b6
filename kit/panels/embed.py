"""The one place that puts Bokeh and Mermaid into a page.

Both need something of the page that a kernel cannot see: Bokeh its own script and the server's jupyter_bokeh, Mermaid a
JupyterLab that draws it. So a panel starts with pictures that need ipywidgets alone, and changes over when the page has
proved that it can do more. Nothing is fetched: BokehJS comes out of the installed bokeh package.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import ipywidgets as widgets

from kit.panels.one_at_a_time import running_loop
from kit.panels.page_bridge import PageFacts, PageScript
from kit.plot.flow import flowchart
from kit.plot.markup import heading
from kit.plot.render_bokeh import BokehFigure
from kit.plot.render_svg import html

if TYPE_CHECKING:
    from kit.plot.diagram import Diagram
    from kit.plot.figure import Figure
    from kit.trace.trace import Trace

PATIENCE = 6.0  # seconds until a Bokeh view that has not answered is taken for missing
_said: set[str] = set()
_brought: dict[float, float] = {}  # when BokehJS was last sent to a page, by when the page was loaded


def said_once(sentence: str) -> str:
    """The sentence the first time in this kernel, then ''."""
    if sentence in _said:
        return ""
    _said.add(sentence)
    return sentence


@cache
def _bokeh_script() -> str:
    from bokeh.resources import Resources

    return "\n".join(Resources(mode="inline", components=["bokeh"]).js_raw)


class Prediction:
    """What is drawn above the measured times: nothing, one trace, or a function that re-times the trace in view."""

    def __init__(self, made: Trace | Callable[[Trace], Trace] | None) -> None:
        self._made = made
        self._last: tuple[Trace, Trace] | None = None

    def of(self, trace: Trace) -> Trace | None:
        if not callable(self._made):
            return self._made
        if self._last is None or self._last[0] is not trace:
            self._last = trace, self._made(trace)
        return self._last[1]


class FigureView:
    """One figure in its place: as SVG, and with Bokeh once the page has shown that it draws Bokeh.

    Both have the same height at every width. Another figure is shown in place: Bokeh gets what has changed.
    """

    def __init__(self, name: str, figure: Figure | None = None) -> None:
        self.figure: Figure | None = None
        self._svg = widgets.HTML()
        self._svg.add_class("lsp-area")
        self._note = widgets.HTML()
        self._note.add_class("lsp-missing")
        self._script = PageScript()  # brings BokehJS on demand, so that no saved notebook has to carry it
        self._place = widgets.Box()
        self._place.add_class("lsp-bokeh")
        self.widget = widgets.Box([self._svg, self._place, self._script.widget, self._note])
        for kind in ("cell", "view", name):
            self.widget.add_class(f"lsp-{kind}")
        self._bokeh: BokehFigure | None = None
        self._model: Any = None
        self._alive = False  # Bokeh's view has answered: it is drawn
        self._drawn_for: tuple[Any, ...] = ()  # what the Bokeh picture was made for
        if figure is not None:
            self.show(figure)

    def show(self, figure: Figure) -> None:
        """Shows a figure, in the place of the one before."""
        before, self.figure = self.figure, figure
        if self._bokeh is not None and not self._update(self._bokeh, figure):
            self._lower()
            self._draw()
        if not self._alive or before is None or _around(before) != _around(figure):
            self._svg.value = html(figure)

    def heard(self, page: PageFacts) -> None:
        """A page shows this panel, or its theme has changed. Starts or renews the Bokeh picture.

        Every panel of a page is told when one of them has brought BokehJS; a picture that stands there already stays.
        """
        told = page["since"], page["view"], page["bokeh"], page["dark"]
        if self._bokeh is not None and told == self._drawn_for:
            return
        self._lower()
        self._drawn_for = told
        if find_spec("jupyter_bokeh") is None:
            self._say("Drawn without Bokeh: jupyter_bokeh is not installed where this notebook runs.")
            return
        import bokeh

        if not page["bokeh"]:
            self._load(page["since"])
        elif page["bokeh"] == bokeh.__version__:
            self._draw()
        else:
            self._say(f"Drawn without Bokeh: this page holds version {page['bokeh']}, the kernel {bokeh.__version__}.")

    def _say(self, sentence: str) -> None:
        if text := said_once(sentence):
            self._note.value = f"<span>{text}</span>"

    def _load(self, page: float) -> None:
        """Brings BokehJS, a megabyte, once for all panels of a page: they are all told when it is there."""
        now = time.monotonic()
        if now - _brought.get(page, -PATIENCE) < PATIENCE:
            return
        _brought[page] = now
        # two kernels may have panels in one page: the second one must not put another Bokeh over the first
        self._script.run(f"if (!window.Bokeh) {{\n{_bokeh_script()}\n}}\nwindow.lockstepPage.tellAll();")

    def _draw(self) -> None:
        if self.figure is None:
            return
        from jupyter_bokeh import BokehModel

        self._script.clear()
        *_, dark = self._drawn_for
        self._bokeh = BokehFigure(self.figure, dark)
        self._model = BokehModel(self._bokeh.layout)
        self._model.on_msg(self._answered)
        self._place.children = (self._model,)
        loop = running_loop()
        if loop is not None:
            loop.call_later(PATIENCE, self._unanswered, self._model)

    def _update(self, bokeh: BokehFigure, figure: Figure) -> bool:
        document = bokeh.layout.document
        document.hold("combine")  # one change may touch boxes and axis: the page gets them together
        try:
            return bokeh.show(figure)
        finally:
            document.unhold()

    def _answered(self, *_: Any) -> None:
        """Bokeh's view reports its size once it is drawn: from here on it can be shown."""
        if not self._alive:
            self._alive = True
            self._note.value = ""
            self.widget.add_class("lsp-drawn")

    def _unanswered(self, model: Any) -> None:
        if model is self._model and not self._alive:
            self._say("Drawn without Bokeh: this JupyterLab server has no jupyter_bokeh.")

    def _lower(self) -> None:
        self._alive = False
        self.widget.remove_class("lsp-drawn")
        self._place.children = ()
        if self._model is not None and self._bokeh is not None:
            self._model.close()
            # or the widget closes a second time when it is collected, and complains
            self._bokeh.layout.document.clear()
        self._bokeh = self._model = None
        if self.figure is not None:
            self._svg.value = html(self.figure)


def _around(figure: Figure) -> tuple[object, ...]:
    """What stays HTML while Bokeh draws: the heading, the words below, and room for the drawing."""
    return figure.title, figure.note, figure.key, figure.said, figure.folded, figure.height


class FlowChart:
    """The operation's shape, drawn by JupyterLab's Mermaid.

    Two outputs share the place: the new one lies over the old and covers it only when it has a picture, so that nothing
    collapses in between.
    """

    def __init__(self) -> None:
        self._sheets = [widgets.Output(), widgets.Output()]
        for sheet in self._sheets:
            sheet.add_class("lsp-sheet")
        sheets = widgets.Box(self._sheets)
        sheets.add_class("lsp-flow")
        title = widgets.HTML(f'<div class="ls">{heading("Flow of this operation", "dotted: not delivered yet")}</div>')
        title.add_class("lsp-flow-title")
        self.widget = widgets.Box([title, sheets])
        self.widget.add_class("lsp-flow-place")
        self._script = ""

    def paint(self, trace: Trace, position: int) -> None:
        """Draws only when the operation has another shape than the one shown."""
        chart = flowchart(trace, position)
        if chart.script == self._script:
            return
        self._script = chart.script
        new, old = self._sheets
        new.outputs = (_shown(chart),)
        new.add_class("lsp-new")
        old.remove_class("lsp-new")
        self._sheets = [old, new]


def _shown(chart: Diagram) -> dict[str, Any]:
    return {"output_type": "display_data", "data": chart._repr_mimebundle_(), "metadata": {}}
