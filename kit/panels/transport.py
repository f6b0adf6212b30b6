"""The two rows of controls above a stepping panel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ipywidgets as widgets

from kit.plot.markup import escape, rank_class

Press = Callable[[], object]


def button(text: str, tip: str, name: str, press: Press, primary: bool = False) -> widgets.Button:
    """A button a page script finds by the class `lsp-NAME`. Its text is its accessible name."""
    made = widgets.Button(description=text, tooltip=tip)
    made.add_class("lsp-button")
    made.add_class(f"lsp-{name}")
    if primary:
        made.add_class("lsp-primary")
    made.on_click(lambda _: press())
    return made


class Transport:
    """Buttons, slider and hold switches. It calls back and never decides anything.

    `press(name)` is called with the name of a control ('step', 'back', ...), `seek(index)` when the slider is moved,
    `hold(rank, on)` when a switch is pressed.
    """

    def __init__(
        self,
        world: int,
        press: Callable[[str], object],
        seek: Callable[[int], object],
        hold: Callable[[int, bool], object],
    ) -> None:
        def made(text: str, tip: str, name: str, primary: bool = False) -> widgets.Button:
            return button(text, tip, name, lambda: press(name), primary)

        self.start = made("Start", "To the first position (Home)", "start")
        self.back = made("Back", "One position back in the record (Left)", "back")
        self.step = made("Step", "Every rank that is not held goes to its next line (Right)", "step", primary=True)
        self.collective = made("Next collective", "To right before the next operation (C)", "collective")
        self.play = made("Play", "Step by step until something stops it (Space)", "play")
        self.end = made("End", "To the newest position (End)", "end")
        self.over = made("Over", "The next line, calls included", "over")
        self.into = made("Into", "Into the call on this line", "into")
        self.out = made("Out", "Out of this function, to its caller", "out")
        self.finish = made("Finish", "Run to the end of the function", "finish")
        self.reset = made("Reset", "Fresh ranks before the first line, same arguments", "reset")
        self.notice = widgets.HTML()
        self.notice.add_class("lsp-notice")
        self._seek = seek
        self._painting = False
        self.slider = widgets.IntSlider(min=0, max=0, readout=False, continuous_update=True)
        self.slider.add_class("lsp-slider")
        self.slider.observe(self._slid, "value")
        self.switches = [self._switch(rank, hold) for rank in range(world)]

    def _switch(self, rank: int, hold: Callable[[int, bool], object]) -> widgets.ToggleButton:
        switch = widgets.ToggleButton(description=f"hold rank {rank}", tooltip=f"Hold rank {rank} back, or let it go")
        for name in ("lsp-hold", f"lsp-hold-{rank}", *rank_class(rank).split()):
            switch.add_class(name)

        def turned(change: dict[str, Any]) -> None:
            if not self._painting:
                hold(rank, change["new"])

        switch.observe(turned, "value")
        return switch

    def _slid(self, change: dict[str, Any]) -> None:
        if not self._painting:
            self._seek(change["new"])

    @property
    def styles(self) -> str:
        """CSS for the number on each hold switch; the words of a switch are for screen readers."""
        return "".join(f'.lsp-hold-{rank}::after{{content:"{rank}"/""}}' for rank in range(len(self.switches)))

    def rows(self) -> tuple[widgets.Widget, widgets.Widget]:
        label = widgets.HTML("<span>hold</span>")
        label.add_class("lsp-label")
        holds = widgets.HBox([label, *self.switches])
        holds.add_class("lsp-holds")
        keys = widgets.HTML(
            "<span>keys: <kbd>←</kbd> <kbd>→</kbd> step · <kbd>C</kbd> collective · <kbd>Space</kbd> play"
            " · <kbd>Home</kbd> <kbd>End</kbd></span>"
        )
        keys.add_class("lsp-keys")
        first = (self.start, self.back, self.step, self.collective, self.play, self.end, self.slider, holds, self.reset)
        second = (self.over, self.into, self.out, self.finish, self.notice, keys)
        rows = widgets.HBox(first), widgets.HBox(second)
        for row, name in zip(rows, ("lsp-bar", "lsp-bar lsp-quiet"), strict=True):
            for part in name.split():
                row.add_class(part)
        return rows

    def paint(self, position: int, newest: int, can_move: bool, held: set[int], playing: bool) -> None:
        """Makes the controls say where the panel stands."""
        self._painting = True
        try:
            if self.slider.max != max(0, newest):
                self.slider.max = max(0, newest)
            self.slider.value = position
            for rank, switch in enumerate(self.switches):
                switch.value = rank in held
        finally:
            self._painting = False
        self.start.disabled = self.back.disabled = position <= 0
        self.end.disabled = position >= newest
        for forward in (self.step, self.collective, self.over, self.into, self.out, self.finish):
            forward.disabled = not can_move
        self.play.disabled = not can_move and not playing
        self.play.description = "Pause" if playing else "Play"

    def say(self, notice: str) -> None:
        """One line beside the controls: why a press did nothing."""
        self.notice.value = f'<span role="status" title="{escape(notice)}">{escape(notice)}</span>' if notice else ""
