"""Flow charts of data parallel training, drawn for the ranks at hand, with the step in hand set off."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kit.plot.stages import Stage, StageChart, lines_in_hand, operation_in_hand, stage_chart, step_of_line
from kit.trace.trace import Trace

if TYPE_CHECKING:
    from kit.plot.diagram import Diagram

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
    "forward": StageChart(
        "data parallel: forward",
        "every rank has the same weights w and its own part of the batch, and computes its own loss; nothing is sent",
        (_DATA, _MODEL, _LOSS),
    ),
    "backward": StageChart(
        "data parallel: backward",
        "every rank computes the gradient of its own loss; an all_reduce leaves the mean of all gradients on every "
        "rank; every rank takes the same step, so the weights stay equal",
        (_LOSS, _GRADIENT, _AVERAGE, _MEAN, _STEP),
    ),
    "full": StageChart(
        "data parallel: one step",
        "the batch is split over the ranks; each computes a loss and a gradient with the same weights; the gradients "
        "are averaged by an all_reduce; every rank takes the same step",
        (Stage("data", "all", "batch", "x"), _DATA, _MODEL, _LOSS, _GRADIENT, _AVERAGE, _MEAN, _STEP),
    ),
    "checkpoint": StageChart(
        "broadcast from a checkpoint",
        "rank 0 alone reads the file; a broadcast leaves the same weights on every rank",
        (
            Stage("load", "all", "file", "checkpoint"),
            Stage("load", "one", "reads", "w"),
            Stage("broadcast", "all", "hand out", "broadcast"),
            Stage("broadcast", "each", "same weights", "w"),
        ),
    ),
    "zero 1": StageChart(
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
    world = ranks if isinstance(ranks, int) else ranks.meta.world
    if now is None and isinstance(ranks, Trace) and position is not None:
        now = step_in_hand(ranks, position)
    return stage_chart(CHARTS[key], world, STEPS, now)


def step_in_hand(trace: Trace, position: int) -> str | None:
    """Which of `STEPS` the ranks are in at a position; None where nothing tells.

    An operation that ranks wait in, or are about to call, says so; else the line that the first rank of those that are
    not finished stands before: what it calls, or that a backward pass comes after it.
    """
    operation = operation_in_hand(trace, position, _OPERATIONS)
    line, *later = lines_in_hand(trace, position) or ("",)
    step = operation or step_of_line(line, _LINES)
    calls = "(" in line and not line.strip().startswith("def ")
    return "forward" if step is None and calls and any(".backward(" in one for one in later) else step
