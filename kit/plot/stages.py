"""A row of stages as a flow chart: a box on every rank, a box on one of them, or an operation that all take part in.

The stage in hand is set off, the others are faint. A chart is data; topics say theirs, and how a trace tells the stage.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from typing import TYPE_CHECKING, Literal

from kit.plot.diagram import NOBODY, Diagram, FlowScript, subscript, svg_curve, svg_page, svg_text
from kit.plot.moment import pending, position_at, standing
from kit.plot.palette import UNKNOWN, rank_color, text_on
from kit.trace.text import canonical, counted

if TYPE_CHECKING:
    from mermaid.flowchart import Node

    from kit.trace.trace import Trace

Kind = Literal["each", "one", "all"]  # a box on every rank, on one rank alone, one for all of them
MOST = 8


@dataclass(frozen=True, slots=True)
class Stage:
    """One column. label: what stands in its boxes, `{r}` the rank's number as a subscript, `{i}` as it is."""

    step: str  # which step it belongs to: what may be in hand
    kind: Kind
    title: str
    label: str
    rank: int = 0  # whose box it is, where it is on one rank alone


@dataclass(frozen=True, slots=True)
class StageChart:
    """What a chart shows, and the sentence that says the same."""

    title: str
    sentence: str
    stages: tuple[Stage, ...]


def stage_chart(chart: StageChart, world: int, steps: Mapping[str, str], now: str | None = None) -> Diagram:
    """The chart for `world` ranks. steps: how each step is said; now: the one that is set off.

    A step that this chart does not have changes nothing. Raises ValueError for an unknown one, and for more than eight
    ranks or none.
    """
    if now is not None and now not in steps:
        raise ValueError(f"there is no step {now!r}: choose from {', '.join(steps)}")
    if not 1 <= world <= MOST:
        raise ValueError(f"a chart shows 1 to {MOST} ranks, not {world}: draw it for a number between them")
    if all(stage.step != now for stage in chart.stages):
        now = None
    text = f"{chart.title}, {counted(world, 'rank')}: {chart.sentence}."
    text += f" In hand: {steps[now]}." if now else ""
    boxes = [[label_of(stage, rank) for rank in ranks_of(stage, world)] for stage in chart.stages]
    rows = [list(ranks_of(stage, world)) for stage in chart.stages]
    drawing = _svg(
        world,
        [
            (stage.title, stage.kind, stage.step == now, labels)
            for stage, labels in zip(chart.stages, boxes, strict=True)
        ],
        rows,
        text,
        some=now is not None,
    )
    return Diagram(_script(chart, world, now, text), drawing, text)


def operation_in_hand(trace: Trace, position: int, operations: Mapping[str, str]) -> str | None:
    """The step of the operation that ranks wait in, or are about to call, at a position; None for none of them.

    operations: an operation's plain name ('all_reduce') -> its step.
    """
    for state in position_at(trace, position).states:
        waited = [op.name for op in pending(trace, position, state.rank)]
        called = [state.operation.split()[0]] if state.operation and state.phase in ("waiting", "paused") else []
        for operation in (*waited, *called):
            if canonical(operation) in operations:
                return operations[canonical(operation)]
    return None


def lines_in_hand(trace: Trace, position: int) -> tuple[str, ...]:
    """The line that the first rank of those that are not finished stands before, and all after it; () if none does."""
    states = position_at(trace, position).states
    here = next((p for s in states if (p := standing(trace, position, s.rank)) and not p.finished), None)
    source = trace.source(here.here.file) if here is not None and here.here is not None else None
    if here is None or here.here is None or source is None or not 1 <= here.here.line <= len(source.lines):
        return ()
    return tuple(source.lines[here.here.line - 1 :])


def step_of_line(line: str, patterns: Sequence[tuple[str, str]]) -> str | None:
    """The step of the first (pattern, step) whose pattern is found in a line."""
    return next((step for pattern, step in patterns if re.search(pattern, line)), None)


def ranks_of(stage: Stage, world: int) -> range:
    """The ranks with a box in this stage; a single one stands for all where it belongs to none."""
    return {"each": range(world), "one": range(stage.rank, stage.rank + 1), "all": range(1)}[stage.kind]


def label_of(stage: Stage, rank: int) -> str:
    return stage.label.replace("{r}", subscript(rank)).replace("{i}", str(rank))


def _script(chart: StageChart, world: int, now: str | None, text: str) -> str:
    drawing = FlowScript()
    columns = [
        [_node(drawing, f"s{column}r{rank}", stage, rank, stage.step == now, now is not None) for rank in own]
        for column, (stage, own) in enumerate((stage, ranks_of(stage, world)) for stage in chart.stages)
    ]
    drawing.nodes = [node for column in columns for node in column]
    for left, right in pairwise(columns):
        for a, b in zip(left, right, strict=True) if len(left) == len(right) else product(left, right):
            drawing.link(a, b)
    return drawing.script(f"{chart.title}, {counted(world, 'rank')}", text)


