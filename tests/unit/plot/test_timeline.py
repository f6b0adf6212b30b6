"""The time of every rank: which boxes there are, what is faint, what the words and the axis say."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from kit.plot.figure import Axes, Boxes, Figure
from kit.plot.timeline import round_step, timeline_figure
from kit.trace.facts import RankTrace
from tests.traces import example


def blocks(figure: Figure) -> dict[str, Axes]:
    (column,) = figure.columns
    return {axes.subtitle.split(",")[0]: axes for axes in column.axes}


def bars(figure: Figure, block: str = "measured") -> Boxes:
    (boxes,) = blocks(figure)[block].marks
    assert isinstance(boxes, Boxes)
    return boxes


def kinds(boxes: Boxes) -> list[str]:
    return [boxes.kinds[kind] for kind in boxes.kind]


def test_a_box_for_every_span() -> None:
    trace = example.held_ring()
    drawn, spans = bars(timeline_figure(trace)), trace.spans()
    assert kinds(drawn) == [span.kind for span in spans]
    assert list(zip(drawn.left, drawn.right, strict=True)) == [(span.start, span.end) for span in spans]
    assert set(kinds(drawn)) == {"compute", "communicate", "wait", "held"}


def test_ranks_lie_below_each_other_and_flights_beneath_their_rank() -> None:
    trace = example.held_ring()
    drawn, spans = bars(timeline_figure(trace)), trace.spans()
    rows = {span.rank: top for span, top in zip(spans, drawn.top, strict=True) if not span.lane}
    assert list(rows.values()) == sorted(rows.values()) and len(set(rows.values())) == 4
    flights = [(span, i) for i, span in enumerate(spans) if span.lane]
    assert flights
    for span, i in flights:
        assert rows[span.rank] < drawn.top[i] and drawn.bottom[i] - drawn.top[i] < 6


def test_what_comes_later_is_faint_and_the_axis_stays() -> None:
    trace = example.ring(4)
    figures = [timeline_figure(trace, position) for position in range(len(trace.positions))]
    assert len({blocks(figure)["measured"].x for figure in figures}) == 1
    assert len({figure.height for figure in figures}) == 1
    for figure in (timeline_figure(trace), timeline_figure(trace, -1)):
        assert not np.any(bars(figure).faint)
    assert np.any(bars(figures[0]).faint) and not np.all(bars(figures[9]).faint)


def test_past_and_later_cover_the_record_once() -> None:
    trace = example.ring(4)
    own = [not span.lane for span in trace.spans()]
    lengths = bars(timeline_figure(trace)).right - bars(timeline_figure(trace)).left
    whole = lengths[np.array(own)].sum()
    for position in (3, 9, 20):
        drawn = bars(timeline_figure(trace, position))
        tall = drawn.bottom - drawn.top > 6
        assert (drawn.right - drawn.left)[tall].sum() == pytest.approx(whole, rel=0.02)


def test_predicted_stands_above_measured_on_one_axis() -> None:
    figure = timeline_figure(example.held_ring(), None, example.ring(4))
    assert list(blocks(figure)) == ["predicted", "measured"]
    upper, lower = blocks(figure).values()
    assert upper.x == lower.x == blocks(timeline_figure(example.ring(4)))["measured"].x
    assert upper.bare and not lower.bare


@pytest.mark.parametrize("longest", [3e-7, 9.9e-6, 1e-3, 1.66e-3, 0.5, 1.0, 73.0])
def test_the_axis_is_round_and_long_enough(longest: float) -> None:
    step = round_step(longest, 5)
    assert 5 * step >= longest * (1 - 1e-9)
    assert f"{step:.3e}"[0] in "125" and float(f"{step:.0e}") == pytest.approx(step)


def test_ticks_name_their_unit() -> None:
    ticks = blocks(timeline_figure(example.held_ring()))["measured"].x.ticks
    assert [label for _, label in ticks] == ["0 µs", "100 µs", "200 µs", "300 µs", "400 µs"]


def test_an_empty_record_has_an_axis() -> None:
    trace = example.ring(2)
    empty = replace(trace, ranks=tuple(RankTrace(r) for r in range(2)), positions=())
    figure = timeline_figure(empty)
    assert not len(bars(figure).left) and blocks(figure)["measured"].x.ticks
    assert "rank 0 has not begun" in figure.words


def test_words_say_the_same() -> None:
    words = timeline_figure(example.held_ring()).words
    assert re.search(r"rank 0 computes \d+ µs, waits still;", words)
    assert "rank 3" in words and "is held" in words


def test_tooltips_name_operation_and_line() -> None:
    told = bars(timeline_figure(example.held_ring())).told
    assert "rank 0 waits: recv from rank 3, line 8, not over yet" in told
    assert "rank 3 held, line 8, not over yet" in told


def test_it_is_as_high_as_it_is_told_and_many_ranks_share_numbers() -> None:
    assert timeline_figure(example.ring(8), height=90).height == 90
    ticks = blocks(timeline_figure(example.ring(8), height=90))["measured"].y.ticks
    assert [label for _, label in ticks] == ["0", "2", "4", "6"]


def test_a_stepped_run_says_that_a_person_s_pauses_are_left_out_and_a_recorded_one_has_none() -> None:
    subtitles = {
        drawn.meta.mode: timeline_figure(drawn).columns[0].axes[-1].subtitle
        for drawn in (example.ring(4), example.via_root())
    }
    assert subtitles == {"step": "measured, your pauses left out", "record": "measured"}


def test_how_far_devices_clocks_may_be_off_is_said() -> None:
    trace = example.ring()
    told = replace(trace, ranks=(replace(trace.ranks[0], clock_error=12_340), *trace.ranks[1:]))
    figure = timeline_figure(told)
    assert "measured, devices' clocks within 12.3 µs: rank 0" in figure.words
    (axes,) = figure.columns[0].axes
    assert axes.subtitle.endswith(", devices' clocks within 12.3 µs")
    assert "clocks" not in timeline_figure(trace).words
