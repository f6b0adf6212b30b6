"""Flow charts of layers that are cut: as many collectives as the theory says, and the step in hand."""

from __future__ import annotations

import numpy as np
import pytest

from kit.plot.stages import label_of, ranks_of
from kit.topics.tensor import cost
from kit.topics.tensor.figures.charts import FIXED, LAYERS, STEPS, step_in_hand, tensor_chart
from kit.trace.facts import Region
from kit.trace.trace import Trace
from tests.traces.builder import TraceBuilder, tensor
from tests.unit.plot.markup import parse, tag, text
from tests.unit.plot.mermaid_rules import check_flow_chart

LINES = (
    "def layer(x, w, b):",
    "    y = x @ w.T",
    "    dist.all_reduce(y)",
    "    y = y + b",
    "    y = F.gelu(y)",
    "    return y",
)


@pytest.mark.parametrize("ranks", [1, 3, 8])
@pytest.mark.parametrize("layer", LAYERS)
def test_every_layer_for_every_number_of_ranks(layer: str, ranks: int) -> None:
    chart = tensor_chart(layer, ranks)
    check_flow_chart(chart.script)
    picture = parse(chart.svg)
    assert picture.get("aria-label") == chart.text == str(chart)
    assert float(picture.get("width", "inf")) <= 840
    drawn = [text(e) for e in picture.iter() if tag(e) == "text"]
    for stage in FIXED[layer].stages if layer in FIXED else ():
        assert stage.step in STEPS
        assert all(label_of(stage, rank) in drawn for rank in ranks_of(stage, ranks))


def test_a_chart_has_the_collectives_of_the_theory() -> None:
    expected = {
        ("columns", "forward"): cost.column(4, 3, 6),
        ("columns backward", "backward"): cost.column(4, 3, 6),
        ("rows", "forward"): cost.row(4, 3, 6),
        ("rows backward", "backward"): cost.row(4, 3, 6),
        ("mlp", "forward"): cost.mlp(4, 3),
        ("mlp backward", "backward"): cost.mlp(4, 3),
        ("sequence", "forward"): cost.mlp(4, 3, sequence=True),
    }
    for (layer, phase), calls in expected.items():
        drawn = [stage.label for stage in FIXED[layer].stages if stage.kind == "all"]
        assert drawn == [call.name for call in calls if call.phase == phase], layer


def test_a_chain_goes_from_rank_to_rank() -> None:
    chart = tensor_chart("chain", 3)
    assert "y = x₀ W₀ + x₁ W₁ + x₂ W₂" in chart.text
    assert chart.script.count("-->") == 2


def at(line: int) -> Trace:
    drawing = TraceBuilder("layer", LINES, 2, "step")
    for rank in range(2):
        drawing.run(rank, 10)
        drawing.stop(rank, line, [tensor("x", np.zeros(2, np.float32), 1)])
    drawing.position("start")
    return drawing.trace()


@pytest.mark.parametrize(("line", "step"), [(2, "multiply"), (3, "reduce"), (4, "bias"), (5, "bend"), (6, None)])
def test_the_line_tells_the_step(line: int, step: str | None) -> None:
    assert step_in_hand(at(line), 0) == step


def test_an_operation_that_ranks_wait_in_tells_before_the_line() -> None:
    drawing = TraceBuilder("layer", LINES, 2, "step")
    for rank in range(2):
        drawing.run(rank, 10)
        drawing.stop(rank, 2)
    drawing.position("start")
    drawing.run(1, 10)
    drawing.issue(1, "reduce_scatter_tensor", "0/c/0", 3, [Region("inout", 1, 0, (2,), "float32")])
    drawing.waits(1, 3, "reduce_scatter_tensor", [0])
    drawing.position("step")
    chart = tensor_chart("sequence", drawing.trace(), -1)
    assert chart.text.endswith("In hand: adding up the terms and dealing out the parts (reduce_scatter).")
    assert "▶ sum, deal out" in chart.svg


def test_wrong_requests_say_what_to_do() -> None:
    with pytest.raises(ValueError, match="choose from chain, columns"):
        tensor_chart("diagonals")
    with pytest.raises(ValueError, match="choose from hold, multiply"):
        tensor_chart("rows", 2, now="sum")
    with pytest.raises(ValueError, match="1 to 8 ranks, not 9"):
        tensor_chart("rows", 9)
