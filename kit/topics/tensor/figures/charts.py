"""Flow charts of layers that are cut, drawn for the ranks at hand, with the step in hand set off."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kit.plot.diagram import subscript
from kit.plot.stages import Stage, StageChart, lines_in_hand, operation_in_hand, stage_chart, step_of_line
from kit.trace.trace import Trace

if TYPE_CHECKING:
    from kit.plot.diagram import Diagram

STEPS = {  # what may be in hand, and how it is said
    "hold": "what each rank begins with",
    "multiply": "each rank multiplies by its shard",
    "bend": "the nonlinearity, element by element",
    "norm": "the norm, position by position",
    "pass": "handing the sum so far to the next rank (send and receive)",
    "reduce": "adding up the terms (all_reduce)",
    "gather": "putting the parts together (all_gather)",
    "deal": "adding up the terms and dealing out the parts (reduce_scatter)",
    "bias": "adding the bias, once",
}
_X = Stage("hold", "each", "all have x", "x")
_SUM = Stage("reduce", "all", "add up", "all_reduce")

FIXED = {
    "columns": StageChart(
        "W cut by columns: forward",
        "every rank has the whole x and some columns of W, and computes those columns of y; nothing is sent",
        (_X, Stage("multiply", "each", "its columns", "x W{r}"), Stage("hold", "each", "a part of y", "y{r}")),
    ),
    "columns backward": StageChart(
        "W cut by columns: backward",
        "every rank has the gradient of its part of y; what it computes for x is one term of a sum, and an all_reduce"
        " adds up; the gradient of its columns of W is its own",
        (
            Stage("hold", "each", "its gradient", "dy{r}"),
            Stage("multiply", "each", "its term", "dy{r} W{r}ᵀ"),
            _SUM,
            Stage("hold", "each", "whole gradient", "dx"),
        ),
    ),
    "rows": StageChart(
        "W cut by rows: forward",
        "every rank has a part of x and the rows of W that belong to it; its product is one term of a sum, and an"
        " all_reduce adds up",
        (
            Stage("hold", "each", "a part of x", "x{r}"),
            Stage("multiply", "each", "its term", "x{r} W{r}"),
            _SUM,
            Stage("bias", "each", "plus b, once", "y"),
        ),
    ),
    "rows backward": StageChart(
        "W cut by rows: backward",
        "every rank has the whole gradient of y, and computes with its rows of W the gradient of its part of x; nothing"
        " is sent",
        (
            Stage("hold", "each", "all have dy", "dy"),
            Stage("multiply", "each", "its rows", "dy W{r}ᵀ"),
            Stage("hold", "each", "a part of dx", "dx{r}"),
        ),
    ),
    "mlp": StageChart(
        "an MLP, columns then rows: forward",
        "the first matrix is cut by columns, the second by rows; what one leaves on a rank is what the other wants"
        " there, so one all_reduce at the end is enough",
        (
            _X,
            Stage("multiply", "each", "its columns", "x A{r}"),
            Stage("bend", "each", "its features", "h{r} = gelu(x A{r})"),
            Stage("multiply", "each", "its term", "h{r} B{r}"),
            _SUM,
            Stage("bias", "each", "plus b, once", "y"),
        ),
    ),
    "mlp backward": StageChart(
        "an MLP, columns then rows: backward",
        "every rank goes back through its own features; only at the entry an all_reduce adds up",
        (
            Stage("hold", "each", "all have dy", "dy"),
            Stage("multiply", "each", "its rows", "dy B{r}ᵀ"),
            Stage("bend", "each", "its features", "dh{r}"),
            Stage("multiply", "each", "its term", "dh{r} A{r}ᵀ"),
            _SUM,
            Stage("hold", "each", "whole gradient", "dx"),
        ),
    ),
    "sequence": StageChart(
        "an MLP with its norm cut by positions: forward",
        "outside the two matrices each rank keeps some positions only; an all_gather puts them together, a"
        " reduce_scatter adds up and deals out again",
        (
            Stage("norm", "each", "its positions", "norm(x[{i}])"),
            Stage("gather", "all", "collect", "all_gather"),
            Stage("multiply", "each", "its columns", "gelu(x A{r})"),
            Stage("multiply", "each", "its term", "h{r} B{r}"),
            Stage("deal", "all", "sum, deal out", "reduce_scatter"),
            Stage("hold", "each", "its positions", "y[{i}]"),
        ),
    ),
}


def _chain(world: int) -> StageChart:
    """The sum passed on from rank to rank: the worked example of the ALCF's talk (2024)."""
    terms = " + ".join(f"x{subscript(rank)} W{subscript(rank)}" for rank in range(world))
    middle = tuple(
        Stage("pass", "one", f"rank {r} adds", f"+ x{subscript(r)} W{subscript(r)}", r) for r in range(1, world)
    )
    return StageChart(
        "a sum, rank after rank",
        f"y = {terms}: each rank adds its term to what it is handed and hands it on; the last has y",
        (Stage("multiply", "one", "rank 0 begins", "x₀ W₀", 0), *middle),
    )


LAYERS = ("chain", *FIXED)
_OPERATIONS = {
    "all_reduce": "reduce", "all_gather": "gather", "reduce_scatter": "deal", "send": "pass", "recv": "pass",
}  # fmt: skip
_LINES = (
    (r"all_reduce|sum_out", "reduce"), (r"all_gather|gather_in", "gather"), (r"reduce_scatter|scatter_out", "deal"),
    (r"dist\.(send|recv)", "pass"), (r"layer_norm", "norm"), (r"gelu|relu", "bend"), (r"@|linear\(", "multiply"),
    (r"\+ b\b", "bias"),
)  # fmt: skip


def tensor_chart(layer: str, ranks: int | Trace = 4, position: int | None = None, now: str | None = None) -> Diagram:
    """A flow chart of a layer that is cut; `LAYERS` lists them: chain, columns, columns backward, rows, mlp, ...

    ranks: how many, 1 to 8, or a trace, whose world is drawn. position: of the trace; the step that is in hand there is
    set off (see `step_in_hand`). now: a name of `STEPS` to set off instead. Raises ValueError for an unknown layer,
    step or number of ranks.
    """
    if layer not in LAYERS:
        raise ValueError(f"there is no chart {layer!r}: choose from {', '.join(LAYERS)}")
    world = ranks if isinstance(ranks, int) else ranks.meta.world
    if now is None and isinstance(ranks, Trace) and position is not None:
        now = step_in_hand(ranks, position)
    return stage_chart(FIXED[layer] if layer in FIXED else _chain(world), world, STEPS, now)


def step_in_hand(trace: Trace, position: int) -> str | None:
    """Which of `STEPS` the ranks are in at a position: what they wait in or are about to call, else what their line
    computes; None where nothing tells.
    """
    here = lines_in_hand(trace, position)[:1]
    return operation_in_hand(trace, position, _OPERATIONS) or next((step_of_line(line, _LINES) for line in here), None)
