from __future__ import annotations

import re

import pytest

from kit.plot.palette import RANKS, ROLES, contrast, role_class, text_on
from kit.plot.style import standalone_style, stylesheet
from tests.traces import example
from tests.unit.plot import scenes
from tests.unit.plot.markup import VIEWS


def test_ranks_come_from_the_palette() -> None:
    sheet = stylesheet()
    for rank, color in enumerate(RANKS):
        assert f".ls-r{rank}{{--c:{color};--t:{text_on(color)}}}" in sheet


@pytest.mark.parametrize("theme", range(3))
def test_every_role_wears_in_css_what_the_palette_says(theme: int) -> None:
    """Bokeh asks the palette, SVG the style sheet: a colour that a file of `assets/style` gives a role would differ."""
    sheet = re.sub(r"/\*.*?\*/", "", stylesheet(), flags=re.DOTALL)
    block = re.findall(r"\{([^{}]*--ls-bg:[^{}]*)\}", sheet)[theme]
    variables = dict(re.findall(r"(--ls-[a-z0-9-]+):(?:var\([^,]*, )?(#[0-9a-f]{6})", block))
    rules = re.findall(r"([^{}]+)\{([^{}]*)\}", sheet)
    for role, paint in ROLES.items():
        name = re.compile(rf"(^|[,\s]|[a-z])\.{role_class(role)}\s*($|,)", re.MULTILINE)
        given = [color for where, what in rules if name.search(where) for color in re.findall(r"--c:\s*([^;}]+)", what)]
        assert len(given) == 1, f"{role} is given a colour in {len(given)} places"
        seen = re.sub(r"var\((.*)\)", lambda found: variables[found[1]], given[0])
        assert seen == paint.on(bool(theme)), role


def test_every_selector_is_about_our_classes() -> None:
    plain = re.sub(r"/\*.*?\*/", "", stylesheet(), flags=re.DOTALL)
    plain = re.sub(r"@keyframes [^{]*\{[^}]*\}\s*\}", "", plain)
    for selectors in re.findall(r"([^{}]+)\{", plain):
        for selector in selectors.split(","):
            assert ".ls" in selector or selector.strip().startswith("@media"), selector


def test_every_class_a_view_writes_is_styled() -> None:
    sheet = stylesheet()
    traces = (example.held_ring(), example.ring(8), scenes.phases(), scenes.many_tensors(), example.failure())
    plain = {  # names for scripts and tests; they change nothing in the look
        "ls-source", "ls-messages", "ls-messages-area", "ls-time", "ls-timeline", "ls-finished", "ls-top", "ls-held",
        "ls-tensors", "ls-rank-row", "ls-box", "ls-ghost", "ls-kinds",
    }  # fmt: skip
    for trace in traces:
        for view in VIEWS.values():
            for names in re.findall(r'class="([^"]*)"', view(trace, -1)):
                for name in set(names.split()) - plain:
                    assert f".{name}" in sheet, name


def test_it_asks_nothing_of_a_network() -> None:
    assert "url(" not in stylesheet() and "@import" not in stylesheet() and "http" not in stylesheet()


def test_both_themes_define_the_same_variables() -> None:
    blocks = re.findall(r"\{([^{}]*--ls-bg:[^{}]*)\}", stylesheet())
    names = [set(re.findall(r"(--ls-[a-z-]+):", block)) for block in blocks]
    assert len(names) == 3 and names[0] == names[1] == names[2]


def test_a_drawing_that_leaves_the_page_carries_its_style() -> None:
    used = set(re.findall(r"var\((--ls-[a-z-]+)\)", standalone_style()))
    defined = set(re.findall(r"(--ls-[a-z-]+):", standalone_style()))
    assert used <= defined


@pytest.mark.parametrize("theme", range(3))
def test_text_reads_and_held_time_shows_on_every_ground_of_both_themes(theme: int) -> None:
    """4.5 : 1 for text and 3 : 1 for a bar that means something, as WCAG 2.2 asks (1.4.3, 1.4.11)."""
    block = re.findall(r"\{([^{}]*--ls-bg:[^{}]*)\}", stylesheet())[theme]
    colors = dict(re.findall(r"--ls-([a-z-]+):(?:var\([^,]*, )?(#[0-9a-f]{6})", block))
    grounds = [colors[name] for name in ("bg", "soft", "hi")] + (["#212121"] if theme else [])
    for ground in grounds:
        for name in ("fg", "mut", "string", "keyword"):
            assert contrast(colors[name], ground) >= 4.5, (name, ground)
    for ground in grounds[:2]:
        assert contrast(colors["bad"], ground) >= 4.5
        assert contrast(colors["held"], ground) >= 3
    assert contrast(colors["on-accent"], colors["accent"]) >= 4.5


def test_nothing_is_written_smaller_than_ten_pixels() -> None:
    sizes = [float(size) for size in re.findall(r"font(?:-size)?:[^;{}]*?([0-9.]+)px", stylesheet())]
    assert sizes and min(sizes) >= 10
