"""The class board in Chromium, with seventy learners who come, get stuck, ask for help and go on."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kit.classroom.board.mail import mail_to
from kit.classroom.board.news import News, sealed
from kit.plot.palette import contrast
from tests.browser.test_class_pages import BEYOND, COLOURS

CODE = "R4IN-7Q2M-K8PC"
SENTENCES = (
    "on 3 ranks: rank 1 returned 3, where 4 is right",
    "on 4 ranks: rank 2 returned 9, where 8 is right",
    "sent 6 messages where 3 are enough",
    'rank 0 printed nothing; <img src=x onerror="document.title=1">',
)


def learner(k: int) -> News:
    """Of seventy; every seventh is stuck, and one of them asks for help."""
    news = News(f"{k:032x}", f"learner {k:02d}", lab="01a_collectives", cell=f"write-{k % 5}", passed=("who-am-i",))
    if k % 7 == 0:
        news = replace(
            news, exercise="ring-all-reduce", status="failed", sentence=SENTENCES[k // 7 % 4], tries=1 + k % 4
        )
    if k == 35:
        news = replace(news, asks=True, code="def ring_all_reduce(x, group=None):\n    return x\n")
    return news


@pytest.fixture
def board(tmp_path: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "kit.cli", "board", "--folder", str(tmp_path), "--code", CODE, "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ}) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield process.stdout.readline().split()[-1]
        finally:
            process.terminate()


def test_seventy_learners_are_seen_at_a_glance(context, board: str, tmp_path: Path, screenshots: Path) -> None:
    mail = mail_to(tmp_path, CODE)

    def tell(news: News) -> None:
        mail.send(news.learner, sealed(news, CODE))

    page = context.new_page()
    try:
        page.goto(board)
        page.get_by_text("Nobody has joined yet").wait_for()
        for k in range(70):
            tell(learner(k))
        page.locator("#sums:has-text('70 joined, 1 asks for help, 10 are stuck')").wait_for()
        rows = page.locator("#learners tr")
        assert rows.count() == 70
        assert rows.first.inner_text().startswith("learner 35 asks for help")
        assert rows.nth(1).get_attribute("class") == "stuck" and page.locator("#learners tr.stuck").count() == 9
        assert page.locator("#sentences li").first.inner_text().startswith("6 ×"), "alike but for numbers"
        assert page.title() == "The class board" and page.locator("img").count() == 0, "text of theirs is text"
        help = rows.first.locator("summary")
        help.focus()
        page.keyboard.press("Enter")
        page.locator("pre:visible:has-text('return x')").wait_for()
        for width in (560, 900, 1280):
            page.set_viewport_size({"width": width, "height": 1000})
            assert page.evaluate(BEYOND) <= 0, width
            for theme in ("light", "dark"):
                page.emulate_media(color_scheme=theme)
                for colours in page.evaluate(COLOURS):
                    ink, paper = (_hex(colour) for colour in colours.split("|"))
                    assert contrast(ink, paper) >= 4.5, (theme, colours)
                page.screenshot(path=screenshots / f"board-{width}-{theme}.png")
        tell(replace(learner(35), status="passed", asks=False, code="", passed=("who-am-i", "ring-all-reduce")))
        page.locator("#sums:has-text('0 ask for help, 9 are stuck')").wait_for()
        assert not rows.first.inner_text().startswith("learner 35")
        assert page.evaluate("document.activeElement.tagName") in ("SUMMARY", "BODY")
    finally:
        page.close()


def _hex(colour: str) -> str:
    return "#" + "".join(f"{int(part):02x}" for part in colour[colour.index("(") + 1 : -1].split(",")[:3])
