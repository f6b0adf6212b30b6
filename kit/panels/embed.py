"""The one place that puts Bokeh and Mermaid into a page.

Both need something of the page that a kernel cannot see: Bokeh its own script and the server's jupyter_bokeh, Mermaid a
JupyterLab that draws it. So a panel starts with pictures that need ipywidgets alone, and changes over when the page has
proved that it can do more. Nothing is fetched: BokehJS comes out of the installed bokeh package.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import ipywidgets as widgets

from kit import views
from kit.panels.page import Script
from kit.panels.runner import running_loop
from kit.views.markup import heading

if TYPE_CHECKING:
    from kit.cost.sweep import Pair, Sweep
    from kit.trace.facts import Trace
    from kit.views import Diagram

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


class Picture:
    """One drawing as SVG, and with Bokeh once the page has shown that it draws Bokeh. Subclasses say what is drawn."""

    def __init__(self) -> None:
        self._svg = widgets.HTML()
        self._svg.add_class("lsp-area")
        self._note = widgets.HTML()
        self._note.add_class("lsp-missing")
        self._script = Script()  # brings BokehJS on demand, so that no saved notebook has to carry it
        self._place = widgets.Box()
        self._place.add_class("lsp-bokeh")
        self.widget = widgets.Box([self._svg, self._place, self._script.widget, self._note])
        self.widget.add_class("lsp-cell")
        self.widget.add_class("lsp-time")
        self._figure: Any = None
        self._model: Any = None
        self._alive = False  # Bokeh's view has answered: it is drawn
        self._dark = False
        self._drawn_for: tuple[Any, ...] = ()  # the page that the Bokeh picture was made for

    def _html(self) -> str:
        """The drawing as it is now, without Bokeh; '' while there is nothing to draw."""
        raise AssertionError("a picture says what it draws")

    def _bokeh(self, dark: bool) -> Any:
        """The same as a Bokeh model."""
        raise AssertionError("a picture says what it draws")

    def heard(self, page: dict[str, Any]) -> None:
        """A page shows this panel, or its theme has changed. Starts or renews the Bokeh picture.

        Every panel of a page is told when one of them has brought BokehJS; a picture that stands there already stays.
        """
        told = page["since"], page["bokeh"], page["dark"]
        if self._figure is not None and told == self._drawn_for:
            return
        self._lower()
        self._drawn_for = told
        self._dark = page["dark"]
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
        if not self._html():
            return
        from jupyter_bokeh import BokehModel

        self._script.clear()
        self._figure = self._bokeh(self._dark)
        self._model = BokehModel(self._figure)
        self._model.on_msg(self._answered)
        self._place.children = (self._model,)
        loop = running_loop()
        if loop is not None:
            loop.call_later(PATIENCE, self._unanswered, self._model)

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
        if self._model is not None:
            self._model.close()
            self._figure.document.clear()  # or the widget closes a second time when it is collected, and complains
        self._figure = self._model = None
        self._svg.value = self._html()


class TimePicture(Picture):
    """The timeline at a position of a trace; moving on updates the Bokeh figure in place."""

    def __init__(self, predicted: Prediction) -> None:
        super().__init__()
        self._predicted = predicted
        self._at: tuple[Trace, int | None] | None = None

    def paint(self, trace: Trace, position: int | None) -> None:
        self._at = trace, position
        if self._figure is not None:
            self._update(trace, position)
        if not self._alive:
            self._svg.value = self._html()

    def _html(self) -> str:
        return views.timeline_html(*self._at, self._predicted.of(self._at[0])) if self._at is not None else ""

    def _bokeh(self, dark: bool) -> Any:
        assert self._at is not None, "there is something to draw"
        return views.timeline(*self._at, self._predicted.of(self._at[0]), dark=dark)

    def _update(self, trace: Trace, position: int | None) -> None:
        document = self._figure.document
        document.hold("combine")  # one change may touch bars and axis: the page gets them together
        try:
            views.update_timeline(self._figure, trace, position, self._predicted.of(trace))
        finally:
            document.unhold()


class BandwidthPicture(Picture):
    """The curves of a bandwidth sweep."""

    def __init__(self, sweep: Sweep, operations: Sequence[str] | None, link: Pair | None) -> None:
        super().__init__()
        self._shown = sweep, operations, link
        self._svg.value = self._html()

    def _html(self) -> str:
        return views.bandwidth_html(*self._shown)

    def _bokeh(self, dark: bool) -> Any:
        return views.bandwidth_plot(*self._shown, dark=dark)


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
        chart = views.flowchart(trace, position)
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
