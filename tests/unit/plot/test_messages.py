from __future__ import annotations

import pytest

from kit.plot.exchange import exchange
from kit.plot.messages import messages_caption, messages_html, messages_svg, messages_words
from tests.traces import example
from tests.unit.plot import scenes
from tests.unit.plot.markup import classes, find, parse, rank_of, tag, text


def labels(markup: str) -> list[str]:
    return [text(label) for label in find(parse(markup), "ls-label")]


def test_two_of_four_delivered() -> None:
    trace = example.held_ring()
    assert labels(messages_svg(trace, -1)) == [
        "chunk 0 · 8 B ✓", "chunk 1 · 8 B ✓", "chunk 2 · 8 B …", "into inbox · 8 B …",
    ]  # fmt: skip
    arrows = find(parse(messages_svg(trace, -1)), "ls-arrow")
    assert [rank_of(arrow) for arrow in arrows] == [0, 1, 2, 3]
    assert [("ls-pending" in classes(arrow)) for arrow in arrows] == [False, False, True, True]
    assert messages_caption(trace, -1) == "2 of 4 delivered · 16 B so far"


def test_the_total_is_named_once_the_run_is_over() -> None:
    assert messages_caption(example.ring(4), -1) == "4 of 4 delivered · 192 B of 192 B in all"
    assert messages_caption(example.ring(4), 10) == "4 of 4 delivered · 32 B of 192 B in all"


def test_words_say_what_the_picture_shows() -> None:
    trace = example.ring(4)
    for position in range(len(trace.positions)):
        root = parse(messages_svg(trace, position))
        words = messages_words(trace, position)
        assert root.get("aria-label") == words
        arrows = find(root, "ls-arrow")
        pending = [arrow for arrow in arrows if "ls-pending" in classes(arrow)]
        assert words.count("delivered") == len(arrows) - len(pending)
        assert words.count("waits") == len(pending)


def test_words_of_the_held_ring() -> None:
    assert messages_words(example.held_ring(), -1) == (
        "rank 0 to rank 1: chunk 0, 8 B, delivered; rank 1 to rank 2: chunk 1, 8 B, delivered; "
        "rank 2 to rank 3: chunk 2, 8 B, waits; rank 3 to rank 0: into inbox, 8 B, waits"
    )


def test_nothing_before_the_first_message() -> None:
    assert messages_words(example.held_ring(), 0) == "No message yet."
    assert messages_caption(example.held_ring(), 0) == "nothing sent yet"
    assert len(find(parse(messages_svg(example.held_ring(), 0)), "ls-node")) == 4


def test_a_new_exchange_replaces_the_old_one_of_its_channel() -> None:
    trace = example.ring(4)
    for position in range(len(trace.positions)):
        assert len(exchange(trace, position).parcels) in (0, 4)


def test_a_wait_is_not_seen_from_the_future() -> None:
    """The message that rank 3 sends later must not show at a position before it did."""
    trace = example.ring(4)
    first = next(p for p in range(len(trace.positions)) if exchange(trace, p).parcels)
    assert messages_caption(trace, first - 1) == "0 B of 192 B in all"


def test_both_ranks_send_first() -> None:
    markup = messages_svg(example.deadlock(), -1)
    assert labels(markup) == ["x · 8 B …", "x · 8 B …"]
    assert messages_words(example.deadlock(), -1).count("waits") == 2


def test_ranks_look_as_in_the_source() -> None:
    root = parse(messages_svg(example.held_ring(), -1))
    nodes = {rank_of(node): node for node in find(root, "ls-node")}
    assert "ls-waits" in classes(nodes[0]) and "ls-waits" not in classes(nodes[1])
    assert [tag(shape) for shape in nodes[3] if tag(shape) != "text"] == ["rect"]  # held: square


@pytest.mark.parametrize(
    ("name", "root", "arrows"),
    [("all_reduce", None, 8), ("all_gather", None, 8), ("reduce_scatter", None, 8), ("barrier", None, 8),
     ("broadcast", 1, 3), ("scatter", 1, 3), ("gather", 2, 3), ("reduce", 2, 3), ("all_to_all", None, 12)],
)  # fmt: skip
def test_collectives_have_their_shapes(name: str, root: int | None, arrows: int) -> None:
    drawn = parse(messages_svg(scenes.collective_called_by(name, range(4), root=root, done=True), -1))
    assert len(find(drawn, "ls-arrow")) == arrows
    assert not find(drawn, "ls-pending")
    assert len(find(drawn, "ls-hub")) == (1 if arrows == 8 else 0)


def test_ranks_that_have_not_called_are_faint_and_named() -> None:
    trace = scenes.collective_called_by("all_reduce", [0, 2])
    root = parse(messages_html(trace, -1))
    assert [classes(arrow) >= {"ls-absent", "ls-pending"} for arrow in find(root, "ls-arrow")] == [
        False, True, False, True,
    ]  # fmt: skip
    assert messages_words(trace, -1) == "all_reduce (SUM): ranks 0 and 2 called it; ranks 1 and 3 not yet"
    assert messages_caption(trace, -1) == "all_reduce of x · 2 of 4 called · 16 B each"
    assert text(find(root, "ls-head")[0]).startswith("Collective")


def test_a_barrier_moves_no_bytes() -> None:
    assert messages_caption(scenes.collective_called_by("barrier", [0]), -1) == "barrier · 1 of 4 called"


def test_every_arrow_has_words_of_its_own() -> None:
    root = parse(messages_svg(example.held_ring(), -1))
    titles = [text(child) for arrow in find(root, "ls-arrow") for child in arrow if tag(child) == "title"]
    assert len(titles) == 4 and titles[2] == "rank 2 to rank 3: chunk 2, 8 B, waits"
