"""Lanes of computing and communication: what there is to draw, and the same in words."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kit.plot.figure import Axes, Boxes, Figure, Labels, Segments
from kit.plot.render_svg import html
from kit.topics.data_parallel.figures import overlap_figure
from kit.topics.data_parallel.figures.overlap import room
from kit.topics.data_parallel.panels import overlap_panel
from kit.trace.facts import Pass
from kit.trace.overlap import RankOverlap
from kit.trace.trace import Trace
from tests.unit.panels.test_still import picture_of
from tests.unit.trace.test_overlap import backward


def settings() -> dict[str, Trace]:
    return {
        "four buckets": backward(4, compute=100, send=60),
        "one bucket": backward(1, compute=400, send=240, late=50),
        "no overlap": backward(4, compute=100, send=60, asynchronous=False),
    }


def with_passes() -> Trace:
    trace = backward(2, compute=100, send=60)
    passes = Pass("forward", 0, 80_000), Pass("backward", 80_000, 260_000), Pass("step", 260_000, 260_500)
    return replace(trace, ranks=tuple(replace(rank, passes=passes) for rank in trace.ranks))


def plots(figure: Figure) -> tuple[Axes, ...]:
    (column,) = figure.columns
    return column.axes


def boxes(axes: Axes) -> dict[str, list[tuple[float, float]]]:
    """(start, end) in microseconds by kind."""
    (found,) = (mark for mark in axes.marks if isinstance(mark, Boxes))
    spans: dict[str, list[tuple[float, float]]] = {kind: [] for kind in found.kinds}
    for kind, left, right in zip(found.kind, found.left, found.right, strict=True):
        spans[found.kinds[kind]].append((round(left * 1e6, 3), round(right * 1e6, 3)))
    return spans


def segments(axes: Axes, role: str) -> Segments:
    (found,) = (mark for mark in axes.marks if isinstance(mark, Segments) and mark.role == role)
    return found


def test_a_plot_for_each_setting_and_two_lanes_for_each_rank() -> None:
    first, second, third = plots(overlap_figure(settings()))
    said = "4 operations, 60 µs exposed of 240 µs (25 %) on rank 0, a step of 460 µs"
    assert (first.title, first.subtitle) == ("four buckets", said)
    assert second.subtitle.startswith("1 operation, 240 µs exposed of 240 µs (100 %)")
    assert [name for _, name in first.y.ticks] == ["rank 0", "rank 1"]
    numbers = [[text for _, text in axes.right] for axes in (first, second, third)]
    assert numbers == [["60 µs · 25 % exposed"] * 2, ["240 µs · 100 % exposed"] * 2, ["240 µs · 100 % exposed"] * 2]


def test_lengths_are_times_on_one_axis() -> None:
    first, second, third = plots(overlap_figure(settings()))
    assert first.x == second.x == third.x and first.bare and second.bare and not third.bare
    assert boxes(first)["compute"][0] == (0, 400) and boxes(first)["exposed"][0] == (400, 460)
    assert boxes(first)["communicate"][0] == (100, 160)
    assert boxes(second)["exposed"][0][1] - boxes(second)["exposed"][0][0] == pytest.approx(240)
    assert [len(boxes(axes)["wait"]) for axes in (first, second, third)] == [0, 1, 0], "rank 0 waits for the late one"


def test_what_waits_for_its_turn_is_a_thin_line() -> None:
    (axes,) = plots(overlap_figure(backward(4, compute=100, send=150)))
    queued = segments(axes, "communicate")
    assert len(queued.x0) == 2 * 3 and all(queued.x0 < queued.x1)


def test_passes_begin_at_a_line_and_are_named_where_there_is_room() -> None:
    (axes,) = plots(overlap_figure(with_passes()))
    assert len(segments(axes, "paper").x0) == 6
    (names,) = (mark for mark in axes.marks if isinstance(mark, Labels))
    assert list(names.text) == ["forward", "backward"] * 2


def test_the_room_for_a_name_ends_where_a_rank_begins_to_wait() -> None:
    one = RankOverlap(0, 0.0, 0.3, ((0.0, 0.1),), (), (), (), waiting=((0.1, 0.3),), passes=())
    assert room(one, 0.02, 0.3) == pytest.approx(0.08) and room(one, 0.15, 0.3) == 0.0


def test_words_say_what_the_picture_says() -> None:
    first, second, third, link = overlap_figure(settings()).words.splitlines()
    assert first == (
        "four buckets: a step of 460 µs. rank 0 240 µs under way, 60 µs of it exposed (25 %); rank 1 240 µs under way, "
        "60 µs of it exposed (25 %)."
    )
    assert second.startswith("one bucket:") and third.startswith("no overlap:")
    assert link.startswith("Measured with links throttled to 1 ms and 0.05 GB/s.")


def test_the_link_is_always_said() -> None:
    assert "links throttled to 1 ms and 0.05 GB/s" in overlap_figure(settings()).said[-1]
    fast = backward(2, 100, 60)
    fast = replace(fast, meta=replace(fast.meta, notes=()))
    assert overlap_figure(fast).said[-1].startswith("Measured with links as fast as they are: ")
    with pytest.raises(ValueError, match="measured over different links"):
        overlap_figure({"a": fast, "b": backward(2, 100, 60)})
    with pytest.raises(ValueError, match="nothing to draw"):
        overlap_figure({})


def test_nothing_under_way() -> None:
    figure = overlap_figure(backward(0, 1, 1))
    assert "rank 0 nothing under way" in figure.words and plots(figure)[0].right[0][1] == "0 ms"


def test_words_of_many_settings_are_folded_but_not_the_link() -> None:
    assert "<details>" not in html(overlap_figure(settings()))
    folded, open_ = html(overlap_figure({str(number): backward(2, 100, 60) for number in range(4)})).split("</details>")
    assert folded.count("a step of") >= 4 and "<summary>Every rank in words</summary>" in folded
    assert "Measured with links throttled" in open_


def test_the_panel_and_its_still_picture() -> None:
    panel = overlap_panel(settings())
    assert panel.text() == overlap_figure(settings()).words
    assert "60 µs · 25 %" in "".join(picture_of(panel).itertext())
