"""Flow charts of data parallel training, drawn for the ranks at hand, with the step in hand set off.

Each chart is a row of stages: a box on every rank, a box on one of them, or an operation that all take part in.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from typing import TYPE_CHECKING, Literal

from kit.plot.diagram import NOBODY, Diagram, FlowScript, subscript, svg_curve, svg_page, svg_text
from kit.plot.moment import pending, position_at, standing
from kit.plot.palette import INK, UNKNOWN, rank_color, text_on
from kit.trace.text import canonical
from kit.trace.trace import Trace

if TYPE_CHECKING:
    from mermaid.flowchart import Node

Kind = Literal["each", "one", "all"]  # a box on every rank, on rank 0 alone, one for all of them
MOST = 8


@dataclass(frozen=True, slots=True)
class Stage:
    """One column. label: what stands in its boxes, `{r}` the rank's number as a subscript, `{i}` as it is."""

    step: str  # which of `STEPS` it belongs to
    kind: Kind
    title: str
    label: str


@dataclass(frozen=True, slots=True)
class Chart:
    title: str
    sentence: str
    stages: tuple[Stage, ...]


STEPS = {  # what may be in hand, and how it is said
    "data": "handing each rank its part of the batch",
    "forward": "the forward pass",
    "backward": "the backward pass",
    "average": "averaging the gradients (all_reduce)",
    "reduce": "summing and dealing out the gradients (reduce_scatter)",
    "step": "the optimizer's step",
    "gather": "gathering the weights (all_gather)",
    "load": "reading the checkpoint",
    "broadcast": "handing the weights to every rank (broadcast)",
}
_DATA = Stage("data", "each", "its batch", "x{r}")
_MODEL = Stage("forward", "each", "same weights", "w")
_LOSS = Stage("forward", "each", "its loss", "L{r}")
_GRADIENT = Stage("backward", "each", "its gradient", "g{r}")
_AVERAGE = Stage("average", "all", "average", "all_reduce · mean")
_MEAN = Stage("average", "each", "same gradient", "ḡ")
_STEP = Stage("step", "each", "same step", "w − η ḡ")

CHARTS = {
    "forward": Chart(
        "data parallel: forward",
        "every rank has the same weights w and its own part of the batch, and computes its own loss; nothing is sent",
        (_DATA, _MODEL, _LOSS),
    ),
    "backward": Chart(
        "data parallel: backward",
        "every rank computes the gradient of its own loss; an all_reduce leaves the mean of all gradients on every "
        "rank; every rank takes the same step, so the weights stay equal",
        (_LOSS, _GRADIENT, _AVERAGE, _MEAN, _STEP),
    ),
    "full": Chart(
        "data parallel: one step",
        "the batch is split over the ranks; each computes a loss and a gradient with the same weights; the gradients "
        "are averaged by an all_reduce; every rank takes the same step",
        (Stage("data", "all", "batch", "x"), _DATA, _MODEL, _LOSS, _GRADIENT, _AVERAGE, _MEAN, _STEP),
    ),
    "checkpoint": Chart(
        "broadcast from a checkpoint",
        "rank 0 alone reads the file; a broadcast leaves the same weights on every rank",
        (
            Stage("load", "all", "file", "checkpoint"),
            Stage("load", "one", "reads", "w"),
            Stage("broadcast", "all", "hand out", "broadcast"),
            Stage("broadcast", "each", "same weights", "w"),
        ),
    ),
    "zero 1": Chart(
        "ZeRO, stage 1: one step",
        "a reduce_scatter leaves rank r with share r of the mean gradient; rank r steps share r of the weights, for "
        "which it alone keeps the optimizer's state; an all_gather leaves all weights on every rank",
        (
            _GRADIENT,
            Stage("reduce", "all", "sum, deal out", "reduce_scatter"),
            Stage("reduce", "each", "its share", "ḡ[{i}]"),
            Stage("step", "each", "steps its share", "w[{i}], m[{i}], v[{i}]"),
            Stage("gather", "all", "collect", "all_gather"),
            Stage("gather", "each", "all weights", "w"),
        ),
    ),
}
TRAINING = tuple(CHARTS)
_OPERATIONS = {"all_reduce": "average", "reduce_scatter": "reduce", "all_gather": "gather", "broadcast": "broadcast"}
_LINES = (
    (r"all_reduce|average_gradients", "average"), (r"reduce_scatter", "reduce"), (r"all_gather", "gather"),
    (r"broadcast", "broadcast"), (r"\bload\(|load_state_dict|from_pretrained", "load"), (r"\.backward\(", "backward"),
    (r"\.step\(", "step"), (r"scatter\(|next\(|sampler|\bloader\b", "data"),
)  # fmt: skip


