"""Pages of a class in Chromium, opened from files: they fit, read in both themes, and are sorted by keys alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kit.classroom.pages import write
from kit.plot.palette import contrast
from tests.classroom import seen_class

WIDTHS = (560, 1280, 1600)
PAGES = ("index.html", "exercises/who-am-i.html", "students/s003.html")
BEYOND = "() => document.documentElement.scrollWidth - window.innerWidth"
COLOURS = """() => { const paper = element => {
    for (let one = element; one; one = one.parentElement) {
      const colour = getComputedStyle(one).backgroundColor;
      if (colour !== 'rgba(0, 0, 0, 0)') return colour; }
    return 'rgb(255, 255, 255)'; };
  const found = new Set(), walk = document.createTreeWalker(document.querySelector('main'), NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) { const part = walk.currentNode.parentElement;
    if (walk.currentNode.textContent.trim() && part.checkVisibility() && !part.closest('.unseen'))
      found.add(getComputedStyle(part).color + '|' + paper(part)); }
  return [...found]; }"""
UNNAMED = """() => [...document.querySelectorAll('a, button, input, select, summary')].filter(part =>
  !(part.textContent.trim() || part.labels?.length || part.ariaLabel)).map(part => part.outerHTML)"""
TWICE = """() => { const all = [...document.querySelectorAll('[id]')].map(part => part.id);
  return all.filter((one, place) => all.indexOf(one) !== place); }"""
STEPS = """() => [...document.querySelectorAll('h1, h2, h3')].map(part => Number(part.tagName[1]))"""
WITHOUT_SCOPE = "() => document.querySelectorAll('th:not([scope])').length"


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pages")
    write(seen_class.seventy(), folder)
    return folder


@pytest.fixture
def page(chromium: Any) -> Iterator[Any]:
    """One that fails the test if it asks for anything but files, or if a script of it fails."""
    opened = chromium.new_page(viewport={"width": 1280, "height": 900})
    said: list[str] = []
    opened.on("request", lambda request: said.append(request.url) if not request.url.startswith("file:") else None)
    opened.on("console", lambda message: said.append(message.text))
    opened.on("pageerror", lambda error: said.append(str(error)))
    yield opened
    opened.close()
    assert said == []


def _hex(colour: str) -> str:
    return "#" + "".join(f"{int(part):02x}" for part in colour.strip("rgb()").split(",")[:3])


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_pages_fit_and_read(page: Any, pages: Path, theme: str, screenshots: Path) -> None:
    page.emulate_media(color_scheme=theme)
    for name in PAGES:
        page.goto((pages / name).as_uri())
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            assert page.evaluate(BEYOND) <= 0, (name, width)
        pairs = page.evaluate(COLOURS)
        assert len(pairs) > 3
        for pair in pairs:
            ink, paper = map(_hex, pair.split("|"))
            assert contrast(ink, paper) >= 4.5, (name, pair)
        assert page.evaluate(UNNAMED) == [] and page.evaluate(TWICE) == [] and page.evaluate(WITHOUT_SCOPE) == 0
        steps = page.evaluate(STEPS)
        assert steps.count(1) == 1 and all(after - before <= 1 for before, after in zip(steps, steps[1:], strict=False))
        assert page.locator("html[lang=en] main").count() == 1
    dark = (
        contrast(_hex(page.locator("main").evaluate("part => getComputedStyle(part).backgroundColor")), "#ffffff") > 4
    )
    assert dark == (theme == "dark")


def test_it_is_sorted_and_filtered_by_keys_alone(page: Any, pages: Path) -> None:
    page.goto((pages / "index.html").as_uri())
    rows = page.locator("table.matrix tbody tr:visible")
    heads = page.locator("table.matrix thead th")
    assert rows.count() == 70 and rows.first.locator("th").inner_text() == seen_class.NAMES[0]

    def press(what: Any, key: str) -> None:
        what.focus()
        page.keyboard.press(key)

    last = page.get_by_role("button", name="sort by passed")
    press(last, "Enter")
    assert heads.last.get_attribute("aria-sort") == "ascending"
    passed = [int(rows.nth(place).locator("td").last.get_attribute("data-key")) for place in range(70)]
    assert passed == sorted(passed) and passed[0] == -1 and passed[-1] == 3
    press(last, "Space")
    assert heads.last.get_attribute("aria-sort") == "descending"
    assert rows.first.locator("td").last.inner_text() == "3"

    press(page.get_by_role("button", name="sort by student"), "Enter")
    assert heads.last.get_attribute("aria-sort") is None
    names = rows.locator("th").all_inner_texts()
    assert names == sorted(names)

    page.get_by_label("Name").focus()
    page.keyboard.type("ada")
    assert rows.locator("th").all_inner_texts() == [name for name in sorted(seen_class.NAMES) if "ada" in name.lower()]
    assert page.get_by_role("status").inner_text() == "5 of 70 rows"
    page.keyboard.press("Control+A")
    page.keyboard.press("Delete")
    page.get_by_label("Show").focus()
    page.keyboard.type("who handed")
    assert rows.count() == 4


def test_eight_exercises_are_read_without_scrolling_sideways(page: Any, tmp_path: Path) -> None:
    write(seen_class.of_eight_exercises(), tmp_path)
    page.goto((tmp_path / "index.html").as_uri())
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate(BEYOND) <= 0
        box = page.locator("table.matrix").bounding_box()
        assert box is not None and box["x"] >= 0 and box["x"] + box["width"] <= width
    assert (
        page.locator("table.matrix thead .tilt").evaluate_all(
            "heads => heads.filter(head => head.scrollHeight > head.clientHeight + 1).length"
        )
        == 0
    )


def test_on_paper_nothing_is_folded_and_no_control_is_left(page: Any, pages: Path) -> None:
    page.emulate_media(media="print")
    page.goto((pages / "index.html").as_uri())
    assert not page.locator(".controls").is_visible()
    page.goto((pages / "exercises" / "first-rescue.html").as_uri())
    folded = page.locator("details:not([open]) .line code")
    assert folded.count() > 0
    assert folded.evaluate_all("lines => lines.filter(line => !line.checkVisibility()).length") == 0


def test_the_head_stays_while_rows_pass(page: Any, pages: Path) -> None:
    page.goto((pages / "index.html").as_uri())
    page.locator("table.matrix tbody tr").nth(60).scroll_into_view_if_needed()
    box = page.locator("table.matrix thead th").first.bounding_box()
    assert box is not None and 0 <= box["y"] <= 1


def test_without_a_script_it_is_whole(chromium: Any, pages: Path) -> None:
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto((pages / "index.html").as_uri())
    assert page.locator("table.matrix tbody tr:visible").count() == 70
    assert not page.locator(".controls").is_visible()
    context.close()
