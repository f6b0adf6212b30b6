from __future__ import annotations

import pytest

from kit.plot.figure import Axes, Boxes, Figure
from kit.plot.traffic import traffic_figure
from tests.traces import example


def bars(axes: Axes) -> tuple[Boxes, Boxes]:
    """(sent, received) of a block."""
    sent, received = axes.marks
    assert isinstance(sent, Boxes) and isinstance(received, Boxes)
    return sent, received


def blocks(figure: Figure) -> tuple[Axes, ...]:
    (column,) = figure.columns
    return column.axes


def test_messages_and_collectives_are_never_mixed() -> None:
    wire, algorithmic = traffic_figure(example.via_root()).words.split("; ")
    assert wire.startswith("wire bytes") and "rank 0 sent 0 B and received 3.0 MB" in wire
    assert algorithmic.startswith("algorithmic bytes") and "rank 0 sent 1.0 MB" in algorithmic


def test_only_the_kinds_a_run_has() -> None:
    ring = traffic_figure(example.ring(4))
    assert "algorithmic" not in ring.words and len(blocks(ring)) == 1
    assert "rank 2 sent 48 B and received 48 B" in ring.words
    assert "wire" not in traffic_figure(example.overlap()).words


def test_a_run_that_sent_nothing_says_so() -> None:
    figure = traffic_figure(example.deadlock())
    assert "rank 0 sent 0 B and received 0 B" in figure.words
    assert [len(boxes.left) for boxes in bars(blocks(figure)[0])] == [0, 0]


def test_bars_wear_the_colours_of_ranks_and_their_sizes_stand_beside_them() -> None:
    wire, algorithmic = blocks(traffic_figure(example.via_root()))
    sent, received = bars(wire)
    assert sent.kinds == ("rank 1", "rank 2", "rank 3"), "a bar of no length would still have an edge"
    assert received.kinds == ("rank 0",) and received.right.tolist() == [3_000_000.0]
    assert received.outline and not sent.outline
    assert list(received.told) == ["rank 0 received 3.0 MB (wire)"]
    assert [text for _, text in wire.right][0] == "0 B sent · 3.0 MB received"
    assert wire.x == algorithmic.x, "one scale for all kinds"


def test_a_kind_of_ones_choice() -> None:
    assert traffic_figure(example.ring(4), ("payload",)).words.startswith("payload bytes")
    with pytest.raises(ValueError, match="choose from wire"):
        traffic_figure(example.ring(4), ("bits",))  # type: ignore[arg-type]
