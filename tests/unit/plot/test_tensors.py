from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kit.plot.cells import contributors, format_value
from kit.plot.tensors import tensor_names, tensors_height, tensors_html
from kit.plot.variables import default_name, item_label, split
from tests.traces import example
from tests.traces.builder import tensor
from tests.unit.plot import scenes
from tests.unit.plot.markup import classes, find, parse, rank_of, rows, tag, text


def grid(markup: str) -> list[list[str]]:
    return [[text(cell) for cell in row] for row in rows(parse(markup))]


def marked(markup: str, name: str) -> list[tuple[int, int]]:
    return [(r, c) for r, row in enumerate(rows(parse(markup))) for c, cell in enumerate(row) if name in classes(cell)]


def test_chunks_of_the_ring_as_rank_rows_and_chunk_columns() -> None:
    markup = tensors_html(example.held_ring(), -1)
    assert grid(markup) == [["0001"] * 4, ["0011", "0010", "0010", "0010"], ["0100"] * 4, ["1000"] * 4]
    heads = [text(th) for th in parse(markup).iter() if tag(th) == "th" and text(th).startswith("chunk")]
    assert heads == ["chunk 0", "chunk 1", "chunk 2", "chunk 3"]


def test_every_digit_stands_over_the_pip_of_the_rank_it_names() -> None:
    cell = list(rows(parse(tensors_html(example.held_ring(), -1))))[1][0]  # rank 1, chunk 0: 0011
    columns = [(text(column), rank_of(find(column, "ls-pip")[0])) for column in find(cell, "ls-digit")]
    assert columns == [("0", None), ("0", None), ("1", 1), ("1", 0)]
    assert "from ranks 0, 1" in (cell.get("title") or "")


def test_changed_since_the_position_before() -> None:
    trace = example.held_ring()
    assert marked(tensors_html(trace, -1), "ls-changed") == [(1, 0)]
    assert marked(tensors_html(trace, 0), "ls-changed") == []


def test_a_message_under_way_outlines_what_is_sent() -> None:
    markup = tensors_html(example.held_ring(), -1)
    assert marked(markup, "ls-sending") == [(2, 2)]
    assert marked(markup, "ls-awaiting") == []
    assert text(find(parse(markup), "ls-note")[0]) == "not shown: rank 0 awaits inbox"


def test_what_awaits_data_is_dashed() -> None:
    markup = tensors_html(example.held_ring(), -1, "inbox")
    assert marked(markup, "ls-awaiting") == [(0, 0), (0, 1)]
    assert "rank 2 sends chunk 2" in text(find(parse(markup), "ls-note")[0])


def test_views_of_one_memory_are_outlined_together() -> None:
    assert marked(tensors_html(example.held_ring(), -1, "x"), "ls-sending") == [(2, 4), (2, 5)]  # chunk 2 of x


def test_after_the_exchange_nothing_is_outlined() -> None:
    trace = example.ring(4)
    for position in range(len(trace.positions)):
        assert not marked(tensors_html(trace, position), "ls-sending")


def test_the_last_writer_where_digits_say_nothing() -> None:
    root = parse(tensors_html(example.via_root(), -1))
    assert {rank_of(pip) for pip in find(root, "ls-pip")} == {0}  # the broadcast's root
    assert "last written from rank 0" in (next(rows(root))[0].get("title") or "")


def test_a_value_counted_twice_says_so() -> None:
    held = [[tensor("x", np.full(1, 10.0**r, np.float32), 1)] for r in range(2)]
    trace = scenes.standing(2, held)
    assert contributors(12.0, 2) == (2, 1)
    assert "began" not in tensors_html(trace, 0) and "10ʳ: digits" in tensors_html(trace, 0)


@pytest.mark.parametrize(
    ("value", "world", "found"),
    [(1.0, 4, (1, 0, 0, 0)), (1111.0, 4, (1, 1, 1, 1)), (101, 3, (1, 0, 1)), (0.0, 4, ()), (2.5, 4, ()),
     (10000.0, 4, ()), (-1.0, 4, ()), (float("nan"), 2, ()), (float("inf"), 2, ()), (1 + 2j, 2, ())],
)  # fmt: skip
def test_contributors(value: float, world: int, found: tuple[int, ...]) -> None:
    assert contributors(value, world) == found


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.0, "0"), (-3.0, "-3"), (0.12345, "0.123"), (123456.0, "123456"), (1234567.0, "1.23e6"), (1e-7, "1.0e-7"),
     (float("nan"), "nan"), (float("-inf"), "-inf"), (True, "True"), (1 + 0.5j, "1+0.5j")],
)  # fmt: skip
def test_numbers_are_short(value: float, shown: str) -> None:
    assert format_value(value) == shown


