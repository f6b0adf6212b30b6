"""A diagram in three forms: a Mermaid script, a small SVG made in the kernel, and words.

JupyterLab draws `text/vnd.mermaid` by itself and offline; other viewers take the SVG; a terminal prints the words.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kit.plot.palette import UNKNOWN

if TYPE_CHECKING:
    from mermaid.flowchart import Link, Node

_COMPACT = '%%{init: {"flowchart": {"nodeSpacing": 8, "rankSpacing": 44, "padding": 6}}}%%'
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


def flow_script(
    nodes: Sequence[Node],
    links: Sequence[Link],
    orientation: str,
    title: str,
    description: str,
    styles: Iterable[str],
    classes: Iterable[str],
) -> str:
    """A Mermaid script from mermaid-py's builders, the same text in every process.

    mermaid-py writes a title block that breaks on a colon and collects styles in a set, so both are left out of its
    part: `styles` are the lines that define classes, `classes` those that apply them; they are sorted. Title and
    description become the picture's alternative text.
    """
    from mermaid.flowchart import FlowChart

    built = FlowChart("x", list(nodes), list(links), orientation).script
    head, _, body = built.partition(f"flowchart {orientation}\n")
    assert head.endswith("---\n"), "mermaid-py wrote its title block in another form"
    drawn = [str(i) for i, link in enumerate(links) if link.shape != _HIDDEN]
    lines = [
        _COMPACT,
        f"flowchart {orientation}",
        f"\taccTitle: {_one_line(title)}",
        f"\taccDescr: {_one_line(description)}",
        body.rstrip("\n"),
        *(f"\t{line}" for line in sorted(set(styles))),
        *(f"\t{line}" for line in sorted(set(classes))),
        f"\tlinkStyle {','.join(drawn)} stroke:{UNKNOWN},stroke-width:1.5px" if drawn else "",
    ]
    return "\n".join(line for line in lines if line.strip()) + "\n"


def quoted(text: str) -> str:
    """Text that may stand between the quotes of a Mermaid label, whatever a learner wrote in it."""
    codes = {
        "#": "#35;",
        '"': "#quot;",
        "<": "#lt;",
        ">": "#gt;",
        "&": "#amp;",
        "`": "#96;",
        "\\": "#92;",
        "|": "#124;",
    }
    return "".join(codes.get(letter, letter) for letter in _one_line(text))


def _one_line(text: str) -> str:
    return " ".join(text.split())
