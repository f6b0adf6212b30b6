"""A flow chart of a pipeline: activations forward through the stages, gradients back, a stage a rank."""

from __future__ import annotations

from itertools import pairwise

from kit.plot.diagram import Diagram, FlowScript, rank_look, subscript, svg_curve, svg_page, svg_text
from kit.plot.palette import UNKNOWN, rank_color, text_on

MOST = 8
_WIDE, _HIGH, _GAP, _ROW, _TOP, _EDGE, _LAST = 76, 26, 26, 58, 26, 30, 44  # px


def pipeline_chart(ranks: int = 4) -> Diagram:
    """ranks: 1 to 8, each with a stage. Raises ValueError for another number."""
    if not 1 <= ranks <= MOST:
        raise ValueError(f"a chart shows 1 to {MOST} ranks, not {ranks}: draw it for a number between them")
    text = (
        f"pipeline, {ranks} {'rank' if ranks == 1 else 'ranks'}: the batch x enters stage 0 on rank 0; each stage hands"
        " its activation a to the next rank; the last one computes the loss L; gradients g come back the same way, and"
        " each stage adds up those of its own weights on its rank"
    )
    return Diagram(_script(ranks, text), _svg(ranks, text), text)


def _script(ranks: int, text: str) -> str:
    drawing = FlowScript()
    plain = f"fill:none,stroke:{UNKNOWN},color:{UNKNOWN}"
    stages = [drawing.node(f"s{r}", f"rank {r}: stage {r}", f"rank{r}", rank_look(r)) for r in range(ranks)]
    batch, loss = drawing.node("x", "x", "plain", plain), drawing.node("loss", "loss L", "plain", plain)
    drawing.nodes = [batch, *stages, loss]
    drawing.link(batch, stages[0])
    for r, (one, other) in enumerate(pairwise(stages)):
        drawing.link(one, other, message=f"a{subscript(r)}")
        drawing.link(other, one, message=f"g{subscript(r)}")
    drawing.link(stages[-1], loss)
    drawing.link(loss, stages[-1])
    return drawing.script(f"pipeline, {ranks} ranks", text)


def _svg(ranks: int, text: str) -> str:
    left = [_EDGE + (_WIDE + _GAP) * r for r in range(ranks)]
    end = left[-1] + _WIDE
    levels = (_TOP + _HIGH / 2, _TOP + _ROW + _HIGH / 2)
    parts = [svg_text(12, levels[0] + 4, "x"), svg_curve(18, levels[0], left[0] - 2, levels[0], UNKNOWN)]
    for r, x in enumerate(left):
        color = rank_color(r)
        parts.append(svg_text(x + _WIDE / 2, 14, f"rank {r}", weight="bold", size=10))
        for y, word in zip(levels, ("forward", "backward"), strict=True):
            parts.append(f'<rect x="{x}" y="{y - _HIGH / 2}" width="{_WIDE}" height="{_HIGH}" rx="4" fill="{color}"/>')
            parts.append(svg_text(x + _WIDE / 2, y + 4, word, fill=text_on(color)))
        if r + 1 < ranks:
            parts.append(svg_curve(x + _WIDE + 2, levels[0], left[r + 1] - 2, levels[0], color))
            parts.append(_back(left[r + 1] - 2, x + _WIDE + 2, levels[1], rank_color(r + 1)))
            parts.append(svg_text(x + _WIDE + _GAP / 2, levels[0] - 6, f"a{subscript(r)}", size=10))
            parts.append(svg_text(x + _WIDE + _GAP / 2, levels[1] - 6, f"g{subscript(r)}", size=10))
    middle, turn = sum(levels) / 2, end + _LAST / 2 + 8
    parts.append(f'<path d="M{end + 2} {levels[0]} H{turn} V{levels[1]} H{end + 8}" fill="none" stroke="{UNKNOWN}"/>')
    parts.append(f'<path d="M{end + 2} {levels[1]} l7 -3.5 v7 z" fill="{UNKNOWN}"/>')
    parts.append(svg_text(turn + 14, middle + 4, "L"))
    return svg_page(end + _LAST + 16, _TOP + _ROW + _HIGH + 8, text, parts)


def _back(x1: float, x2: float, y: float, color: str) -> str:
    """An arrow to the left."""
    return (
        f'<path d="M{x1} {y} H{x2 + 6}" stroke="{color}" stroke-width="1.6"/>'
        f'<path d="M{x2} {y} l7 -3.5 v7 z" fill="{color}"/>'
    )
