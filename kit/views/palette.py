"""Colours that mean one thing everywhere: a rank, or a kind of work.

Ranks 0 to 4 wear the Okabe-Ito palette (https://jfly.uni-koeln.de/color/). Its sky blue and vermilion are kept for the
two kinds of work, so ranks 5 to 7 wear three more colours, chosen to stay apart from all others for normal, protan,
deutan and tritan eyes. Rule beyond eight ranks: colours repeat (rank r wears the colour of rank r mod 8) and the chips
of every second round have a dashed rim. A rank's number is always on its chip: colour never carries the meaning alone.
"""

from __future__ import annotations

RANKS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#F0E442", "#882255", "#A6E3C4", "#7A4B1E")

COMPUTE = "#56B4E9"
COMMUNICATE = "#D55E00"
EXPOSED = "#8A2BE2"  # communication that no computing hides

# Kinds of memory. Communication buffers wear the colour of communicating.
MEMORY = {
    "parameters": "#4646D8",
    "gradients": "#E58AEE",
    "optimizer state": "#4FCB85",
    "activations": "#7A5674",
    "communication buffers": COMMUNICATE,
    "other": "#9AA4AF",
    "allocator": "#5F6B76",
}

HELD_LIGHT, HELD_DARK = "#d0d7de", "#3d444d"  # held back by the person: the grey of lines
WAIT = "none"  # waiting has no fill: a dashed outline, because nothing is being done

KINDS = {"compute": COMPUTE, "communicate": COMMUNICATE, "wait": WAIT, "held": HELD_LIGHT}

INK, PAPER = "#1f2328", "#ffffff"  # text on light, text on dark
UNKNOWN = "#768390"  # lines and text on a page whose theme cannot be known: readable on white and on near black


def rank_color(rank: int) -> str:
    """The fill of a rank's chip, pips and arrows, as '#rrggbb'."""
    return RANKS[rank % len(RANKS)]


def text_on(color: str) -> str:
    """Ink or paper, whichever reads better on the fill: at least 4.5 : 1 on every colour of this palette."""
    return max((INK, PAPER), key=lambda text: contrast(text, color))


def contrast(one: str, other: str) -> float:
    """Contrast ratio of two '#rrggbb' colours, 1 to 21 (WCAG 2.2, relative luminance)."""
    light, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def _luminance(color: str) -> float:
    red, green, blue = (_linear(int(color[i : i + 2], 16) / 255) for i in (1, 3, 5))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _linear(channel: float) -> float:
    return channel / 12.92 if channel <= 0.04045 else ((channel + 0.055) / 1.055) ** 2.4
