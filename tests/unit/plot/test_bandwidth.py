"""Curves of a sweep: what there is to draw, and the same in words."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kit.cost.link import formula_of
from kit.cost.sweep import Row, Sweep
from kit.plot.bandwidth import bandwidth_figure
from kit.plot.figure import DASHED, Axes, Dots, Figure, Line, Segments

LINK = (5e-5, 1e9)
NAMES = ("send", "all_reduce", "gather")


def sweep(sizes: tuple[int, ...] = (1200, 120_000, 12_000_000), names: tuple[str, ...] = NAMES) -> Sweep:
    rows = [
        Row(name, 4, size, tuple(formula_of(name)(4, size, *LINK) * f for f in (1.0, 0.8, 2.0)), (1.0,) * 4)
        for name in names
        for size in sizes
    ]
    return Sweep(4, "gloo", ("cpu",) * 4, tuple(rows), 3, 1)


def charts(figure: Figure) -> tuple[tuple[Axes, ...], tuple[Axes, ...]]:
    """The charts of time, and of bus bandwidth."""
    time, speed = figure.columns
    return time.axes, speed.axes


def of_kind(axes: Axes, kind: type) -> list:
    return [mark for mark in axes.marks if isinstance(mark, kind)]


def test_two_charts_for_each_operation() -> None:
    time, speed = charts(bandwidth_figure(sweep(), link=LINK))
    assert [axes.title.split(":")[0] for axes in time] == list(NAMES)
    assert [axes.subtitle.split(" · ")[0] for axes in speed] == ["bus bandwidth"] * 3
    for axes in (*time, *speed):
        ((dots,), (spread,)) = of_kind(axes, Dots), of_kind(axes, Segments)
        assert len(dots.x) == len(spread.x0) == 3
        assert [line.dash for line in of_kind(axes, Line)] == [DASHED, ()], "predicted, then the fit over it"
        assert axes.x.log and axes.y.log
    assert len(of_kind(charts(bandwidth_figure(sweep(), "send"))[0][0], Line)) == 1


def test_dots_are_medians_within_their_spread_and_tell_their_figures() -> None:
    wanted = sweep().of("send")
    for (axes, *_), value in zip(charts(bandwidth_figure(sweep(), "send")), ("seconds", "busbw"), strict=True):
        ((dots,), (spread,)) = of_kind(axes, Dots), of_kind(axes, Segments)
        assert dots.y.tolist() == [getattr(row, value) for row in wanted]
        assert np.all(np.minimum(spread.y0, spread.y1) <= dots.y) and np.all(dots.y <= np.maximum(spread.y0, spread.y1))
        assert dots.told[0] == "send, 1.2 kB: 51.2 µs (41 µs to 102 µs), busbw 23.4 MB/s"


def test_all_charts_of_a_column_share_their_axes() -> None:
    for column in charts(bandwidth_figure(sweep(), link=(1e-9, 1e15))):
        assert len({(axes.x, axes.y) for axes in column}) == 1


def test_the_fit_of_exact_times_goes_through_every_dot() -> None:
    for (axes,) in charts(bandwidth_figure(sweep(), "all_reduce")):
        ((dots,), (fit,)) = of_kind(axes, Dots), of_kind(axes, Line)
        for end in (0, -1):
            assert (fit.x[end], fit.y[end]) == pytest.approx((dots.x[end], dots.y[end]))


def test_words_say_what_the_picture_says() -> None:
    figure = bandwidth_figure(sweep(), ["send", "all_reduce"], (5e-5, 2e9))
    send, reduce, told = figure.words.splitlines()
    assert (
        "send: 1.2 kB in 51.2 µs, 12 MB in 12 ms" in send
        and "fit 50 µs (38.7 µs to 100 µs), 1 GB/s (500 MB/s to 1.31 GB/s)" in send
    )
    assert "2 x at the largest" in reduce and "predicted with α = 50 µs, 1/β = 2 GB/s" in told
    assert "dashed: predicted" in figure.note and figure.said == ("Predicted with α = 50 µs, 1/β = 2 GB/s.",)
    assert "predicted" not in bandwidth_figure(sweep()).words


def test_one_size_is_drawn_without_a_fit() -> None:
    one = bandwidth_figure(sweep(sizes=(1200,), names=("send",)))
    assert "no fit" in one.words
    for (axes,) in charts(one):
        assert len(of_kind(axes, Dots)) == 1 and not of_kind(axes, Line)


def test_what_the_sizes_do_not_show_is_said() -> None:
    row = sweep().rows[0]
    flat = replace(sweep(), rows=tuple(replace(row, nbytes=size, times=(1e-4,)) for size in (100, 200, 400)))
    assert "bandwidth does not show" in bandwidth_figure(flat).words


def test_axes_have_round_marks_six_at_most() -> None:
    for column in charts(bandwidth_figure(sweep(sizes=(4, 4_000_000_000)))):
        for axis in (column[0].x, column[0].y):
            assert 2 <= len(axis.ticks) <= 6
            assert all(axis.low <= value <= axis.high for value, _ in axis.ticks)
    across = charts(bandwidth_figure(sweep()))[0][0].x
    assert [label for _, label in across.ticks] == ["1 kB", "10 kB", "100 kB", "1 MB", "10 MB"]


def test_what_was_not_measured_cannot_be_drawn() -> None:
    with pytest.raises(ValueError, match="'reduce' was not measured"):
        bandwidth_figure(sweep(), "reduce")
    with pytest.raises(ValueError, match="nothing to draw"):
        bandwidth_figure(replace(sweep(), rows=()))
