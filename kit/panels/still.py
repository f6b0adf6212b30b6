"""A still picture of a panel: what is left of it where no kernel answers.

A saved notebook opened cold has no widgets, only outputs. So a panel leaves two: the widget, and beneath it a picture
with the words as plain text. The living panel's own style hides the picture; without it the picture shows, and hides in
its turn the line 'model not found' that JupyterLab puts in the widget's place. The picture is one image that holds its
own styles, because a notebook that is not trusted loses styles and drawings, but keeps images.

An image must say how high it is before a browser has laid it out. So a panel gives a height that is enough, everything
in it flows as in the living panel, and its last part fills what is left.
"""

from __future__ import annotations

import base64
import itertools
import re
import weakref
from collections.abc import Callable
from html import escape
from typing import Any

from kit.panels.one_at_a_time import running_loop
from kit.panels.page_bridge import panel_styles

WIDTH = 842  # px: a panel beside JupyterLab's side bar on a screen of 1280
WITHOUT = "A Lockstep panel: run this cell to drive it. Its last state:"
REST = 1.5  # seconds without a change before the picture is taken again
_numbers = itertools.count(1)


def picture(page: str, height: int) -> str:
    """HTML, which must be well-formed XML, as an image of its own, `data:image/svg+xml;...`. Follows light and dark."""
    lean = re.sub(r"/[*].*?[*]/|\n", "", panel_styles(), flags=re.S)
    inside = f'<style>{escape(lean, quote=False)}</style><div class="ls lsp-frame lsp-still">{page}</div>'
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}">'
        '<foreignObject width="100%" height="100%">'
        f'<body xmlns="http://www.w3.org/1999/xhtml" style="margin:0;height:{height}px">{inside}</body>'
        "</foreignObject></svg>"
    )
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()


class Still:
    """Keeps the picture under a panel up to date.

    `page()` returns (well-formed HTML without styles, a height in px that is enough), `words()` the same as plain text.
    """

    def __init__(self, page: Callable[[], tuple[str, int]], words: Callable[[], str]) -> None:
        self._page, self._words = page, words
        self.mark = f"lsp-still-{next(_numbers)}-{id(self):x}"
        self._handle: Any = None
        self._stale = False

    @property
    def hiding_style(self) -> str:
        """CSS for the living panel: its picture is not needed."""
        return f".jp-OutputArea-child:has(.{self.mark}),.{self.mark}{{display:none}}"

    def html(self) -> str:
        """The picture, and the style by which it stands in for a widget that is not there."""
        lost = f".jp-OutputArea-child:has(+.jp-OutputArea-child .{self.mark}):not(:has(.lsp-panel)){{display:none}}"
        dark = f'[data-jp-theme-light="false"] .{self.mark} img{{color-scheme:dark}}'
        page, height = self._page()
        image = picture(page, height)
        return (
            f'<div class="{self.mark}"><style>{lost}{dark}</style>'
            f'<img width="{WIDTH}" height="{height}" alt="{escape(self._words())}" src="{image}"></div>'
        )

    def bundle(self) -> dict[str, str]:
        return {"text/html": self.html(), "text/plain": self._words()}

    def show(self, widget: dict[str, Any]) -> None:
        """Displays the widget's bundle and, beneath it, the picture. Prints the words where there is no notebook."""
        from IPython import get_ipython
        from IPython.display import display

        if get_ipython() is None:
            print(self._words())
            return
        display({**widget, "text/plain": WITHOUT}, raw=True)
        if self._handle is None:
            after_cells(self, "refresh")
        self._handle = display(self.bundle(), raw=True, display_id=True)
        self._stale = False

    def stale(self) -> None:
        """The panel has changed: takes the picture again when it has come to rest, or when the cell has ended."""
        if self._handle is None or self._stale:
            return
        self._stale = True
        loop = running_loop()
        if loop is not None:
            loop.call_later(REST, self.refresh)

    def refresh(self) -> None:
        if self._stale and self._handle is not None:
            self._stale = False
            self._handle.update(self.bundle(), raw=True)


def after_cells(owner: Any, method: str) -> None:
    """Calls the owner's method after every cell for as long as the owner lives; nothing outside a notebook."""
    from IPython import get_ipython

    shell = get_ipython()
    if shell is None:
        return
    alive = weakref.ref(owner)

    def call(*_: Any) -> None:
        kept = alive()
        if kept is None:
            shell.events.unregister("post_run_cell", call)
        else:
            getattr(kept, method)()

    shell.events.register("post_run_cell", call)
