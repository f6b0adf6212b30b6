"""A question: answered without a mouse, revealed by the next cell, and told as text where no kernel answers."""

from __future__ import annotations

from typing import Any

CELLS = [
    "import kit",
    'hang = kit.predict("first-hang", "The others", choices=["sum without rank 1", "fail at once", "wait for ever"])\n'
    "hang",
    "hang.reveal()",
]
TEXT = "Run this cell again to answer."


def outputs(book: Any, cell: int) -> str:
    """What a reader sees below a code cell."""
    return str(book.page.locator(".jp-CodeCell").nth(cell).locator(".jp-OutputArea").inner_text())


def test_it_is_answered_and_revealed_by_keys_alone(open_notebook: Any, screenshots: Any) -> None:
    book = open_notebook(CELLS).run_all(limit=40)
    assert TEXT not in outputs(book, 1) and "No guess yet" in outputs(book, 2)
    keys = book.page.keyboard
    book.page.wait_for_selector(".ls-predict input[data-lm-suppress-shortcuts]")
    book.page.locator(".ls-predict input").first.focus()
    for key in ("Space", "ArrowDown", "ArrowDown"):
        keys.press(key)
    book.until("hang._radio.value == 'wait for ever'")
    for key in ("Tab", "Space"):
        keys.press(key)
    book.page.get_by_text("Committed. Run on and see.").wait_for()
    for theme in book.both_themes():
        book.screenshot(screenshots / f"question-{theme}.png")
    assert book.ask("hang.choice") == "wait for ever"
    for key in ("ArrowDown", "Shift+Enter"):
        keys.press(key)
    book.page.get_by_text("Right: wait for ever.").wait_for()


def test_where_no_kernel_answers_it_is_text_that_says_so(open_notebook: Any, screenshots: Any) -> None:
    book = open_notebook(CELLS).run_all(limit=40)
    saved = book.save()
    book.restart()
    book.page.get_by_text(TEXT).wait_for()
    assert not book.page.locator(".ls-predict").is_visible()
    book.screenshot(screenshots / "restarted.png")
    book.server.shut_kernels()
    cold = type(book)(book.server, book.page.context, saved.name).open()
    cold.page.get_by_text(TEXT).wait_for()
    assert "wait for ever" in outputs(cold, 1) and "model not found" not in outputs(cold, 1)
    cold.screenshot(screenshots / "cold.png")
