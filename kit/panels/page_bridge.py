"""A panel's link with the page it stands in: styles and keys go there, what the page says of itself comes back.

ipywidgets has no key events, and a further front-end extension would shut out servers that cannot be changed. An `HTML`
widget puts its value into the page as it is, so one invisible image carries the script of assets/panel/page.js. A page
that forbids inline scripts (a strict content security policy) loses the keys and Bokeh, and keeps buttons and pictures.
"""

from __future__ import annotations

import html
import json
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypedDict

import ipywidgets as widgets

from kit.plot.style import stylesheet
from kit.resources import assets


class PageFacts(TypedDict):
    """What a page says of itself when it draws a panel, and again when its theme changes."""

    bokeh: str  # the version of BokehJS loaded there, or ''
    dark: bool  # whether the theme is dark
    since: float  # when the page was loaded, in milliseconds of its own clock: which page it is
    view: int  # which drawing of a panel in that page: a notebook can be closed and opened again


Heard = Callable[[PageFacts], object]

STEPPING: Mapping[str, str] = {
    "ArrowLeft": "back",
    "ArrowRight": "step",
    "c": "collective",
    "C": "collective",
    " ": "play",
    "Home": "start",
    "End": "end",
}


@cache
def panel_styles() -> str:
    """The CSS of the views and of the panels around them."""
    return stylesheet() + "\n" + (assets() / "panel" / "panel.css").read_text(encoding="utf-8")


@cache
def _page_script() -> str:
    return (assets() / "panel" / "page.js").read_text(encoding="utf-8")


class PageBridge:
    """Puts a panel's styles and keys into the page, and calls `heard` with what the page says of itself.

    name: read out by screen readers. more_style: CSS for this panel alone. keys: which button, by its class `lsp-NAME`,
    a key presses; 'Shift+ArrowLeft' is a key of its own. `widgets` are invisible and without size.
    """

    def __init__(
        self, name: str, heard: Heard | None = None, more_style: str = "", keys: Mapping[str, str] = STEPPING
    ) -> None:
        start = html.escape(f"{_page_script()}.adopt(this)", quote=True)
        foot = widgets.HTML(
            f"<style>{panel_styles()}{more_style}</style>"
            f'<img src="data:," alt="" hidden data-panel-name="{html.escape(name, quote=True)}" '
            f'data-panel-keys="{html.escape(json.dumps(dict(keys)), quote=True)}" onerror="{start}">'
        )
        self.widgets = (unseen(foot), page_ear("lsp-ear", heard))


def page_ear(name: str, heard: Callable[[Any], object] | None) -> widgets.Text:
    """An invisible field, found by its class, in which a script of the page leaves what it says as JSON.

    Of what is said while the kernel has not answered yet, the last comes through.
    """
    ear = widgets.Text()
    ear.add_class(name)

    def listen(change: dict[str, Any]) -> None:
        if change["new"] and heard is not None:
            heard(json.loads(change["new"]))

    ear.observe(listen, "value")
    return unseen(ear)


class PageScript:
    """Runs JavaScript in the page when asked to. Nothing of it goes into the notebook or stays after `clear`."""

    _START = (
        "const script = document.createElement('script');"
        "script.textContent = this.previousElementSibling.textContent; document.head.append(script)"
    )

    def __init__(self) -> None:
        self.widget = unseen(widgets.HTML())

    def run(self, code: str) -> None:
        self.clear()
        self.widget.value = f'<pre>{html.escape(code)}</pre><img src="data:," alt="" onerror="{self._START}">'

    def clear(self) -> None:
        self.widget.value = ""


def unseen(widget: Any) -> Any:
    """The widget, without a place in the page."""
    widget.layout.display = "none"
    return widget
