"""The switch between stages of ZeRO in a real page: what is pressed is shown, and nothing else moves."""

from __future__ import annotations

from tests.topics.zero.unit.test_stage_figures import P, runs


def test_the_switch_is_pressed_and_nothing_jumps(open_notebook, lab_server, screenshots):
    for stage, trace in runs().items():
        trace.save(lab_server.notebooks / f"stage-{stage}.trace")
    loaded = "{stage: kit.Trace.load(f'stage-{stage}.trace') for stage in range(4)}"
    cells = [
        "import sys\nsys.modules['jupyter_bokeh'] = None  # or Bokeh takes over from the SVG at some moment",
        f"import kit\nfrom kit.topics.zero import stages_panel\nswitch = stages_panel({loaded}, parameters={P})",
        "switch",
    ]
    book = open_notebook(cells).run_all()
    seen = set()
    for stage, formula in enumerate(("16P", "8P + 8P/n", "4P + 12P/n", "16P/n")):
        book.page.locator(f".lsp-stage-{stage}").click()
        book.until(f"switch.chosen == {stage}")
        book.page.locator(f".lsp-stages text.ls-left:text('{formula} = ')").first.wait_for()
        box = book.page.locator(".lsp-panel").bounding_box()
        marks = book.page.locator(".lsp-stages text.ls-right").evaluate_all(
            "all => all.map(one => one.getBoundingClientRect().y)"
        )
        seen.add((box["width"], box["height"], tuple(marks)))
    assert len(seen) == 1 and book.page.locator(".lsp-panel").bounding_box()["width"] <= 1120
    wide = book.page.locator(".lsp-panel").evaluate("panel => [panel.scrollWidth, panel.clientWidth]")
    assert wide[0] <= wide[1]
    for theme in book.both_themes():
        book.screenshot(screenshots / f"stages-{theme}.png", ".lsp-panel")
