"""A lab's panel where no cluster can be had: the row that says so, and a recording that is stepped by hand."""

import json

from kit.resources import labs

DENIED = "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (96, 96))"
CELLS = ("parameters", "set-up-cluster", "predict-root-define", "predict-root-run", "step-ring-panel")


def test_a_recording_says_what_it_is_and_steps(open_notebook, screenshots):
    page = json.loads((labs() / "01a_collectives.ipynb").read_text(encoding="utf-8"))
    texts = {cell["id"]: "".join(cell["source"]) for cell in page["cells"]}
    book = open_notebook([DENIED, *(texts[name] for name in CELLS)]).run_all()
    panel = book.page.locator(".lsp-panel:not(.lsp-record)")
    row = panel.get_by_role("note")
    row.wait_for()
    assert row.inner_text().startswith("A recording, made on 20")
    assert "because there is no cluster here: a process may have 96 files open here" in row.inner_text()
    assert row.evaluate("row => row.scrollHeight <= row.clientHeight"), "a sentence that is cut short"
    for stop in (1, 2, 3):
        panel.locator(".lsp-step").click()
        panel.get_by_text(f"stop {stop} ·").wait_for()
    panel.locator(".lsp-hold-2").click()
    panel.get_by_text("nobody is held back").wait_for()
    for theme in book.both_themes():
        book.screenshot(screenshots / f"recorded-{theme}.png", ".lsp-panel:not(.lsp-record)")
    assert book.page.locator(".ls-recorded").count() == 2  # the card of the set-up cell, and what kit.record says