def training_chart(name: str, ranks: int | Trace = 4, position: int | None = None, now: str | None = None) -> Diagram:
    """A flow chart of data parallel training; `TRAINING` lists the names: forward, backward, full, checkpoint, zero 1.

    ranks: how many, 1 to 8, or a trace, whose world is drawn. position: of the trace; the step that is in hand there is
    set off (see `step_in_hand`). now: a name of `STEPS` to set off instead. Raises ValueError for an unknown name,
    step or number of ranks.
    """
    key = name.lower().replace("-", " ").replace("_", " ")
    if key not in CHARTS:
        raise ValueError(f"there is no chart {name!r}: choose from {', '.join(TRAINING)}")
    if now is not None and now not in STEPS:
        raise ValueError(f"there is no step {now!r}: choose from {', '.join(STEPS)}")
    world = ranks if isinstance(ranks, int) else ranks.meta.world
    if not 1 <= world <= MOST:
        raise ValueError(f"a chart shows 1 to {MOST} ranks, not {world}: draw it for a number between them")
    if now is None and isinstance(ranks, Trace) and position is not None:
        now = step_in_hand(ranks, position)
    chart = CHARTS[key]
    if all(stage.step != now for stage in chart.stages):
        now = None
    text = f"{chart.title}, {world} {'rank' if world == 1 else 'ranks'}: {chart.sentence}."
    text += f" In hand: {STEPS[now]}." if now else ""
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


def step_in_hand(trace: Trace, position: int) -> str | None:
    """Which of `STEPS` the ranks are in at a position; None where nothing tells.

    An operation that ranks wait in, or are about to call, says so; else the line that the first rank of those that are
    not finished stands before: what it calls, or that a backward pass comes after it.
    """
    moment = position_at(trace, position)
    for state in moment.states:
        waited = [op.name for op in pending(trace, position, state.rank)]
        called = [state.operation.split()[0]] if state.operation and state.phase in ("waiting", "paused") else []
        for operation in (*waited, *called):
            if canonical(operation) in _OPERATIONS:
                return _OPERATIONS[canonical(operation)]
    here = next((p for state in moment.states if (p := standing(trace, position, state.rank)) and not p.finished), None)
    source = trace.source(here.here.file) if here is not None and here.here is not None else None
    if here is None or here.here is None or source is None or not 1 <= here.here.line <= len(source.lines):
        return None
    line, later = source.lines[here.here.line - 1], source.lines[here.here.line :]
    found = next((step for pattern, step in _LINES if re.search(pattern, line)), None)
    if (
        found is None
        and "(" in line
        and not line.strip().startswith("def ")
        and any(".backward(" in one for one in later)
    ):
        return "forward"
    return found


def ranks_of(stage: Stage, world: int) -> range:
    """The ranks with a box in this stage; a single one stands for all where it belongs to none."""
    return range(world) if stage.kind == "each" else range(1)


def label_of(stage: Stage, rank: int) -> str:
    return stage.label.replace("{r}", subscript(rank)).replace("{i}", str(rank))


def _script(chart: Chart, world: int, now: str | None, text: str) -> str:
    drawing = FlowScript()
    columns = [
        [_node(drawing, f"s{column}r{rank}", stage, rank, stage.step == now, now is not None) for rank in own]
        for column, (stage, own) in enumerate((stage, ranks_of(stage, world)) for stage in chart.stages)
    ]
    drawing.nodes = [node for column in columns for node in column]
    for left, right in pairwise(columns):
        for a, b in zip(left, right, strict=True) if len(left) == len(right) else product(left, right):
            drawing.link(a, b)
    return drawing.script(f"{chart.title}, {world} ranks", text)


def _node(drawing: FlowScript, key: str, stage: Stage, rank: int, in_hand: bool, some: bool) -> Node:
    """A box in the rank's colour, with a thick rim in hand, faint beside something in hand."""
    for_all = stage.kind == "all"
    fill = NOBODY if for_all else rank_color(rank)
    rim = UNKNOWN if in_hand or for_all else fill
    look = f"fill:{fill},stroke:{rim},color:{INK if for_all else text_on(fill)}"
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
