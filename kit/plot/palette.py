"""Colours that mean one thing everywhere: a rank, a kind of work, a kind of memory.

Ranks 0 to 4 wear the Okabe-Ito palette (https://jfly.uni-koeln.de/color/). Its sky blue and vermilion are kept for the
two kinds of work, so ranks 5 to 7 wear three more colours, chosen to stay apart from all others for normal, protan,
deutan and tritan eyes. Rule beyond eight ranks: colours repeat (rank r wears the colour of rank r mod 8) and the chips
of every second round have a dashed rim. A rank's number is always on its chip: colour never carries the meaning alone.

Pictures name roles ('compute', 'rank 3', 'gradients'); `paint` says what a role looks like.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

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
    "workspaces": "#484850",
    "allocator": "#5F6B76",
}

INK, PAPER = "#1f2328", "#ffffff"  # text on light, text on dark
UNKNOWN = "#6f7b87"  # on a page whose theme cannot be known: as readable on white as on near black, 4.28 : 1 at best


@dataclass(frozen=True, slots=True)
class Paint:
    """What a role looks like on a light and on a dark page. outline: a dashed edge and no fill."""

    light: str
    dark: str
    alpha: float = 1.0
    outline: bool = False

    def on(self, dark: bool) -> str:
        """The colour for the page's theme, as '#rrggbb'."""
        return self.dark if dark else self.light


# What a pipeline computes. The two parts of a backward pass: the gradient of the input, and those of the weights.
PASSES = {
    "forward": Paint("#22577a", "#4a90bf"),
    "backward": Paint("#F2A65A", "#F2A65A"),
    "weights": Paint("#B9A2E0", "#B9A2E0"),
}


# Trainings in one picture, in words that read on either page: at least 4.5 : 1.
RUNS = (
    Paint("#0969da", "#4493f8"),
    Paint("#9a5b00", "#d29922"),
    Paint("#1a7f37", "#3fb950"),
    Paint("#8250df", "#ab7df8"),
    Paint("#bf3989", "#f778ba"),
    Paint("#57606a", "#9198a1"),
)


def rank_color(rank: int) -> str:
    """The fill of a rank's chip, pips and arrows, as '#rrggbb'."""
    return RANKS[rank % len(RANKS)]


def text_on(color: str) -> str:
    """Ink or paper, whichever reads better on the fill: at least 4.5 : 1 on every colour of a rank and of work."""
    return max((INK, PAPER), key=lambda text: contrast(text, color))


OF_A_WORD = 0.65  # a coloured word's share of its colour; the rest is the page's ink


def word_in(color: str) -> str:
    """CSS for a word in this colour on a page of either theme: nearer to the page's ink, so that it reads."""
    return f"color-mix(in srgb, {color} {OF_A_WORD:.0%}, var(--jp-ui-font-color1, {INK}))"


def contrast(one: str, other: str) -> float:
    """Contrast ratio of two '#rrggbb' colours, 1 to 21 (WCAG 2.2, relative luminance)."""
    light, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def _luminance(color: str) -> float:
    red, green, blue = (_linear(int(color[i : i + 2], 16) / 255) for i in (1, 3, 5))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _linear(channel: float) -> float:
    return channel / 12.92 if channel <= 0.04045 else ((channel + 0.055) / 1.055) ** 2.4


# Colours that follow the page's theme, of pictures and of the page around them. They stand here alone: kit.plot.style
# writes them into the style sheet.
THEMED = {
    "ink": Paint(INK, "#e6edf3"),
    "muted": Paint("#59636e", "#9198a1"),
    "ruler": Paint("#d0d7de", "#3d444d"),
    "held": Paint("#868f99", "#7d8590"),  # held back by the person: a grey that shows, 3 : 1 on the page
    "paper": Paint(PAPER, "#111417"),
}
PAGE = {
    "soft": Paint("#f6f8fa", "#1b2026"),
    "hi": Paint("#fff8c5", "#342d12"),  # the line in hand
    "accent": Paint("#0969da", "#4493f8"),
    "on-accent": Paint("#ffffff", "#0b1220"),
    "bad": Paint("#cf222e", "#ff7b72"),
    "good": Paint("#1a7f37", "#3fb950"),
    "string": Paint("#0a5c36", "#8fd19e"),
    "keyword": Paint("#6639a6", "#c7a6ff"),
}
ROLES = {
    **THEMED,
    "compute": Paint(COMPUTE, COMPUTE),
    "communicate": Paint(COMMUNICATE, COMMUNICATE),
    "exposed": Paint(EXPOSED, EXPOSED),
    "wait": replace(THEMED["muted"], outline=True),  # nothing is being done
    "on compute": Paint(text_on(COMPUTE), text_on(COMPUTE)),
    **{kind: Paint(color, color) for kind, color in MEMORY.items()},
    **PASSES,
    **{f"on {kind}": Paint(text_on(paint.light), text_on(paint.dark)) for kind, paint in PASSES.items()},
    "idle": Paint("#e4e8ec", "#262c33"),
    **{f"run {number}": paint for number, paint in enumerate(RUNS)},
    "every rank": Paint("#dfe3e8", "#3a424b"),  # what all ranks hold alike
    "all_reduce": Paint(COMMUNICATE, COMMUNICATE, alpha=0.85),
    "reduce_scatter": Paint(COMMUNICATE, COMMUNICATE, alpha=0.65),
    "all_gather": Paint(COMMUNICATE, COMMUNICATE, alpha=0.4),
}


def paint(role: str) -> Paint:
    """What a role looks like: 'rank 3', text 'on rank 3', a kind of work or of memory, a collective that is sent, or a
    theme's colour.
    """
    if role.startswith("rank "):
        color = rank_color(int(role[5:]))
        return Paint(color, color)
    if role.startswith("on rank "):
        color = text_on(rank_color(int(role[8:])))
        return Paint(color, color)
    return ROLES[role]


def role_class(role: str) -> str:
    """The CSS class that brings a role's colour (`--c`)."""
    if role.startswith("rank "):
        return f"ls-r{int(role[5:]) % len(RANKS)}"
    if role.startswith("on rank "):
        return f"ls-on-r{int(role[8:]) % len(RANKS)}"
    assert role in ROLES, f"{role} has no colour"
    return f"ls-{role.replace(' ', '-')}"
