"""A diagram in three forms: a Mermaid script, a small SVG made in the kernel, and words.

JupyterLab draws `text/vnd.mermaid` by itself and offline; other viewers take the SVG; a terminal prints the words.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kit.plot.markup import escape
from kit.plot.palette import UNKNOWN, rank_color, text_on

if TYPE_CHECKING:
    from mermaid.flowchart import Link, Node

# JupyterLab draws a chart once, in the theme of that moment: every colour reads on a light page and on a dark one
NOBODY = "#5f6b76"  # a neutral fill for what belongs to no rank: a sum, an operation, a word on an arrow
ON_NOBODY = text_on(NOBODY)
NOBODYS_LOOK = f"fill:{NOBODY},stroke:{UNKNOWN},color:{ON_NOBODY}"
_COMPACT = (
    '%%{init: {"flowchart": {"nodeSpacing": 8, "rankSpacing": 44, "padding": 6},'
    f' "themeVariables": {{"edgeLabelBackground": "{NOBODY}"}}}}}}%%'
)
_HIDDEN = "~~~"  # how mermaid-py writes a link that only keeps order; a colour would make it visible


@dataclass(frozen=True, slots=True)
class Diagram:
    """What a notebook shows for a flow chart. `str()` is the words."""

    script: str
    svg: str  # stands alone: carries its own colours
    text: str

    def __str__(self) -> str:
        return self.text

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Any]:
        return {"text/vnd.mermaid": self.script, "image/svg+xml": self.svg, "text/plain": self.text}


class FlowScript:
    """A Mermaid flow chart from left to right, made with mermaid-py's builders: the same text in every process.

    mermaid-py writes a title block that breaks on a colon and collects styles in a set, so classes are kept here and
    sorted, and title and description become the picture's alternative text.
    """

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.links: list[Link] = []
        self._looks: set[str] = set()
        self._worn: set[str] = set()

    def node(self, key: str, text: str, wears: str, look: str, shape: str = "round-edge", **more: Any) -> Node:
        """A box that wears a class, which looks so: 'fill:none,stroke:none'. It is drawn once it is in `nodes`."""
        from mermaid.flowchart import Node

        self._looks.add(f"classDef {wears} {look}")
        self._worn.add(f"class {key} {wears}")
        return Node(key, quoted(text), shape, **more)

    def rank(self, key: str, rank: int) -> Node:
        """A rank in its colour."""
        return self.node(key, f"rank {rank}", f"rank{rank}", rank_look(rank))

    def link(self, start: Node, end: Node, shape: str = "normal", message: str = "") -> None:
        """shape: 'normal', 'dotted' or 'hidden', which only keeps two boxes in order."""
        from mermaid.flowchart import Link

        head = {"head_right": "none"} if shape == "hidden" else {}  # with an arrow head a hidden link does not parse
        self.links.append(Link(start, end, shape, message=message, **head))

    def script(self, title: str, description: str) -> str:
        from mermaid.flowchart import FlowChart

        built = FlowChart("x", self.nodes, self.links, "LR").script
        head, _, body = built.partition("flowchart LR\n")
        assert head.endswith("---\n"), "mermaid-py wrote its title block in another form"
        drawn = [str(i) for i, link in enumerate(self.links) if link.shape != _HIDDEN]
        lines = [
            _COMPACT,
            "flowchart LR",
            f"\taccTitle: {_one_line(title)}",
            f"\taccDescr: {_one_line(description)}",
            body.rstrip("\n"),
            *(f"\t{line}" for line in (*sorted(self._looks), *sorted(self._worn))),
            f"\tlinkStyle {','.join(drawn)} stroke:{UNKNOWN},stroke-width:1.5px,color:{ON_NOBODY}" if drawn else "",
        ]
        return "\n".join(line for line in lines if line.strip()) + "\n"


def rank_look(rank: int) -> str:
    """The style of what belongs to a rank."""
    color = rank_color(rank)
    return f"fill:{color},stroke:{color},color:{text_on(color)}"


def quoted(text: str) -> str:
    """Text that may stand between the quotes of a Mermaid label, whatever a learner wrote in it."""
    return "".join(f"#{ord(letter)};" if letter in '#"<>&`\\|' else letter for letter in _one_line(text))


def _one_line(text: str) -> str:
    return " ".join(text.split())


# ------------------------------------------------------------------------------- the same as SVG, on paper of its own


def svg_page(width: float, height: float, text: str, parts: Iterable[str]) -> str:
    """A drawing that stands alone; `text` says it in words."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" width="{width:.0f}" '
        f'height="{height}" role="img" aria-label="{escape(text)}" font-family="system-ui, DejaVu Sans, sans-serif">'
        f"<title>{escape(text)}</title>{''.join(parts)}</svg>"
    )


def svg_text(
    x: float, y: float, text: str, fill: str = UNKNOWN, weight: str = "normal", size: float = 11, anchor: str = "middle"
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size:g}" font-weight="{weight}" '
        f'fill="{fill}">{escape(text)}</text>'
    )


def svg_curve(x1: float, y1: float, x2: float, y2: float, color: str, alpha: float = 1.0) -> str:
    """A curve that leaves and arrives level, with its own head."""
    tip = x2 - 6
    bend = (tip - x1) * 0.5
    return (
        f'<g opacity="{alpha:g}"><path d="M{x1:.1f} {y1:.1f} C{x1 + bend:.1f} {y1:.1f} {tip - bend:.1f} {y2:.1f} '
        f'{tip:.1f} {y2:.1f}" fill="none" stroke="{color}" stroke-width="1.6"/>'
        f'<path d="M{x2:.1f} {y2:.1f} l-7 -3.5 v7 z" fill="{color}"/></g>'
    )


def subscript(number: int) -> str:
    return str(number).translate(str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉"))
