"""A panel's foothold in the page: its styles, its keys, and what the page says of itself.

ipywidgets has no key events, and a further front-end extension would shut out servers that cannot be changed. An `HTML`
widget puts its value into the page as it is, so one invisible image carries the script of assets/panel/page.js. A page
that forbids inline scripts (a strict content security policy) loses the keys and Bokeh, and keeps buttons and pictures.
"""

from __future__ import annotations

import html
import json
from collections.abc import Callable
from functools import cache
from typing import Any

import ipywidgets as widgets

from kit.resources import assets
from kit.views import stylesheet


@cache
def panel_styles() -> str:
    """The CSS of the views and of the panels around them."""
    return stylesheet() + "\n" + (assets() / "panel" / "panel.css").read_text(encoding="utf-8")


@cache
def _script() -> str:
    return (assets() / "panel" / "page.js").read_text(encoding="utf-8")


def foothold(name: str, more_style: str = "") -> widgets.HTML:
    """Styles and script of one panel; `name` is read out by screen readers. Invisible and without size."""
    start = html.escape(f"{_script()}.adopt(this)", quote=True)
    value = (
        f"<style>{panel_styles()}{more_style}</style>"
        f'<img src="data:," alt="" hidden data-panel-name="{html.escape(name, quote=True)}" onerror="{start}">'
    )
    return _unseen(widgets.HTML(value))


class Script:
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


class Ear:
    """Hears from the page: once when a panel is drawn there, again when the theme changes.

    `heard(page)` gets a dict: `bokeh` (the version of BokehJS loaded, or ''), `dark` (whether the theme is dark),
    `since` (when the page was loaded, in milliseconds of its own clock: which page it is).
    """

    def __init__(self, heard: Callable[[dict[str, Any]], None]) -> None:
        self.widget = _unseen(widgets.Text())
        self.widget.add_class("lsp-ear")
        self._heard = heard
        self.widget.observe(self._listen, "value")

    def _listen(self, change: dict[str, Any]) -> None:
        if change["new"]:
            self._heard(json.loads(change["new"]))


def _unseen(widget: Any) -> Any:
    widget.layout.display = "none"
    return widget
