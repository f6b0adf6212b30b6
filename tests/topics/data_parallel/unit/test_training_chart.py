"""Flow charts of data parallel training: every box, arrow and word, and which step is in hand."""

from __future__ import annotations

import re
import socket
from collections.abc import Sequence

import mermaid
import numpy as np
import pytest

from kit.plot.stages import label_of, ranks_of
from kit.topics.data_parallel.figures import TRAINING, training_chart
from kit.topics.data_parallel.figures.training import CHARTS, STEPS, step_in_hand
from kit.trace.facts import Region
from kit.trace.trace import Trace
from tests.traces.builder import TraceBuilder, tensor
from tests.unit.plot.markup import parse, tag, text
from tests.unit.plot.mermaid_rules import check_flow_chart

LINES = (
    "def train(model, batch):",
    "    loss = model(batch).square().mean()",
    "    loss.backward()",
    "    for p in model.parameters():",
    "        dist.all_reduce(p.grad)",
    "    optimizer.step()",
)


@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
@pytest.mark.parametrize("name", TRAINING)
def test_every_chart_for_every_number_of_ranks(name: str, ranks: int) -> None:
    chart = training_chart(name, ranks)
    check_flow_chart(chart.script)
    assert chart.script == training_chart(name, ranks).script
    picture = parse(chart.svg)
    assert picture.get("aria-label") == chart.text == str(chart)
    drawn = [text(e) for e in picture.iter() if tag(e) == "text"]
    for stage in CHARTS[name].stages:
        assert stage.title in drawn
        for rank in ranks_of(stage, ranks):
            assert label_of(stage, rank) in drawn
            assert label_of(stage, rank) in chart.script
    assert f"{ranks} rank" in chart.text and set(chart._repr_mimebundle_()) == {
        "text/vnd.mermaid", "image/svg+xml", "text/plain",
    }  # fmt: skip


def test_arrows_go_where_the_data_goes() -> None:
    def links(name: str, ranks: int) -> list[str]:
        return re.findall(r"^\s*(s\d+r\d+ --> s\d+r\d+)", training_chart(name, ranks).script, flags=re.MULTILINE)

    assert links("forward", 2) == ["s0r0 --> s1r0", "s0r1 --> s1r1", "s1r0 --> s2r0", "s1r1 --> s2r1"]
    into = [link for link in links("backward", 3) if link.endswith("s2r0")]
    out = [link for link in links("backward", 3) if link.startswith("s2r0")]
    assert len(into) == len(out) == 3, "all into the all_reduce, and all out of it"
    assert links("checkpoint", 3)[:2] == ["s0r0 --> s1r0", "s1r0 --> s2r0"], "rank 0 alone reads"
    assert len(links("zero 1", 4)) == 4 + 4 + 4 + 4 + 4


def test_the_step_in_hand_is_set_off_in_all_three_forms() -> None:
    plain, chart = training_chart("full", 2), training_chart("full", 2, now="average")
    assert "▶" not in plain.script + plain.svg and "faint" not in plain.script
    assert chart.text == f"{plain.text} In hand: averaging the gradients (all_reduce)."
    marked = re.findall(r'\["?▶ ([^"\]]*)|\("▶ ([^"]*)', chart.script)
    assert [a or b for a, b in marked] == ["all_reduce · mean", "rank 0: ḡ", "rank 1: ḡ"]
    assert chart.script.count("now\n") == 3 and "rank0faint" in chart.script
    titles = [text(e) for e in parse(chart.svg).iter() if tag(e) == "text" and text(e).startswith("▶")]
    assert titles == ["▶ average", "▶ same gradient"]
    boxes = [e for e in parse(chart.svg).iter() if tag(e) == "rect"]
    assert sum(e.get("stroke-width") == "3" for e in boxes) == 3
    assert sum(e.get("fill-opacity") == "0.12" for e in boxes) == len(boxes) - 3
    sizes = {re.search(r'width="(\d+)" height="(\d+)"', one.svg)[0] for one in (plain, chart)}  # type: ignore[index]
    assert len(sizes) == 1, "nothing moves when the step changes"


def test_no_chart_is_wider_than_a_panel() -> None:
    for name in TRAINING:
        assert int(re.search(r'width="(\d+)"', training_chart(name, 8).svg)[1]) <= 840  # type: ignore[index]


def test_a_step_that_a_chart_does_not_have_changes_nothing() -> None:
    assert training_chart("forward", 2, now="average") == training_chart("forward", 2)


def at(line: int, world: int = 3, lines: Sequence[str] = LINES) -> Trace:
    drawing = TraceBuilder("train", lines, world, "step")
    for rank in range(world):
        drawing.run(rank, 10)
        drawing.stop(rank, line, [tensor("x", np.zeros(2, np.float32), 1)])
    drawing.position("start")
    return drawing.trace()


def waiting_in(name: str, world: int = 3) -> Trace:
    drawing = TraceBuilder("train", LINES, world, "step")
    for rank in range(world):
        drawing.run(rank, 10)
        drawing.stop(rank, 5)
    drawing.position("start")
    drawing.run(1, 10)
    drawing.issue(1, name, "0/c/0", 5, [Region("inout", 1, 0, (2,), "float32")])
    drawing.waits(1, 5, name, [0, 2])
    drawing.position("step")
    return drawing.trace()


@pytest.mark.parametrize(("line", "step"), [(2, "forward"), (3, "backward"), (4, None), (5, "average"), (6, "step")])
def test_the_line_tells_the_step(line: int, step: str | None) -> None:
    assert step_in_hand(at(line), -1) == step


@pytest.mark.parametrize(
    ("name", "step"),
    [("all_reduce", "average"), ("reduce_scatter_tensor", "reduce"), ("all_gather_into_tensor", "gather"),
     ("broadcast", "broadcast")],
)  # fmt: skip
def test_an_operation_that_ranks_wait_in_tells_before_the_line(name: str, step: str) -> None:
    assert step_in_hand(waiting_in(name), -1) == step


def test_a_chart_of_a_trace_has_its_ranks_and_its_step() -> None:
    trace = waiting_in("all_reduce")
    chart = training_chart("backward", trace, -1)
    assert "3 ranks" in chart.text and chart.text.endswith("In hand: averaging the gradients (all_reduce).")
    assert training_chart("backward", trace).text == training_chart("backward", 3).text
    assert training_chart("backward", at(2), 0, now="step") == training_chart("backward", 3, now="step")


def test_nothing_is_ever_asked_of_a_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a chart must not be drawn by a web service")

    monkeypatch.setattr(mermaid.Mermaid, "__init__", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    for name in TRAINING:
        training_chart(name)._repr_mimebundle_()


def test_names_as_people_write_them() -> None:
    assert training_chart("ZeRO-1", 2) == training_chart("zero 1", 2)
    assert all(stage.step in STEPS for chart in CHARTS.values() for stage in chart.stages)


@pytest.mark.parametrize(
    ("name", "ranks", "now", "says"),
    [("sideways", 4, None, "choose from forward, backward, full, checkpoint, zero 1"), ("full", 0, None, "1 to 8"),
     ("full", 9, None, "1 to 8"), ("full", 4, "allreduce", "choose from data, forward")],
)  # fmt: skip
def test_wrong_requests_say_what_to_do(name: str, ranks: int, now: str | None, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        training_chart(name, ranks, now=now)
