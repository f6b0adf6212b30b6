from __future__ import annotations

import socket

import mermaid
import pytest

from kit.plot.diagram import Diagram
from kit.topics.collectives.figures import COLLECTIVES, collective, collective_chart
from tests.unit.plot.markup import parse, tag, text
from tests.unit.plot.mermaid_rules import check_flow_chart


@pytest.mark.parametrize("ranks", [2, 4, 8])
@pytest.mark.parametrize("name", COLLECTIVES)
def test_charts_of_all_collectives(name: str, ranks: int) -> None:
    chart = collective_chart(name, ranks)
    check_flow_chart(chart.script)
    assert chart.script == collective_chart(name, ranks).script
    picture = parse(chart.svg)
    assert picture.get("aria-label") == chart.text
    shown = collective(name, ranks)
    pieces = [piece.label for rows in (shown.before, shown.after) for row in rows for piece in row]
    drawn = [text(e) for e in picture.iter() if tag(e) == "text"]
    for label in pieces:
        assert drawn.count(label) >= pieces.count(label)
        assert chart.text.count(label) >= pieces.count(label)


def test_three_forms_for_three_viewers() -> None:
    bundle = collective_chart("all_reduce")._repr_mimebundle_()
    assert set(bundle) == {"text/vnd.mermaid", "image/svg+xml", "text/plain"}
    assert isinstance(collective_chart("all_reduce"), Diagram)


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


def test_nothing_is_ever_asked_of_a_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a chart must not be drawn by a web service")

    monkeypatch.setattr(mermaid.Mermaid, "__init__", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    for name in COLLECTIVES:
        collective_chart(name)._repr_mimebundle_()


@pytest.mark.parametrize("name", COLLECTIVES)
def test_every_label_can_be_read_and_lies_inside_the_drawing(name: str) -> None:
    picture = parse(collective_chart(name, 8).svg)
    width = float(picture.get("width") or 0)
    for label in (e for e in picture.iter() if tag(e) == "text"):
        assert float(label.get("font-size") or 0) >= 10
        assert 0 <= float(label.get("x") or -1) <= width
