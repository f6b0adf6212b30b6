"""Stacked areas of memory: what is drawn where, the same in SVG, in Bokeh and in words."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from kit import views
from kit.panels import holdings_panel
from kit.trace.facts import Holding, Pass
from kit.trace.holdings import Holdings
from kit.views.holdings import board, bytes_text
from kit.views.palette import MEMORY
from tests.unit.panels.test_still import picture_of
from tests.unit.views.markup import find, parse

MB = 1_000_000
ACCOUNT = (
    Holding(0, "begins", parameters=4 * MB),
    Holding(10, "forward begins", parameters=4 * MB),
    Holding(20, "addmm", parameters=4 * MB, activations=3 * MB),
    Holding(30, "backward begins", parameters=4 * MB, activations=3 * MB),
    Holding(40, "mm", parameters=4 * MB, gradients=4 * MB, activations=1 * MB),
    Holding(50, "all_reduce issued", parameters=4 * MB, gradients=4 * MB, buffers=4 * MB),
    Holding(60, "step begins", parameters=4 * MB, gradients=4 * MB),
    Holding(70, "zeros_like", parameters=4 * MB, gradients=4 * MB, optimizer_state=8 * MB),
    Holding(80, "step ends", parameters=4 * MB, gradients=4 * MB, optimizer_state=8 * MB),
    Holding(90, "ends"),
)
PASSES = Pass("forward", 10, 25), Pass("backward", 30, 55), Pass("step", 60, 80)


def held(world: int = 2) -> Holdings:
    return Holdings((ACCOUNT,) * world, (PASSES,) * world, "live storages")


def two() -> dict[str, Holdings]:
    less = tuple(replace(one, optimizer_state=one.optimizer_state // 2) for one in ACCOUNT)
    return {"DDP": held(), "stage 1": Holdings((ACCOUNT, less), (PASSES, PASSES), "live storages")}


FORMULAS = {"DDP": {"16P": 16 * MB}, "stage 1": {"8P + 8P/n": 12 * MB, "and activations": 15 * MB}}


def test_a_panel_for_each_rank_of_each_run_and_an_area_for_each_kind() -> None:
    drawing = parse(views.holdings_svg(two(), FORMULAS))
    areas = find(drawing, "ls-memory")
    kinds = ("parameters", "gradients", "optimizer state", "activations", "communication buffers")
    assert len(areas) == 2 * 2 * len(kinds)
    for kind in kinds:
        assert len(find(drawing, f"ls-{kind.replace(' ', '-')}")) == 4
    assert [e.text for e in find(drawing, "ls-strong")] == ["DDP", "stage 1"]
    assert [e.text for e in find(drawing, "ls-over")] == ["rank 0", "rank 1"] * 2
    assert len(find(drawing, "ls-formula")) == 2 + 1 + 4 + 2, "in each panel, and before each name"
    texts = [e.text for e in find(drawing, "ls-left")]
    assert {"16P = 16 MB", "8P + 8P/n = 12 MB", "and activations = 15 MB"} <= set(texts)


def heights(area: object) -> list[float]:
    return [float(y) for y in re.findall(r"V([\d.]+)", area.get("d"))]  # type: ignore[attr-defined]


def test_areas_are_stacked_on_one_axis() -> None:
    drawing = parse(views.holdings_svg(two()))
    whole = [find(drawing, f"ls-{kind.replace(' ', '-')}") for kind in board(two()).kinds]
    for lower, upper in zip(whole, whole[1:], strict=False):
        for below, above in zip(lower, upper, strict=True):
            assert min(heights(above)) <= min(heights(below)), "a smaller y is higher"
    tops = [min(heights(area)) for area in whole[-1]]
    assert tops[0] == tops[2], "the same bytes in the same row of two runs are as high"
    assert tops[3] - tops[0] > tops[1] - tops[0] - 1


def test_the_top_of_an_area_is_its_bytes() -> None:
    shown = board(held(), 16 * MB)
    moment = max(shown.columns[0].panels[0].moments, key=lambda m: m.tops[-1])
    assert dict(zip(shown.kinds, moment.tops, strict=True)) == {
        "parameters": 4 * MB, "gradients": 8 * MB, "optimizer state": 16 * MB, "activations": 16 * MB,
        "communication buffers": 16 * MB,
    }  # fmt: skip
    assert (
        moment.told == "rank 0 after zeros_like (step): 16 MB = parameters 4 MB, gradients 4 MB, optimizer state 8 MB"
    )
    assert shown.top > 16 * MB and [label for _, label in shown.marks][:2] == ["0", "5 MB"]
    assert all(value <= shown.top for value, _ in shown.marks)


def test_passes_stand_where_their_moments_are() -> None:
    (column,) = board(held()).columns
    spans = {one.name: (one.start, one.end) for one in column.panels[0].passes}
    assert spans == {"forward": (0.1, 0.3), "backward": (0.3, 0.6), "step": (0.6, 0.8)}


def test_words_say_what_the_picture_says() -> None:
    words = views.holdings_words(two(), FORMULAS)
    first, second, third, last = words.splitlines()
    assert first == (
        "DDP, every rank: at most 16 MB, in step (parameters 4 MB, gradients 4 MB, optimizer state 8 MB). Parameters, "
        "gradients and optimizer state together: at most 16 MB; 16P = 16 MB (1.00 x that was measured)."
    )
    assert second.startswith("stage 1, rank 0: at most 16 MB") and third.startswith("stage 1, rank 1: at most 12 MB")
    assert "8P + 8P/n = 12 MB (1.33 x that was measured)" in second and "live storages" in last


def test_a_long_account_stays_a_small_picture() -> None:
    long = tuple(Holding(i, "op", other=(i * 7919) % MB) for i in range(20_000))
    one = Holdings((long,) * 4, ((),) * 4, "live storages")
    assert len(views.holdings_svg({str(i): one for i in range(4)})) < 400_000
    (column,) = board(one).columns
    assert max(m.tops[-1] for m in column.panels[0].moments) == max(h.other for h in long)


def test_more_ranks_than_fit_are_in_the_words() -> None:
    accounts = tuple((Holding(0, "begins", parameters=MB * (rank + 1)),) for rank in range(12))
    many = Holdings(accounts, ((),) * 12, "live storages")
    assert len(find(parse(views.holdings_svg(many)), "ls-over")) == 8
    assert "rank 11: at most 12 MB" in views.holdings_words(many)


def test_bokeh_draws_the_same_areas_lines_and_colours() -> None:
    from bokeh.models import GlyphRenderer, HoverTool, Plot

    shown = board(two(), FORMULAS)
    layout = views.holdings_plot(two(), FORMULAS, dark=True)
    plots = list(layout.select({"type": Plot}))
    assert len(plots) == 4
    assert len({(plot.y_range.start, plot.y_range.end) for plot in plots}) == 1
    first = next(plot for plot in plots if plot.title.text == "DDP · rank 0\n16P = 16 MB\n")
    drawn = {r.name: r for r in first.renderers if isinstance(r, GlyphRenderer)}
    for level, kind in enumerate(shown.kinds):
        glyph, data = drawn[kind].glyph, drawn[kind].data_source.data
        assert glyph.fill_color == MEMORY[kind] and glyph.step_mode == "after"
        assert list(data["y2"])[:-1] == [m.tops[level] for m in shown.columns[0].panels[0].moments]
    assert set(drawn["formula 16P"].data_source.data["y"]) == {16 * MB}
    assert list(first.select({"type": HoverTool}))
    light = views.holdings_plot(two(), FORMULAS, dark=False)
    assert {p.title.text_color for p in plots} != {p.title.text_color for p in light.select({"type": Plot})}


def test_the_panel_and_its_still_picture() -> None:
    panel = holdings_panel(two(), FORMULAS)
    assert panel.text() == views.holdings_words(two(), FORMULAS)
    text = "".join(picture_of(panel).itertext())
    assert "8P + 8P/n = 12 MB" in text and "DDP, every rank: at most 16 MB" in text


def test_what_cannot_be_drawn() -> None:
    with pytest.raises(ValueError, match="nothing to draw"):
        board({})
    with pytest.raises(ValueError, match="formula is given for 'stage 2', the runs are DDP, stage 1"):
        board(two(), {"stage 2": 1.0})
    with pytest.raises(ValueError, match="the runs are DDP, stage 1"):
        board(two(), 5.0)


def test_every_class_is_styled_and_names_stay_text() -> None:
    sheet, markup = views.stylesheet(), views.holdings_html({"<b>'": held()}, {"<b>'": {"<i>": MB}})
    for names in re.findall(r'class="([^"]*)"', markup):
        assert all(f".{name}" in sheet for name in set(names.split()) - {"ls-holdings"}), names
    parse(markup)


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0"), (17, "17 B"), (48_000, "48 kB"), (1_254_000, "1.25 MB"), (3.2e9, "3.2 GB")]
)
def test_bytes_as_a_person_reads_them(size: float, text: str) -> None:
    assert bytes_text(size) == text
