"""Flow charts of data parallel training, drawn for the ranks at hand, with the step in hand set off.

Each chart is a row of stages: a box on every rank, a box on one of them, or an operation that all take part in.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from kit.plot.diagram import Diagram, flow_script, quoted
from kit.plot.markup import escape
from kit.plot.moment import pending, position_at, standing
from kit.plot.palette import INK, UNKNOWN, rank_color, text_on
from kit.trace.text import canonical
from kit.trace.trace import Trace

if TYPE_CHECKING:
    from mermaid.flowchart import Link, Node

Kind = Literal["each", "one", "all"]  # a box on every rank, on rank 0 alone, one for all of them
SUM = "#e7e9ec"  # what belongs to no rank: a neutral fill
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
    subscript = str(rank).translate(str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉"))
    return stage.label.replace("{r}", subscript).replace("{i}", str(rank))


def _script(chart: Chart, world: int, now: str | None, text: str) -> str:
    from mermaid.flowchart import Link, Node

    nodes: list[list[Node]] = []
    links: list[Link] = []
    styles: set[str] = set()
    classes: set[str] = set()
    for column, stage in enumerate(chart.stages):
        own = []
        for rank in ranks_of(stage, world):
            name = f"s{column}r{rank}"
            in_hand = stage.step == now
            text_of = label_of(stage, rank) if stage.kind == "all" else f"rank {rank}: {label_of(stage, rank)}"
            mark = "▶ " if in_hand else ""
            own.append(Node(name, quoted(mark + text_of), "stadium-shape" if stage.kind == "all" else "round-edge"))
            kind, style = _style(stage, rank, in_hand, now is not None)
            styles.add(f"classDef {kind} {style}")
            classes.add(f"class {name} {kind}")
        nodes.append(own)
    for left, right in zip(nodes, nodes[1:], strict=False):
        pairs = zip(left, right, strict=True) if len(left) == len(right) else ((a, b) for a in left for b in right)
        links += [Link(a, b) for a, b in pairs]
    flat = [node for own in nodes for node in own]
    return flow_script(flat, links, "LR", f"{chart.title}, {world} ranks", text, styles, classes)


def _style(stage: Stage, rank: int, in_hand: bool, some: bool) -> tuple[str, str]:
    """(name, definition) of a class: the rank's colour, a thick rim in hand, faint beside something in hand."""
    fill = SUM if stage.kind == "all" else rank_color(rank)
    stroke = UNKNOWN if in_hand or stage.kind == "all" else fill
    style = f"fill:{fill},stroke:{stroke},color:{INK if stage.kind == 'all' else text_on(fill)}"
    name = "hub" if stage.kind == "all" else f"rank{rank}"
    if in_hand:
        return f"{name}now", f"{style},stroke-width:4px"
    return (f"{name}faint", f"fill:{fill},stroke:{stroke},color:{UNKNOWN},fill-opacity:0.12") if some else (name, style)


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
    parts = [_rank(rank) for rank in range(world)]
    for i in range(1, len(columns)):
        alpha = 1.0 if not some or columns[i][2] else _FAINT
        parts += _arrows(
            columns[i - 1], columns[i], left[i - 1] + wide[i - 1], left[i], rows[i - 1], rows[i], world, alpha
        )
    for (title, kind, now, labels), x, w, own in zip(columns, left, wide, rows, strict=True):
        mark = "▶ " if now else ""
        parts.append(_text(x + w / 2, 14, mark + title, weight="bold" if now else "normal"))
        for rank, label in zip(own, labels, strict=True):
            y = _middle(kind, rank, world)
            fill = SUM if kind == "all" else rank_color(rank)
            rim = UNKNOWN if now or kind == "all" else fill
            faint = some and not now  # an outline with its text
            parts.append(
                f'<rect x="{x:.1f}" y="{y - _HIGH / 2:.1f}" width="{w:.1f}" height="{_HIGH}" '
                f'rx="{12 if kind == "all" else 4}" fill="{fill}" fill-opacity="{0.12 if faint else 1}" '
                f'stroke="{rim}" stroke-width="{3 if now else 1}"/>'
            )
            parts.append(_text(x + w / 2, y + 4, label, fill=UNKNOWN if faint else text_on(fill), size=11))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-label="{escape(text)}" font-family="system-ui, DejaVu Sans, sans-serif">'
        f"<title>{escape(text)}</title>{''.join(parts)}</svg>"
    )


def _width(title: str, labels: Sequence[str]) -> float:
    """The same whether the column is in hand or not, so that nothing moves."""
    return max(46.0, *(14 + _LETTER * len(label) for label in labels), _MARK + _TITLE * len(title))


def _middle(kind: str, rank: int, world: int) -> float:
    """The height of a box's middle: its rank's row, or the middle of all."""
    return _TOP + (world * _ROW / 2 if kind == "all" else rank * _ROW + _ROW / 2)


def _rank(rank: int) -> str:
    y = _TOP + rank * _ROW + _ROW / 2
    return _text(2, y + 4, f"rank {rank}", anchor="start")


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
    if len(sources) == len(targets):
        pairs = list(zip(sources, targets, strict=True))
    else:
        pairs = [(a, b) for a in sources for b in targets]
    parts = []
    for a, b in pairs:
        y1, y2 = _middle(before[1], a, world), _middle(after[1], b, world)
        color = rank_color(a) if before[1] != "all" else rank_color(b) if after[1] != "all" else UNKNOWN
        parts.append(_line(x1 + 3, y1, x2 - 2, y2, color, alpha))
    return parts


def _line(x1: float, y1: float, x2: float, y2: float, color: str, alpha: float) -> str:
    """A curve that leaves and arrives level, with its own head."""
    tip = x2 - 6
    bend = (tip - x1) * 0.5
    return (
        f'<g opacity="{alpha}"><path d="M{x1:.1f} {y1:.1f} C{x1 + bend:.1f} {y1:.1f} {tip - bend:.1f} {y2:.1f} '
        f'{tip:.1f} {y2:.1f}" fill="none" stroke="{color}" stroke-width="1.6"/>'
        f'<path d="M{x2:.1f} {y2:.1f} l-7 -3.5 v7 z" fill="{color}"/></g>'
    )


def _text(
    x: float, y: float, text: str, fill: str = UNKNOWN, weight: str = "normal", size: float = 10, anchor: str = "middle"
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size:g}" font-weight="{weight}" '
        f'fill="{fill}">{escape(text)}</text>'
    )
