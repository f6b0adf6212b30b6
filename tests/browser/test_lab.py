"""Lab 01 as a learner meets it: run all, step real ranks, hold one back, read who waits for it, let it go, finish."""

from kit.resources import labs

HEADER = (
    "() => [...document.querySelectorAll('.lsp-panel:not(.lsp-record)')].at(-1).querySelector('.lsp-header').innerText"
)


def moved(book, panel, control, limit=60_000):
    """Presses a control and waits for the next position. Returns the panel's words."""
    before = book.page.evaluate(HEADER)
    panel.locator(f".lsp-{control}").click()
    book.page.wait_for_function(f"before => ({HEADER})() !== before", arg=before, timeout=limit)
    return panel.locator(".lsp-words").inner_text()


def test_lab_01_is_stepped_by_hand(open_notebook, screenshots):
    book = open_notebook(labs() / "01a_collectives.ipynb").run_all(limit=170)
    panel = book.page.locator(".lsp-panel:not(.lsp-record)").last
    panel.scroll_into_view_if_needed()
    moved(book, panel, "reset")  # the script to take home, further down, was given to the ranks since
    for _ in range(6):
        words = moved(book, panel, "step")
    assert words.count("paused before line") == 4

    panel.locator(".lsp-hold-2").click()
    words = ""
    while "rank 2 is held" not in words:
        words = moved(book, panel, "step")
    assert "waits in send to rank 2" in words and "waits in recv from rank 2" in words
    assert "let it go to free ranks 1 and 3" in words
    for theme in book.both_themes():
        panel.scroll_into_view_if_needed()
        panel.locator(".lsp-drawn").first.wait_for()
        book.screenshot(screenshots / f"held-{theme}.png")
        panel.screenshot(path=str(screenshots / f"panel-{theme}.png"))

    panel.locator(".lsp-hold-2").click()
    moved(book, panel, "finish")
    assert "finished" in book.page.evaluate(HEADER)
    assert panel.locator(".lsp-words").inner_text().count("finished") == 4
    assert panel.locator('.lsp-tensors td[title*="from ranks 0, 1, 2, 3"]').count() == 16
