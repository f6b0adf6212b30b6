"""The board's page. It holds nothing of anybody: its script asks for what there is, and writes it as text."""

from __future__ import annotations

from functools import cache

from kit.classroom.pages import frame
from kit.resources import assets


@cache
def html() -> str:
    body = (assets() / "classroom" / "board.html").read_text(encoding="utf-8")
    return frame.page("The class board", body, script="board.js", live=True)
