from __future__ import annotations

import pytest

from kit.trace import example
from kit.views import traffic_bars, traffic_html, traffic_svg, traffic_words
from tests.unit.views.markup import find, parse, rank_of, text


def test_messages_and_collectives_are_never_mixed() -> None:
    words = traffic_words(example.via_root())
    wire, algorithmic = words.split("; ")
    assert wire.startswith("wire bytes") and "rank 0 sent 0 B and received 3.0 MB" in wire
    assert algorithmic.startswith("algorithmic bytes") and "rank 0 sent 1.0 MB" in algorithmic


def test_only_the_kinds_a_run_has() -> None:
    assert "algorithmic" not in traffic_words(example.ring(4))
    assert "rank 2 sent 48 B and received 48 B" in traffic_words(example.ring(4))
    assert "wire" not in traffic_words(example.overlap())


def test_a_run_that_sent_nothing_says_so() -> None:
    assert "rank 0 sent 0 B and received 0 B" in traffic_words(example.deadlock())
    parse(traffic_svg(example.deadlock()))


def test_bars_wear_the_colours_of_ranks_and_words_say_the_same() -> None:
    root = parse(traffic_svg(example.via_root()))
    assert [rank_of(bar) for bar in find(root, "ls-sent")] == [0, 1, 2, 3, 0, 1, 2, 3]
    widths = [float(bar.get("width") or 0) for bar in find(root, "ls-received")]
    assert widths[0] == max(widths) and widths[1] == 0
    assert root.get("aria-label") == traffic_words(example.via_root())
    assert "3.0 MB received" in text(root)
    assert find(parse(traffic_html(example.ring(2))), "ls-head")


def test_a_kind_of_ones_choice() -> None:
    assert traffic_words(example.ring(4), ("payload",)).startswith("payload bytes")
    with pytest.raises(ValueError, match="choose from wire"):
        traffic_svg(example.ring(4), ("bits",))  # type: ignore[arg-type]


def test_bokeh_draws_the_same_bars() -> None:
    figure = traffic_bars(example.via_root())
    columns = figure.renderers[0].data_source.data
    assert "rank 0 received 3.0 MB (wire)" in columns["told"]
    assert max(columns["right"]) == 3_000_000
    assert "rank 0 sent 0 B (wire)" not in columns["told"]