@pytest.mark.parametrize(
    ("value", "room", "shown"),
    [(-1.2345e-7, 9, "-1.2e-7"), (-1.2345e-7, 5, "-1e-7"), (-0.5678, 5, "-0.57"), (0.1234, 5, "0.123"),
     (-1.2e-10, 3, "-1e-10"), (12, 1, "12")],
)  # fmt: skip
def test_a_number_gives_up_digits_but_never_its_exponent(value: float, room: int, shown: str) -> None:
    assert format_value(value, room=room) == shown


def test_what_travelled_last_is_followed() -> None:
    trace = scenes.two_gradients_travel()
    assert default_name(trace, 0) == "weight.grad", "nothing has travelled: what comes first"
    assert [default_name(trace, position) for position in (1, 2)] == ["weight.grad", "bias.grad"]


def test_averages_are_plain_numbers_and_exact_where_that_is_short() -> None:
    held = [[tensor("x", np.full(2, 10.0**r if r else 1.0, np.float32), 1)] for r in range(4)]
    trace = scenes.standing(4, held)
    assert grid(tensors_html(trace, 0))[0] == ["0001", "0001"]
    assert format_value(277.75) == "277.75" and format_value(-277.75, room=5) == "-278"
    assert format_value(np.float32(1.1)) == "1.1" and format_value(1.2345678) == "1.23"


def test_names_can_be_chosen_and_lists_are_one_name() -> None:
    trace = example.held_ring()
    assert tensor_names(trace, -1) == ["x", "chunks", "inbox"]
    assert tensor_names(trace, 0) == ["x"]
    assert default_name(trace, 0) == "x"
    assert default_name(trace, -1) == "chunks"
    assert "inbox" in text(find(parse(tensors_html(trace, -1, "inbox")), "ls-head")[0])


def test_a_name_nobody_has_here_is_said() -> None:
    assert "No rank has inbox here." in text(parse(tensors_html(example.held_ring(), 0, "inbox")))


def test_names_as_the_learner_wrote_them() -> None:
    assert split("chunks[2]") == ("chunks", 2)
    assert split("a[0][1]") == ("a[0]", 1)
    assert split("model.0.weight.grad") == ("model.0.weight.grad", None)
    assert item_label("chunks[2]") == "chunk 2"
    assert item_label("loss[1]") == "loss[1]"


def test_inner_frames_hide_outer_ones_and_callers_stay_visible() -> None:
    trace = scenes.called()
    assert tensor_names(trace, -1) == ["t", "x"]
    assert default_name(trace, -1) == "x"  # all ranks have it, only two have t
    assert grid(tensors_html(trace, -1, "t"))[2] == ["", ""]


def test_matrices_summaries_and_odd_values() -> None:
    trace = scenes.many_tensors()
    assert len(find(parse(tensors_html(trace, -1, "matrix")), "ls-matrix")) == 4
    large = parse(tensors_html(trace, -1, "model.0.weight"))
    assert [text(e) for e in find(large, "ls-bad")] == ["3 NaN", "6 NaN", "9 NaN"]
    assert "1024 × 512 × float32" in text(large) and "mean 0.0125" in text(large)
    assert len(find(parse(tensors_html(trace, -1, "series")), "ls-strip")) == 4
    assert grid(tensors_html(trace, -1, "odd"))[0] == ["nan", "inf", "-1.0e-7", "1.23e5"]
    assert grid(tensors_html(trace, -1, "empty")) == [["empty"]] * 4
    assert grid(tensors_html(trace, -1, "mask"))[0] == ["True", "False", "True"]
    assert "model.0.weight.grad" in tensor_names(trace, -1)


def test_nan_that_stays_nan_has_not_changed() -> None:
    trace = example.failure()
    assert not any(r == 1 for r, _ in marked(tensors_html(trace, 4), "ls-changed"))


def test_the_area_is_as_high_for_every_kind_of_tensor() -> None:
    trace = scenes.many_tensors()
    for name in tensor_names(trace, -1):
        (cells,) = find(parse(tensors_html(trace, -1, name)), "ls-cells")
        assert cells.get("style") == f"height:{tensors_height(4)}px"


def test_a_rank_without_a_stop_yet_has_an_empty_row() -> None:
    trace = example.held_ring()
    states = [replace(state, stop=-1, place=None) if state.rank == 2 else state for state in trace.positions[-1].states]
    trace = replace(trace, positions=(replace(trace.positions[-1], states=tuple(states)),))
    assert grid(tensors_html(trace, 0))[2] == [""] * 4
