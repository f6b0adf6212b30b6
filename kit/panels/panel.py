"""What all panels share: a frame in the page, a still picture where no kernel answers, and words without a browser."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import ipywidgets as widgets

from kit.panels.page_bridge import STEPPING, Heard, PageBridge
from kit.panels.still import Still
from kit.plot.markup import escape


class Panel(widgets.VBox):
    """A widget that can be read without a browser. A kind of panel says its parts, its words and its inside.

    name: for screen readers. parts: from top to bottom. heard: called with what the page says of itself. more_style:
    CSS for this panel alone. keys: which button a key presses.
    """

    def __init__(
        self,
        name: str,
        parts: Sequence[widgets.Widget],
        heard: Heard | None = None,
        more_style: str = "",
        keys: Mapping[str, str] = STEPPING,
    ) -> None:
        self._still = Still(self.inside, self.text)
        bridge = PageBridge(name, heard, self._still.hiding_style + more_style, keys)
        super().__init__([*bridge.widgets, *parts])
        for style in ("ls", "lsp-frame", "lsp-panel"):
            self.add_class(style)

    def text(self) -> str:
        """All that the panel says, as plain text."""
        raise NotImplementedError

    def inside(self) -> tuple[str, int]:
        """The panel without its controls as well-formed HTML, and about its height in px: see `kit.panels.still`."""
        raise NotImplementedError

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None, **more: Any) -> dict[str, Any]:
        bundle = super()._repr_mimebundle_(include=include, exclude=exclude, **more)
        return {**(bundle or {}), **self._still.bundle()}

    def _ipython_display_(self, **_: Any) -> None:
        self._still.show(super()._repr_mimebundle_() or {})


def area(name: str, value: str = "") -> widgets.HTML:
    """A place for a view, found by the class `lsp-NAME`."""
    place = widgets.HTML(value)
    place.add_class(f"lsp-{name}")
    return place


def row(*parts: widgets.Widget, name: str = "two") -> widgets.Box:
    """Parts beside each other under the class `lsp-NAME`; `lsp-two` becomes one column where the panel is narrow."""
    box = widgets.Box(parts)
    box.add_class(f"lsp-{name}")
    return box


def row_html(*views: str) -> str:
    """The same as plain HTML."""
    return '<div class="lsp-two">' + "".join(f"<div>{view}</div>" for view in views) + "</div>"


def about_rows(sentence: str) -> list[widgets.HTML]:
    """The row that says of a recording that it is one; no row without a sentence."""
    return [area("about", _about(sentence))] if sentence else []


def about_html(sentence: str) -> str:
    """The same row as plain HTML."""
    return f'<div class="lsp-about">{_about(sentence)}</div>' if sentence else ""


def _about(sentence: str) -> str:
    return f'<div role="note">{escape(sentence)}</div>'