def _node(drawing: FlowScript, key: str, stage: Stage, rank: int, in_hand: bool, some: bool) -> Node:
    """A box in the rank's colour, with a thick rim in hand, faint beside something in hand."""
    for_all = stage.kind == "all"
    fill = NOBODY if for_all else rank_color(rank)
    rim = UNKNOWN if in_hand or for_all else fill
    look = f"fill:{fill},stroke:{rim},color:{text_on(fill)}"
    wears = "hub" if for_all else f"rank{rank}"
    if in_hand:
        wears, look = f"{wears}now", f"{look},stroke-width:4px"
    elif some:
        wears, look = f"{wears}faint", f"fill:{fill},stroke:{rim},color:{UNKNOWN},fill-opacity:0.12"
    label = label_of(stage, rank) if for_all else f"rank {rank}: {label_of(stage, rank)}"
    return drawing.node(key, f"{'▶ ' * in_hand}{label}", wears, look, "stadium-shape" if for_all else "round-edge")


# ------------------------------------------------------------------------------------------ the same as SVG

Column = tuple[str, str, bool, Sequence[str]]  # (title, 'each', 'one' or 'all', in hand, what stands in its boxes)
_LETTER, _ROW, _HIGH, _TOP, _GAP, _EDGE, _RANK = 6.4, 34, 24, 26, 30, 4, 48  # px
_TITLE, _MARK = 6.2, 14  # px of a bold character of a title, and of the mark before it
_MOST = 832  # px
_FAINT = 0.45


def _svg(world: int, columns: Sequence[Column], rows: Sequence[Sequence[int]], text: str, some: bool) -> str:
    """The drawing. rows: for each column the ranks of its boxes. some: something is in hand, and the rest faint."""
    wide = [_width(title, labels) for title, _, _, labels in columns]
    gap = min(_GAP, (_MOST - _RANK - _EDGE - sum(wide)) / max(1, len(columns) - 1))
    left = [_RANK + sum(wide[:i]) + gap * i for i in range(len(columns))]
    width, height = round(left[-1] + wide[-1] + _EDGE), _TOP + world * _ROW + 4
    levels = [_middle("each", rank, world) + 4 for rank in range(world)]
    parts = [svg_text(2, y, f"rank {rank}", size=10, anchor="start") for rank, y in enumerate(levels)]
    for i in range(1, len(columns)):
        alpha = 1.0 if not some or columns[i][2] else _FAINT
        parts += _arrows(
            columns[i - 1], columns[i], left[i - 1] + wide[i - 1], left[i], rows[i - 1], rows[i], world, alpha
        )
    for (title, kind, now, labels), x, w, own in zip(columns, left, wide, rows, strict=True):
        mark = "▶ " if now else ""
        parts.append(svg_text(x + w / 2, 14, mark + title, weight="bold" if now else "normal", size=10))
        for rank, label in zip(own, labels, strict=True):
            y = _middle(kind, rank, world)
            fill = NOBODY if kind == "all" else rank_color(rank)
            rim = UNKNOWN if now or kind == "all" else fill
            faint = some and not now  # an outline with its text
            parts.append(
                f'<rect x="{x:.1f}" y="{y - _HIGH / 2:.1f}" width="{w:.1f}" height="{_HIGH}" '
                f'rx="{12 if kind == "all" else 4}" fill="{fill}" fill-opacity="{0.12 if faint else 1}" '
                f'stroke="{rim}" stroke-width="{3 if now else 1}"/>'
            )
            parts.append(svg_text(x + w / 2, y + 4, label, fill=UNKNOWN if faint else text_on(fill)))
    return svg_page(width, height, text, parts)


def _width(title: str, labels: Sequence[str]) -> float:
    """The same whether the column is in hand or not, so that nothing moves."""
    return max(46.0, *(14 + _LETTER * len(label) for label in labels), _MARK + _TITLE * len(title))


def _middle(kind: str, rank: int, world: int) -> float:
    """The height of a box's middle: its rank's row, or the middle of all."""
    return _TOP + (world * _ROW / 2 if kind == "all" else rank * _ROW + _ROW / 2)


def _arrows(
    before: Column,
    after: Column,
    x1: float,
    x2: float,
    sources: Sequence[int],
    targets: Sequence[int],
    world: int,
    alpha: float,
) -> list[str]:
    parts = []
    for a, b in zip(sources, targets, strict=True) if len(sources) == len(targets) else product(sources, targets):
        y1, y2 = _middle(before[1], a, world), _middle(after[1], b, world)
        color = rank_color(a) if before[1] != "all" else rank_color(b) if after[1] != "all" else UNKNOWN
        parts.append(svg_curve(x1 + 3, y1, x2 - 2, y2, color, alpha))
    return parts
