"""Panels over recorded examples: what a page shows, in what place, and what is left when things are missing."""

import json

import pytest

REPLAY = "import kit\nfrom kit.trace import example\npanel = kit.Replay(example.{name}()).panel()\npanel"
PLACES = """() => [...document.querySelectorAll('.lsp-panel > *, .lsp-panel .lsp-two > *, .lsp-panel button')]
  .map(part => { const box = part.getBoundingClientRect(); return [part.className.split(' ').at(-1),
    Math.round(box.left), Math.round(box.top), Math.round(box.width), Math.round(box.height)].join(' '); })"""


def shown(open_notebook, name="ring", before=""):
    book = open_notebook([before + REPLAY.format(name=name)]).run_all()
    book.page.wait_for_selector(".lsp-panel .ls-words")
    return book


def at(book, position):
    book.page.wait_for_function(
        "wanted => document.querySelector('.lsp-header').textContent.includes(`stop ${wanted} `)", arg=position
    )


def press(book, key):
    book.page.locator(".lsp-panel").focus()
    book.page.keyboard.press(key)


def test_the_panel_is_840_wide_and_nothing_jumps(open_notebook, screenshots):
    book = shown(open_notebook)
    book.page.wait_for_selector(".lsp-drawn")
    assert book.page.locator(".lsp-panel").bounding_box()["width"] == 840
    before = book.page.evaluate(PLACES)
    assert len(before) > 20
    for position in (7, 8, 15, 30, 0):
        book.ask(f"panel.seek({position})")
        at(book, position)
        assert book.page.evaluate(PLACES) == before
    book.page.click(".lsp-swap")
    book.page.wait_for_selector(".lsp-new img, .lsp-new svg")
    for theme in book.both_themes(drawn=1):
        assert book.page.evaluate(PLACES) == before
        book.screenshot(screenshots / f"{theme}.png", ".lsp-panel")


def test_the_keyboard_steps_and_the_notebook_does_not_hear_it(open_notebook):
    book = shown(open_notebook)
    cells = "jupyterapp.shell.currentWidget.content.widgets.length"
    count = book.page.evaluate(cells)
    for key, position in (("ArrowRight", 1), ("ArrowRight", 2), ("ArrowLeft", 1), ("c", 6), ("End", 30), ("Home", 0)):
        press(book, key)
        at(book, position)
    press(book, "Space")
    at(book, 1)
    book.page.wait_for_function("() => document.querySelector('.lsp-play').textContent === 'Pause'")
    press(book, "Space")
    book.page.wait_for_function("() => document.querySelector('.lsp-play').textContent === 'Play'")
    assert book.page.evaluate(cells) == count


def test_a_click_leaves_the_keys_working(open_notebook):
    book = shown(open_notebook)
    book.page.click(".lsp-step")
    at(book, 1)
    book.page.keyboard.press("ArrowRight")
    at(book, 2)


def test_every_control_has_a_name_for_screen_readers(open_notebook):
    page = shown(open_notebook).page
    names = ["Start", "Back", "Step", "Next collective", "Play", "End", "Over", "Into", "Out", "Finish", "Reset"]
    for name in names:
        assert page.get_by_role("button", name=name, exact=True).count() == 1, name
    for rank in range(4):
        assert page.get_by_role("button", name=f"hold rank {rank}").count() == 1
    assert page.get_by_role("slider", name="position in the record").count() == 1
    assert page.get_by_role("group", name="Stepping ring_all_reduce").count() == 1
    assert page.get_by_label("variable to show").count() == 1


def test_bokeh_comes_from_the_kernel_and_stays_out_of_the_notebook(open_notebook):
    book = shown(open_notebook)
    book.page.wait_for_selector(".lsp-drawn")
    found = """() => { const look = root => [...root.querySelectorAll('*')]
      .some(e => e.tagName === 'CANVAS' || (e.shadowRoot && look(e.shadowRoot)));
      return look(document.querySelector('.lsp-bokeh')); }"""
    assert book.page.evaluate(found)
    assert book.save().stat().st_size < 200_000


