"""Lanes of computing and communication: what is drawn where, the same in SVG, in Bokeh and in words."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from kit import views
from kit.panels import overlap_panel
from kit.trace.facts import Pass, Trace
from kit.views.overlap import FAST, Bar, Lanes, board
from kit.views.palette import COMMUNICATE, COMPUTE, EXPOSED
from tests.unit.panels.test_still import picture_of
from tests.unit.trace.test_overlap import backward
from tests.unit.views.markup import find, parse, text


def settings() -> dict[str, Trace]:
    return {
        "four buckets": backward(4, compute=100, send=60),
        "one bucket": backward(1, compute=400, send=240, late=50),
        "no overlap": backward(4, compute=100, send=60, asynchronous=False),
    }


def test_a_row_for_each_setting_and_two_lanes_for_each_rank() -> None:
    drawing = parse(views.overlap_svg(settings()))
    rows = [text(e) for e in find(drawing, "ls-over") if text(e).count("·")]
    assert rows[0] == "four buckets · 4 operations, 60 µs exposed of 240 µs (25 %) on rank 0, a step of 460 µs"
    assert rows[1].startswith("one bucket · 1 operation, 240 µs exposed of 240 µs (100 %)")
    ranks = [text(e) for e in find(drawing, "ls-left") if text(e).startswith("rank ")]
    assert ranks == ["rank 0", "rank 1"] * 3
    numbers = [text(e) for e in find(drawing, "ls-left") if re.fullmatch(r"[\d.]+ µs · \d+ %", text(e))]
    assert numbers == ["60 µs · 25 %"] * 2 + ["240 µs · 100 %"] * 4


def spans(drawing: object, kind: str) -> list[tuple[float, float]]:
    found = [e for e in find(drawing, f"ls-{kind}") if e.tag.endswith("rect")]  # type: ignore[arg-type]
    return [(float(e.get("x")), float(e.get("width"))) for e in found]


def test_lengths_are_times_on_one_axis() -> None:
    drawing = parse(views.overlap_svg(settings()))
    (first, *_), exposed = spans(drawing, "compute"), spans(drawing, "exposed")
    per_microsecond = first[1] / 400
    assert exposed[0][1] == pytest.approx(60 * per_microsecond, abs=0.15)
    assert exposed[2][1] == pytest.approx(240 * per_microsecond, abs=0.15), "another setting, the same axis"
    assert exposed[0][0] == pytest.approx(first[0] + 400 * per_microsecond, abs=0.15)
    hidden = spans(drawing, "communicate")
    assert hidden[0][0] == pytest.approx(first[0] + 100 * per_microsecond, abs=0.15)
    assert len(spans(drawing, "wait")) == 1, "rank 0 waits for the late rank 1, in one setting"


def test_what_waits_for_its_turn_is_a_thin_line() -> None:
    drawing = parse(views.overlap_svg(backward(4, compute=100, send=150)))
    assert len(find(drawing, "ls-queued")) == 2 * 3


def test_everything_lies_inside_the_drawing() -> None:
    markup = views.overlap_svg(settings())
    width, height = (int(re.search(f'{side}="(\\d+)"', markup)[1]) for side in ("width", "height"))
    for element in parse(markup).iter():
        if element.tag.endswith("rect"):
            x, y = float(element.get("x")), float(element.get("y"))
            assert 0 <= x and x + float(element.get("width")) <= width
            assert 0 <= y and y + float(element.get("height")) <= height


def test_passes_are_named_where_there_is_room() -> None:
    trace = backward(2, compute=100, send=60)
    passes = Pass("forward", 0, 80_000), Pass("backward", 80_000, 260_000), Pass("step", 260_000, 260_500)
    trace = replace(trace, ranks=tuple(replace(rank, passes=passes) for rank in trace.ranks))
    drawing = parse(views.overlap_svg(trace))
    assert [e.text for e in find(drawing, "ls-pass-name")] == ["forward", "backward"] * 2
    assert len(find(drawing, "ls-begins")) == 6


def test_the_room_for_a_name_ends_where_a_rank_begins_to_wait() -> None:
    lanes = Lanes(0, (Bar("compute", 0.0, 0.1, ""), Bar("wait", 0.1, 0.3, "")), (), (), (), "")
    assert lanes.room(0.02, 0.3) == pytest.approx(0.08) and lanes.room(0.15, 0.3) == 0.0


def test_words_say_what_the_picture_says() -> None:
    first, second, third, link = views.overlap_words(settings()).splitlines()
    assert first == (
        "four buckets: a step of 460 µs. rank 0 240 µs under way, 60 µs of it exposed (25 %); rank 1 240 µs under way, "
        "60 µs of it exposed (25 %)."
    )
    assert second.startswith("one bucket:") and third.startswith("no overlap:")
    assert link.startswith("Measured with links throttled to 1 ms and 0.05 GB/s.")


def test_the_link_is_always_said() -> None:
    assert "links throttled to 1 ms and 0.05 GB/s" in views.overlap_html(settings())
    fast = backward(2, 100, 60)
    fast = replace(fast, meta=replace(fast.meta, notes=()))
    assert "links as fast as they are" in views.overlap_html(fast) and board(fast).link == FAST
    with pytest.raises(ValueError, match="measured over different links"):
        board({"a": fast, "b": backward(2, 100, 60)})
    with pytest.raises(ValueError, match="nothing to draw"):
        board({})


def test_nothing_under_way() -> None:
    drawing = backward(0, 1, 1)
    words = views.overlap_words(drawing)
    assert "rank 0 nothing under way" in words
    parse(views.overlap_svg(drawing))


def test_bokeh_draws_the_same_bars_and_colours() -> None:
    from bokeh.models import HoverTool

    plot = views.overlap_plot(settings(), dark=True)
    data = plot.select_one({"name": "lockstep-lanes"}).data
    shown = board(settings())
    bars = [bar for row in shown.rows for lanes in row.lanes for bar in (*lanes.computing, *lanes.moving)]
    assert list(zip(data["left"], data["right"], data["told"], strict=True)) == [(b.start, b.end, b.told) for b in bars]
    fills = dict(zip(data["kind"], data["fill"], strict=True))
    assert (fills["compute"], fills["communicate"], fills["exposed"]) == (COMPUTE, COMMUNICATE, EXPOSED)
    assert list(plot.select({"type": HoverTool})) and plot.y_range.start == min(data["bottom"]) - 14
    light = views.overlap_plot(settings(), dark=False)
    assert light.xaxis[0].major_label_text_color != plot.xaxis[0].major_label_text_color


def test_words_of_many_settings_are_folded_but_not_the_link() -> None:
    assert "<details>" not in views.overlap_html(settings())
    markup = views.overlap_html({str(number): backward(2, 100, 60) for number in range(4)})
    folded, open_ = markup.split("</details>")
    assert folded.count("a step of") >= 4 and "<summary>Every rank in words</summary>" in folded
    assert "Measured with links throttled" in open_


def test_bokeh_marks_where_passes_begin_and_names_those_with_room() -> None:
    from bokeh.models import Text

    trace = backward(2, compute=100, send=60)
    passes = Pass("forward", 0, 80_000), Pass("backward", 80_000, 260_000), Pass("step", 260_000, 260_500)
    trace = replace(trace, ranks=tuple(replace(rank, passes=passes) for rank in trace.ranks))
    plot = views.overlap_plot(trace)
    assert len(list(plot.select({"name": "begins"}))) == 6
    named = [one.data_source.data["text"][0] for one in plot.renderers if isinstance(one.glyph, Text)]
    assert [name for name in named if name in ("forward", "backward", "step")] == ["forward", "backward"] * 2


def test_the_panel_and_its_still_picture() -> None:
    panel = overlap_panel(settings())
    assert panel.text() == views.overlap_words(settings())
    assert "60 µs · 25 %" in "".join(picture_of(panel).itertext())


def test_every_class_is_styled_and_names_stay_text() -> None:
    sheet = views.stylesheet()
    markup = views.overlap_html({"<b>'": backward(3, 100, 60, late=20)})
    for names in re.findall(r'class="([^"]*)"', markup):
        assert all(f".{name}" in sheet for name in set(names.split()) - {"ls-overlap"}), names
    parse(markup)
