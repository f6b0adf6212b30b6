"""A panel's link with the page it stands in: styles and keys go there, what the page says of itself comes back.

ipywidgets has no key events, and a further front-end extension would shut out servers that cannot be changed. An `HTML`
widget puts its value into the page as it is, so one invisible image carries the script of assets/panel/page.js. A page
that forbids inline scripts (a strict content security policy) loses the keys and Bokeh, and keeps buttons and pictures.
"""

from __future__ import annotations

import html
import json
from collections.abc import Callable
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


@cache
def panel_styles() -> str:
    """The CSS of the views and of the panels around them."""
    return stylesheet() + "\n" + (assets() / "panel" / "panel.css").read_text(encoding="utf-8")


@cache
def _page_script() -> str:
    return (assets() / "panel" / "page.js").read_text(encoding="utf-8")


class PageBridge:
    """Puts a panel's styles and keys into the page, and calls `heard` with what the page says of itself.

    name: read out by screen readers. more_style: CSS for this panel alone. `widgets` are invisible and without size.
    """

    def __init__(self, name: str, heard: Heard | None = None, more_style: str = "") -> None:
        start = html.escape(f"{_page_script()}.adopt(this)", quote=True)
        foot = widgets.HTML(
            f"<style>{panel_styles()}{more_style}</style>"
            f'<img src="data:," alt="" hidden data-panel-name="{html.escape(name, quote=True)}" onerror="{start}">'
        )
        self._ear = widgets.Text()
        self._ear.add_class("lsp-ear")
        self._heard = heard
        self._ear.observe(self._listen, "value")
        self.widgets = (_unseen(foot), _unseen(self._ear))

    def _listen(self, change: dict[str, Any]) -> None:
        if change["new"] and self._heard is not None:
            self._heard(json.loads(change["new"]))


class PageScript:
    """Runs JavaScript in the page when asked to. Nothing of it goes into the notebook or stays after `clear`."""

    _START = (
        "const script = document.createElement('script');"
        "script.textContent = this.previousElementSibling.textContent; document.head.append(script)"
    )

    def __init__(self) -> None:
        self.widget = _unseen(widgets.HTML())

    def run(self, code: str) -> None:
        self.clear()
        self.widget.value = f'<pre>{html.escape(code)}</pre><img src="data:," alt="" onerror="{self._START}">'

    def clear(self) -> None:
        self.widget.value = ""


def _unseen(widget: Any) -> Any:
    widget.layout.display = "none"
    return widget
