"""Small pieces of HTML that every view shares: escaped text, a rank's chip, the heading of an area."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kit.plot.palette import RANKS

if TYPE_CHECKING:
    from kit.trace.facts import Phase, RankState

_SHAPES: dict[Phase, str] = {
    "paused": "",
    "running": "ls-runs",
    "waiting": "ls-waits",
    "finished": "ls-finished",
    "failed": "ls-failed",
    "stopped": "ls-stopped",
    "dead": "ls-dead",
}


def escape(text: object) -> str:
    """Text made safe for HTML and SVG, inside elements and inside quoted attributes."""
    return html.escape(str(text), quote=True)


def rank_class(rank: int) -> str:
    """The CSS class that brings a rank's colour (`--c`) and the colour of text on it (`--t`)."""
    return f"ls-r{rank % len(RANKS)}" + (" ls-round2" if rank // len(RANKS) % 2 else "")


def chip(rank: int, state: RankState | None = None, held: bool = False) -> str:
    """A rank's number in its colour; the shape tells its phase: circle paused, ring waits, square held, and so on."""
    words = f"rank {rank}"
    shape = ""
    if state is not None:
        shape = _SHAPES[state.phase]
        words += " waits" if state.phase == "waiting" else f" {state.phase}"
        if (held or state.held) and state.phase in ("paused", "waiting", "running"):
            shape += " ls-held"
            words += ", held"
    elif held:
        shape, words = "ls-held", words + " held"
    classes = " ".join(f"ls-chip {rank_class(rank)} {shape}".split())
    return f'<span class="{classes}" role="img" aria-label="{words}" title="{words}">{rank}</span>'


def heading(title: str, key: str = "", swatches: Sequence[tuple[str, str]] = (), hover: str = "") -> str:
    """The line above an area: its name, and a key of text or of (class, word) colour swatches. Text gets escaped.

    hover: what the name says in full when pointed at.
    """
    told = f' title="{escape(hover)}"' if hover else ""
    colours = "".join(f'<i class="ls-swatch {kind}"></i>{escape(word)}' for kind, word in swatches)
    kinds = " ls-kinds" if swatches else ""
    return (
        f'<div class="ls-head"><span{told}>{escape(title)}</span>'
        f'<span class="ls-key{kinds}">{escape(key)}{colours}</span></div>'
    )


def size_text(nbytes: float) -> str:
    """A size as a person reads it, decimal units: '8 B', '6.0 kB', '1.5 MB'."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if nbytes >= scale:
            return f"{nbytes / scale:.1f} {unit}"
    return f"{nbytes:.0f} B"
