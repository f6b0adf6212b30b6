from __future__ import annotations

import re
from dataclasses import replace

import pytest

from kit.trace import example
from kit.trace.facts import RankTrace
from kit.trace.timeline import Span, spans
from kit.views import timeline, timeline_data, timeline_html, timeline_svg, timeline_words, update_timeline
from kit.views.bars import Bar, picture, round_step, visible
from kit.views.palette import COMMUNICATE, COMPUTE
from tests.unit.views.markup import classes, find, parse, tag, text


def kinds(markup: str) -> list[str]:
    return [next(iter(classes(e) - {"ls-ghost"})) for e in parse(markup).iter() if tag(e) == "rect"]


def test_a_bar_for_every_span() -> None:
    trace = example.held_ring()
    assert kinds(timeline_svg(trace)) == [f"ls-{span.kind}" for span in spans(trace)]
    assert {"ls-compute", "ls-communicate", "ls-wait", "ls-held"} == set(kinds(timeline_svg(trace)))


def test_bokeh_and_svg_are_the_same_picture() -> None:
    trace, predicted = example.ring(4), example.ring(4)
    columns = timeline_data(trace, 12, predicted)
    assert {len(column) for column in columns.values()} == {len(kinds(timeline_svg(trace, 12, predicted)))}
    assert [f"ls-{kind}" for kind in columns["kind"]] == kinds(timeline_svg(trace, 12, predicted))
    tips = [text(e) for e in parse(timeline_svg(trace, 12, predicted)).iter() if tag(e) == "title"]
    assert columns["told"] == tips


def test_kinds_have_their_colours_and_waiting_is_an_outline() -> None:
    columns = timeline_data(example.held_ring())
    drawn = {kind: (fill, alpha, dash) for kind, fill, alpha, dash in zip(
        columns["kind"], columns["fill"], columns["fill_alpha"], columns["dash"], strict=True)}  # fmt: skip
    assert drawn["compute"] == (COMPUTE, 1.0, "solid")
    assert drawn["communicate"] == (COMMUNICATE, 1.0, "solid")
    assert drawn["wait"][1:] == (0.0, "dashed")


def test_what_comes_later_is_faint_and_the_axis_stays() -> None:
    trace = example.ring(4)
    axes = set()
    for position in range(len(trace.positions)):
        root = parse(timeline_svg(trace, position))
        axes.add(tuple(text(label) for label in find(root, "ls-axis")))
        later = [bar for bar in picture(trace, position).bars if bar.later]
        assert len(find(root, "ls-ghost")) == len(later)
    assert len(axes) == 1
    assert not any(bar.later for bar in picture(trace, -1).bars)
    assert any(bar.later for bar in picture(trace, 0).bars)


def test_past_and_later_cover_the_record_once() -> None:
    trace = example.ring(4)
    whole = sum(span.end - span.start for span in spans(trace) if span.lane == 0)
    for position in (3, 9, 20):
        parts = sum(bar.span.end - bar.span.start for bar in picture(trace, position).bars if bar.span.lane == 0)
        assert parts == pytest.approx(whole, rel=0.02)


def test_predicted_stands_above_measured() -> None:
    root = parse(timeline_svg(example.ring(4), None, example.ring(4)))
    names = [text(label) for label in find(root, "ls-left")]
    assert names[:2] == ["predicted", "measured"]
    columns = timeline_data(example.ring(4), None, example.ring(4))
    lowest = min(b for b, block in zip(columns["bottom"], columns["block"], strict=True) if block == "predicted")
    highest = max(t for t, block in zip(columns["top"], columns["block"], strict=True) if block == "measured")
    assert lowest > highest


@pytest.mark.parametrize("longest", [3e-7, 9.9e-6, 1e-3, 1.66e-3, 0.5, 1.0, 73.0])
def test_the_axis_is_round_and_long_enough(longest: float) -> None:
    step = round_step(longest, 5)
    assert 5 * step >= longest * (1 - 1e-9)
    assert f"{step:.3e}"[0] in "125" and float(f"{step:.0e}") == pytest.approx(step)


def test_ticks_name_their_unit_and_hold_both_runs() -> None:
    short, long = example.held_ring(), example.ring(4)
    assert [label for _, label in picture(short).axis.marks()] == ["0 µs", "100 µs", "200 µs", "300 µs", "400 µs"]
    assert picture(short, None, long).axis == picture(long).axis


def test_an_empty_record_has_an_axis() -> None:
    trace = example.ring(2)
    empty = replace(trace, ranks=tuple(RankTrace(r) for r in range(2)), positions=())
    assert kinds(timeline_svg(empty)) == []
    assert "rank 0 has not begun" in timeline_words(empty)


def test_words_say_the_same() -> None:
    words = timeline_words(example.held_ring())
    assert re.search(r"rank 0 computes \d+ µs, waits still;", words)
    assert "rank 3" in words and "is held" in words
    assert parse(timeline_svg(example.held_ring())).get("aria-label") == words


def test_tooltips_name_operation_and_line() -> None:
    told = timeline_data(example.held_ring())["told"]
    assert "rank 0 waits: recv from rank 3, line 8, not over yet" in told
    assert "rank 3 held, line 8, not over yet" in told


def test_a_long_record_stays_a_small_picture() -> None:
    tiny = [Bar("measured", Span(0, "compute", i * 1e-6, (i + 1) * 1e-6, "compute")) for i in range(20_000)]
    wide = Bar("measured", Span(0, "wait", 0.02, 0.03, "recv from rank 1"))
    shown = visible([*tiny, wide], 0.03, columns=600)
    assert len(shown) <= 601 and wide in shown
    assert visible(tiny[:5], 5e-6) == tiny[:5]


def test_the_figure_is_updated_in_place() -> None:
    trace = example.ring(4)
    figure = timeline(trace, 3)
    source = figure.select_one({"name": "lockstep-spans"})
    before = source.data["left"]
    ticker = figure.xaxis[0].ticker
    update_timeline(figure, trace, 20)
    assert source.data == timeline_data(trace, 20) and source.data["left"] != before
    assert figure.xaxis[0].ticker is ticker  # the axis did not change, so nothing is sent for it
    assert figure.width == 332 and figure.toolbar_location is None


def test_the_key_names_every_kind() -> None:
    head = find(parse(timeline_html(example.ring(2))), "ls-head")[0]
    assert text(head) == "Timecomputecommunicatewaitheld"
