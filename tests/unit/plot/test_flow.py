from __future__ import annotations

import socket

import mermaid
import pytest

from kit.plot.diagram import quoted
from kit.plot.flow import flowchart
from kit.trace.trace import Trace
from tests.traces import example
from tests.unit.plot import scenes
from tests.unit.plot.markup import parse
from tests.unit.plot.mermaid_rules import check_flow_chart

SITUATIONS = {
    "held": example.held_ring(),
    "failure": example.failure(),
    "via root": example.via_root(),
    "deadlock": example.deadlock(),
    "hostile": scenes.hostile(),
    "nothing yet": scenes.called(),
    "reduce": scenes.collective_called_by("reduce", [0, 1], root=2),
    "everyone": scenes.collective_called_by("all_to_all", range(4), done=True),
}


@pytest.mark.parametrize("situation", SITUATIONS)
def test_flow_of_the_operation_in_view(situation: str) -> None:
    trace = SITUATIONS[situation]
    chart = flowchart(trace, -1)
    check_flow_chart(chart.script)
    assert parse(chart.svg).get("aria-label") == chart.text == str(chart)
    assert "<script" not in chart.svg


def test_pending_messages_are_dotted() -> None:
    links = [line.strip() for line in flowchart(example.held_ring(), -1).script.splitlines() if "|" in line]
    assert links == [
        'r0 -->|"chunk 0, 8 B"| t1', 'r1 -->|"chunk 1, 8 B"| t2', 'r2 -.->|"chunk 2, 8 B"| t3',
        'r3 -.->|"into inbox, 8 B"| t0',
    ]  # fmt: skip


def test_ranks_that_have_not_called_are_dotted() -> None:
    script = flowchart(scenes.collective_called_by("all_reduce", [0, 2]), -1).script
    assert "g0r0 --> op0" in script and "g0r1 -.-> op0" in script and "op0 -.-> t0r0" in script
    done = flowchart(scenes.collective_called_by("broadcast", range(4), root=1, done=True), -1).script
    assert done.count("--> op0") == 1 and done.count("op0 --> ") == 4


def test_the_flow_changes_only_when_the_operation_does() -> None:
    trace = example.ring(4)
    scripts = [flowchart(trace, position).script for position in range(len(trace.positions))]
    changes = sum(one != other for one, other in zip(scripts, scripts[1:], strict=False))
    assert changes == 6  # as many exchanges


def test_labels_survive_what_learners_write() -> None:
    assert quoted('a"<b>`c`#1\nd|e') == "a#34;#60;b#62;#96;c#96;#35;1 d#124;e"


def test_a_description_stays_on_one_line() -> None:
    trace: Trace = scenes.hostile()
    script = flowchart(trace, -1).script
    assert sum(line.strip().startswith("accDescr:") for line in script.splitlines()) == 1


def test_nothing_is_ever_asked_of_a_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a chart must not be drawn by a web service")

    monkeypatch.setattr(mermaid.Mermaid, "__init__", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    flowchart(example.held_ring(), -1)._repr_mimebundle_()
