from __future__ import annotations

import re
import socket

import mermaid
import pytest

from kit.trace import example
from kit.trace.facts import Trace
from kit.views import COLLECTIVES, Diagram, collective_chart, flowchart
from kit.views.collectives import collective
from kit.views.diagram import quoted
from tests.unit.views import scenes
from tests.unit.views.markup import parse, tag, text

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


def check_script(script: str) -> None:
    """The rules that Mermaid 11 holds a flow chart to, as far as mermaid-py is known to break them."""
    lines = [line.strip() for line in script.splitlines()]
    assert lines[0].startswith("%%{init:") and lines[1] == "flowchart LR"
    assert "---" not in lines, "a title block breaks on a colon"
    identifiers = re.findall(r"^(?:subgraph )?([a-z][a-z0-9]*) ?(?=[\[(])", "\n".join(lines), flags=re.MULTILINE)
    assert len(identifiers) == len(set(identifiers)) and not {"end", "graph", "class"} & set(identifiers)
    assert all(name == name.lower() for name in identifiers)
    links = [line for line in lines if re.search(r" (-->|-\.->|~~~)", line)]
    for line in links:
        match = re.fullmatch(r'([a-z]\w*) (-->|-\.->|~~~)(\|"[^"<>|`]*"\|)? ([a-z]\w*)', line)
        assert match, line
        assert {match[1], match[4]} <= set(identifiers)
    assert not [line for line in lines if re.search(r" (--|==|-\.-) ", line)]
    styles = [line for line in lines if line.startswith("classDef")]
    applied = [line for line in lines if line.startswith("class ")]
    assert styles == sorted(set(styles)) and applied == sorted(set(applied))
    defined = {line.split()[1] for line in styles}
    assert {line.split()[2] for line in applied} <= defined
    assert {line.split()[1] for line in applied} <= set(identifiers)
    coloured = re.search(r"^linkStyle ([\d,]+) ", "\n".join(lines), flags=re.MULTILINE)
    drawn = [str(i) for i, line in enumerate(links) if "~~~" not in line]
    assert (coloured[1].split(",") if coloured else []) == drawn
    assert lines[2].startswith("accTitle:") and lines[3].startswith("accDescr:")
    for label in re.findall(r'"([^"]*)"', "\n".join(lines[4:])):
        assert not set(label) & set("<>`")
    assert script.count("subgraph") == lines.count("end")


@pytest.mark.parametrize("ranks", [2, 4, 8])
@pytest.mark.parametrize("name", COLLECTIVES)
def test_charts_of_all_collectives(name: str, ranks: int) -> None:
    chart = collective_chart(name, ranks)
    check_script(chart.script)
    assert chart.script == collective_chart(name, ranks).script
    picture = parse(chart.svg)
    assert picture.get("aria-label") == chart.text
    shown = collective(name, ranks)
    pieces = [piece.label for rows in (shown.before, shown.after) for row in rows for piece in row]
    drawn = [text(e) for e in picture.iter() if tag(e) == "text"]
    for label in pieces:
        assert drawn.count(label) >= pieces.count(label)
        assert chart.text.count(label) >= pieces.count(label)


@pytest.mark.parametrize("situation", SITUATIONS)
def test_flow_of_the_operation_in_view(situation: str) -> None:
    trace = SITUATIONS[situation]
    chart = flowchart(trace, -1)
    check_script(chart.script)
    assert parse(chart.svg).get("aria-label") == chart.text == str(chart)
    assert "<script" not in chart.svg


def test_pending_messages_are_dotted() -> None:
    links = [line.strip() for line in flowchart(example.held_ring(), -1).script.splitlines() if "|" in line]
    assert links == [
        'r0 -->|"chunk 0, 8 B"| r1', 'r1 -->|"chunk 1, 8 B"| r2', 'r2 -.->|"chunk 2, 8 B"| r3',
        'r3 -.->|"into inbox, 8 B"| r0',
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


def test_three_forms_for_three_viewers() -> None:
    bundle = collective_chart("all_reduce")._repr_mimebundle_()
    assert set(bundle) == {"text/vnd.mermaid", "image/svg+xml", "text/plain"}
    assert isinstance(collective_chart("all_reduce"), Diagram)


def test_nothing_is_ever_asked_of_a_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a chart must not be drawn by a web service")

    monkeypatch.setattr(mermaid.Mermaid, "__init__", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    for name in COLLECTIVES:
        collective_chart(name)._repr_mimebundle_()
    flowchart(example.held_ring(), -1)._repr_mimebundle_()


def test_contents_before_and_after() -> None:
    def labels(name: str, side: str) -> list[str]:
        rows = getattr(collective(name, 3), side)
        return [" ".join(piece.label for piece in row) for row in rows]

    assert labels("broadcast", "before") == ["x", "", ""] and labels("broadcast", "after") == ["x", "x", "x"]
    assert labels("scatter", "after") == ["x₀", "x₁", "x₂"]
    assert labels("gather", "after") == ["x₀ x₁ x₂", "", ""]
    assert labels("reduce", "after") == ["Σ x", "", ""]
    assert labels("all_gather", "after") == ["x₀ x₁ x₂"] * 3
    assert labels("reduce_scatter", "after") == ["Σ x[0]", "Σ x[1]", "Σ x[2]"]
    assert labels("all_reduce", "after") == ["Σ x"] * 3
    assert labels("all_to_all", "before")[1] == "x₁[0] x₁[1] x₁[2]"
    assert labels("all_to_all", "after")[1] == "x₀[1] x₁[1] x₂[1]"
    assert labels("send_receive", "after") == ["x", "x", ""]
    assert labels("barrier", "after") == ["", "", ""]


def test_names_as_people_write_them() -> None:
    assert collective("all-reduce", 2).name == "all_reduce"
    assert collective("send/receive", 2).name == "send_receive"
    assert collective("AllReduce", 2).name == "all_reduce"


def test_a_root_of_ones_choice() -> None:
    assert "rank 2 hands its tensor to every rank" in collective_chart("broadcast", 4, root=2).text


@pytest.mark.parametrize(
    ("name", "ranks", "root", "says"),
    [("all_raduce", 4, 0, "choose from broadcast"), ("barrier", 1, 0, "2 to 8"), ("barrier", 9, 0, "2 to 8"),
     ("gather", 4, 4, "root 4")],
)  # fmt: skip
def test_wrong_requests_say_what_to_do(name: str, ranks: int, root: int, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        collective_chart(name, ranks, root)


def test_labels_survive_what_learners_write() -> None:
    assert quoted('a"<b>`c`#1\nd|e') == "a#quot;#lt;b#gt;#96;c#96;#35;1 d#124;e"


def test_a_description_stays_on_one_line() -> None:
    trace: Trace = scenes.hostile()
    script = flowchart(trace, -1).script
    assert sum(line.strip().startswith("accDescr:") for line in script.splitlines()) == 1
