from __future__ import annotations

import re

from kit.trace import example
from kit.views import stylesheet
from kit.views.palette import RANKS, text_on
from kit.views.style import standalone_style
from tests.unit.views import scenes
from tests.unit.views.markup import VIEWS


def test_ranks_come_from_the_palette() -> None:
    sheet = stylesheet()
    for rank, color in enumerate(RANKS):
        assert f".ls-r{rank}{{--c:{color};--t:{text_on(color)}}}" in sheet


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
        "ls-tensors", "ls-rank-row",
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
    assert len(names) == 3 and names[1] == names[2] < names[0]


def test_a_drawing_that_leaves_the_page_carries_its_style() -> None:
    used = set(re.findall(r"var\((--ls-[a-z-]+)\)", standalone_style()))
    defined = set(re.findall(r"(--ls-[a-z-]+):", standalone_style()))
    assert used <= defined
