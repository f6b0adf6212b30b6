"""The two rows of controls above the grid, and the table as text beneath it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import ipywidgets as widgets

from kit.panels.transport import button
from kit.plot.markup import escape

Press = Callable[[str], object]
START_FROM = "start from ..."

KEYS = {
    "ArrowLeft": "back",
    "ArrowRight": "step",
    "Shift+ArrowLeft": "before",
    "Shift+ArrowRight": "after",
    "ArrowUp": "up",
    "ArrowDown": "down",
    "z": "undo",
    "y": "redo",
    "p": "part",
    "+": "nearer",
    "-": "farther",
    "Shift++": "nearer",
    "0": "all",
}
_FIRST = {
    "back": ("Earlier", "The chosen action one place earlier on its rank (Left)"),
    "step": ("Later", "The chosen action one place later on its rank (Right)"),
    "before": ("Previous", "Choose the action before (Shift Left)"),
    "after": ("Next", "Choose the action after (Shift Right)"),
    "up": ("Above", "Choose an action on the rank above (Up)"),
    "down": ("Below", "Choose an action on the rank below (Down)"),
    "part": ("Part B", "Part the chosen B into I and W, or join them (P)"),
}
_SECOND = {
    "undo": ("Undo", "Back to before the last change (Z)"),
    "redo": ("Redo", "The change that was undone (Y)"),
    "farther": ("Zoom out", "Twice the time in the same width (-)"),
    "nearer": ("Zoom in", "Half the time in the same width (+)"),
    "all": ("All", "The whole schedule (0)"),
    "table": ("Table", "The schedule as text, to be read and edited"),
}


class Controls:
    """Buttons, the choice of a schedule to start from, and the table. They call back and never decide anything.

    press(name): a button was pressed; load(family): a schedule was picked; edit(text): the table was changed.
    """

    def __init__(
        self,
        families: Sequence[str],
        can_run: bool,
        press: Press,
        load: Callable[[str], object],
        edit: Callable[[str], object],
    ) -> None:
        def made(name: str, text: str, tip: str, primary: bool = False) -> widgets.Button:
            return button(text, tip, name, lambda: press(name), primary)

        self._painting = False
        self._families = widgets.Dropdown(options=[(START_FROM, ""), *((name, name) for name in families)])
        self._families.add_class("lsp-family")
        self._load, self._edit = load, edit
        self._families.observe(self._picked, "value")
        self._run = made("run", "Run", "Real ranks take these actions in this order", primary=True)
        self._first = {name: made(name, *texts) for name, texts in _FIRST.items()}
        self._second = {name: made(name, *texts) for name, texts in _SECOND.items()}
        self._can_run = can_run
        self._notice = widgets.HTML()
        self._notice.add_class("lsp-notice")
        self._keys = widgets.HTML(
            "<span>drag, or click and: <kbd>←</kbd> <kbd>→</kbd> move · <kbd>Shift</kbd> <kbd>←</kbd> "
            "<kbd>→</kbd> <kbd>↑</kbd> <kbd>↓</kbd> choose</span>"
        )
        self._keys.add_class("lsp-keys")
        self._text = widgets.Textarea()
        self._text.add_class("lsp-rows")
        self._text.observe(self._typed, "value")
        self._help = widgets.HTML(
            '<div class="lsp-rows-help">A row a rank, in torch\'s form: stage, kind (F, B, or I and W), micro-batch; '
            "changes count while you type.</div>"
        )
        self.table = widgets.VBox([self._text, self._help])
        self.table.add_class("lsp-rows-place")
        self.table.layout.display = "none"

    def rows(self) -> tuple[widgets.Widget, widgets.Widget]:
        first = widgets.HBox([self._families, *self._first.values(), *([self._run] if self._can_run else [])])
        second = widgets.HBox([*self._second.values(), self._notice, self._keys])
        for row, names in ((first, ("bar",)), (second, ("bar", "quiet"))):
            for name in names:
                row.add_class(f"lsp-{name}")
        return first, second

    def show_table(self, on: bool) -> None:
        self.table.layout.display = "" if on else "none"
        self._second["table"].description = "Hide table" if on else "Table"

    @property
    def table_shown(self) -> bool:
        return bool(self.table.layout.display != "none")

    def paint(
        self, text: str | None, chosen: bool, kind: str, can_undo: bool, can_redo: bool, valid: bool, busy: bool
    ) -> None:
        """Makes the controls say where the bench stands. text: of the table; None while it is being typed."""
        self._painting = True
        try:
            self._families.value = ""
            if text is not None and text != self._text.value:
                self._text.value = text
        finally:
            self._painting = False
        self._first["back"].disabled = self._first["step"].disabled = not chosen
        self._first["part"].disabled = kind not in ("B", "I", "W")
        self._first["part"].description = "Join I, W" if kind in ("I", "W") else "Part B"
        self._second["undo"].disabled = not can_undo
        self._second["redo"].disabled = not can_redo
        self._run.disabled = not valid or busy
        self._run.description = "Running ..." if busy else "Run"

    def say(self, notice: str) -> None:
        """One line beside the controls: why a press did nothing."""
        self._notice.value = f'<span role="status" title="{escape(notice)}">{escape(notice)}</span>' if notice else ""

    def _picked(self, change: dict[str, Any]) -> None:
        if change["new"] and not self._painting:
            self._load(change["new"])
            self._families.value = ""

    def _typed(self, change: dict[str, Any]) -> None:
        if not self._painting:
            self._edit(change["new"])