def test_without_jupyter_bokeh_the_time_is_an_svg_and_a_sentence_says_so_once(open_notebook):
    book = shown(open_notebook, before="import sys\nsys.modules['jupyter_bokeh'] = None\n")
    book.page.wait_for_selector(".lsp-missing span")
    assert "jupyter_bokeh is not installed" in book.page.inner_text(".lsp-missing")
    assert book.page.locator(".lsp-time svg.ls-timeline rect").count() > 4
    assert book.page.locator(".lsp-drawn").count() == 0
    again = "from kit.panels.page import Ear; p = kit.Replay(example.ring()).panel()"
    heard = "p.areas.heard(dict(bokeh='', dark=False, since=0))"
    assert book.ask(f"[exec({again!r}), {heard}, p.areas._time._note.value][-1]") == ""


def test_a_page_whose_server_lacks_the_bokeh_extension_keeps_the_svg(open_notebook):
    book = open_notebook(["1"])
    refused = []
    book.page.route("**/extensions/@bokeh/**", lambda route: (refused.append(route.request.url), route.abort()))
    book.page.reload()
    book.page.wait_for_function("() => window.jupyterapp?.shell?.currentWidget?.context?.isReady === true")
    book.page.evaluate("async () => { await jupyterapp.shell.currentWidget.context.sessionContext.ready; }")
    book.page.evaluate(
        "code => { jupyterapp.shell.currentWidget.content.widgets[0].model.sharedModel.setSource(code); }",
        REPLAY.format(name="ring"),
    )
    book.run_all()
    book.page.wait_for_function("() => window.Bokeh")
    book.page.click(".lsp-step")
    at(book, 1)
    book.until("panel.areas._time._model is not None")
    assert refused
    book.page.wait_for_selector(".lsp-missing span")
    assert "this JupyterLab server has no jupyter_bokeh" in book.page.inner_text(".lsp-missing")
    assert book.page.locator(".lsp-time svg.ls-timeline").is_visible()
    assert not book.page.locator(".lsp-bokeh").is_visible()


@pytest.mark.parametrize("trusted", [True, False])
def test_a_notebook_opened_cold_shows_the_last_picture_and_no_error(open_notebook, screenshots, trusted):
    book = shown(open_notebook)
    book.ask("panel.seek(7)")
    at(book, 7)
    book.page.wait_for_function(
        """() => jupyterapp.shell.currentWidget.content.widgets[0].model.outputs.toJSON()
             .some(output => output.data['text/plain'].includes('stop 7'))"""
    )
    saved = book.save()
    book.server.shut_kernels()
    if not trusted:
        changed = json.loads(saved.read_text())
        changed["cells"][0]["outputs"].append({"output_type": "stream", "name": "stdout", "text": "another hand\n"})
        saved.write_text(json.dumps(changed))
    cold = type(book)(book.server, book.page.context, book.name).open()
    image = cold.page.locator(".jp-OutputArea img")
    image.wait_for()
    assert "stop 7 · recorded 30" in image.get_attribute("alt")
    assert image.evaluate("image => image.naturalWidth") == 842
    assert not any(line.is_visible() for line in cold.page.get_by_text("model not found").all())
    cold.screenshot(screenshots / f"cold-{trusted}.png")
    assert not cold.foreign_requests()


def test_a_failed_recording_says_why(open_notebook, screenshots):
    cell = "from kit.trace import example\nfrom kit.panels import record_panel\nrecord_panel(example.failure())"
    book = open_notebook([cell]).run_all()
    words = book.page.locator(".lsp-record .lsp-words")
    words.wait_for()
    assert "ValueError: boom" in words.inner_text()
    assert "Traffic by rank" in book.page.inner_text(".lsp-record .lsp-traffic")
    book.screenshot(screenshots / "failed.png", ".lsp-record")


SWEEP = """from tests.unit.views.test_bandwidth import LINK, sweep
panel = sweep().plot(link=LINK)
panel"""


def test_a_sweep_is_drawn_by_bokeh_in_the_place_of_its_picture(open_notebook, screenshots):
    book = open_notebook([SWEEP]).run_all()
    book.page.wait_for_selector(".lsp-drawn")
    panel = book.page.locator(".lsp-panel").bounding_box()
    charts = book.page.locator(".lsp-panel .bk-Figure")
    assert charts.count() == 6
    for i in range(6):
        box = charts.nth(i).bounding_box()
        assert panel["x"] <= box["x"] and box["x"] + box["width"] <= panel["x"] + panel["width"]
        assert panel["y"] <= box["y"] and box["y"] + box["height"] <= panel["y"] + panel["height"] + 1
    for theme in book.both_themes(drawn=1):
        book.screenshot(screenshots / f"sweep-{theme}.png", ".lsp-panel")
