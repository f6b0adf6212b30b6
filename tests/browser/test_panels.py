"""Panels over recorded examples: what a page shows, in what place, and what is left when things are missing."""

import json

import pytest

REPLAY = """
from kit.run.cursor import Replay
from tests.traces import example
panel = Replay(example.{name}()).panel()
panel
"""
PLACES = """() => [...document.querySelectorAll('.lsp-panel > *, .lsp-panel .lsp-two > *, .lsp-panel button')]
  .filter(part => part.getClientRects().length).map(part => {
    const box = part.getBoundingClientRect(), panel = part.closest('.lsp-panel').getBoundingClientRect();
    return [part.className.split(' ').at(-1), ...[box.left - panel.left, box.top - panel.top, box.width, box.height]
      .map(Math.round)].join(' '); })"""


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


BEYOND = """() => { const panel = document.querySelector('.lsp-panel'), frame = panel.getBoundingClientRect();
  return [...panel.querySelectorAll('*')].filter(part => {
    const box = part.getBoundingClientRect(), drawn = box.width > 0 && box.height > 0;
    return drawn && !part.closest('.lsp-slider') && (box.left < frame.left - 1 || box.right > frame.right + 1);
  }).map(part => part.outerHTML.slice(0, 120)); }"""
COVERED = """() => [...document.querySelectorAll('.lsp-panel :is(button, select, .noUi-handle)')].filter(control => {
  control.scrollIntoView({block: 'center'});
  const box = control.getBoundingClientRect();
  const seen = document.elementFromPoint(box.left + box.width / 2, box.top + box.height / 2);
  return !seen || !(control.contains(seen) || seen.contains(control));
}).map(control => control.className)"""
CUT = """() => [...document.querySelectorAll(`.lsp-panel :is(.ls-chip, .ls-line code, .ls-value, .ls-digits,
  .ls-head > span, .lsp-header .widget-html-content > *)`)]
  .filter(part => part.checkVisibility({visibilityProperty: true})).filter(part => {
    const box = part.getBoundingClientRect(), place = part.closest('td, .ls-line, .lsp-panel').getBoundingClientRect();
    return box.left < place.left - 1 || box.right > place.right + 1 || part.scrollWidth > part.clientWidth + 1;
  }).map(part => part.outerHTML.slice(0, 120))"""
OUT_OF_SIGHT = """() => [...document.querySelectorAll('.lsp-panel .ls-line.ls-here')].filter(line => {
  const box = line.getBoundingClientRect(), code = line.closest('.ls-code').getBoundingClientRect();
  return box.top < code.top - 1 || box.bottom > code.bottom + 1;
}).map(line => line.textContent)"""
SHORT_OF_ROOM = """() => [...document.querySelectorAll('.lsp-words .ls-word > :not(.ls-chip)')]
  .filter(part => part.scrollWidth > part.clientWidth).map(part => part.innerText)"""
SQUEEZE = """width => document.querySelectorAll('.lsp-panel').forEach(panel => {
  panel.parentElement.style.flex = `0 0 ${width}px`; })"""


def squeezed(book, width):
    book.page.evaluate(SQUEEZE, width)
    book.page.wait_for_timeout(100)


@pytest.mark.parametrize("name", ["ring", "deadlock"])
def test_a_panel_fits_the_width_it_is_given(open_notebook, screenshots, name):
    book = shown(open_notebook, name)
    book.page.wait_for_selector(".lsp-drawn")
    book.ask(f"panel.seek({7 if name == 'ring' else 3})")
    book.page.wait_for_timeout(300)
    for width, columns in ((560, 1), (840, 2), (900, 2), (1120, 2)):
        book.page.set_viewport_size({"width": width + 600, "height": 1600})
        squeezed(book, width)
        panel = book.page.locator(".lsp-panel").bounding_box()
        assert panel["width"] == width
        assert book.page.evaluate(BEYOND) == []
        assert book.page.evaluate(COVERED) == []
        assert book.page.evaluate(CUT) == []
        assert book.page.evaluate(OUT_OF_SIGHT) == []
        lefts = {round(part.bounding_box()["x"]) for part in book.page.locator(".lsp-two > *").all()}
        assert len(lefts) == columns
        book.screenshot(screenshots / f"{name}-{width}.png", ".lsp-panel")
    for width, seen in ((440, 440), (200, 400)):  # the second beside a file browser: it scrolls, and code is read
        squeezed(book, width)
        assert book.page.locator(".lsp-panel").bounding_box()["width"] == seen
        assert book.page.evaluate(SHORT_OF_ROOM) == []
        book.screenshot(screenshots / f"{name}-{width}.png", ".lsp-panel")


def test_a_long_notice_can_be_read_and_moves_nothing(open_notebook):
    book = shown(open_notebook)
    book.page.wait_for_selector(".lsp-drawn")
    for width in (560, 900):
        squeezed(book, width)
        before = book.page.evaluate(PLACES)
        book.ask("panel._transport.say('this cluster was stopped: kit.cluster() starts a new one. ' * 2)")
        notice = book.page.locator(".lsp-notice span")
        notice.wait_for()
        assert book.page.evaluate(PLACES) == before
        box, place = notice.bounding_box(), book.page.locator(".lsp-notice").bounding_box()
        assert box["y"] + box["height"] <= place["y"] + place["height"] + 1
        book.ask("panel._transport.say('')")
        notice.wait_for(state="detached")


PAINTED = """samples => samples.map(sample =>
  sample.getContext('2d').getImageData(0, 0, sample.width, sample.height).data.some(value => value > 0))"""


def test_the_key_of_the_time_stays_and_hides_a_kind(open_notebook):
    book = shown(open_notebook)
    samples = book.page.locator(".lsp-time .bk-Legend canvas")
    samples.nth(3).wait_for()
    while samples.evaluate_all(PAINTED) != [True] * 4:
        book.page.wait_for_timeout(100)
    for position in (3, 7):
        book.ask(f"panel.seek({position})")
        at(book, position)
        book.page.wait_for_timeout(500)  # Bokeh paints on a canvas: nothing in the page tells when
        assert samples.evaluate_all(PAINTED) == [True] * 4
    shown_kinds = "[one.visible for one in panel.areas._time._bokeh.by_role['compute']]"
    assert book.ask(shown_kinds) == "[True]"
    book.page.locator(".lsp-time .bk-Legend .bk-item").first.click()
    book.until(f"{shown_kinds} == [False]")


def test_nothing_jumps(open_notebook, screenshots):
    book = shown(open_notebook)
    book.page.wait_for_selector(".lsp-drawn")
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


def test_the_svg_stays_in_sight_until_bokeh_has_painted(open_notebook):
    book = open_notebook(["1"])
    book.page.evaluate(
        """() => { const read = CanvasRenderingContext2D.prototype.getImageData;
          window.paints = false;
          window.unpatch = () => { CanvasRenderingContext2D.prototype.getImageData = read; };
          CanvasRenderingContext2D.prototype.getImageData = function (...area) {
            return window.paints ? read.apply(this, area) : new ImageData(1, 1); }; }"""
    )
    book.page.evaluate(
        "code => { jupyterapp.shell.currentWidget.content.widgets[0].model.sharedModel.setSource(code); }",
        REPLAY.format(name="ring"),
    )
    book.run_all()
    book.page.wait_for_selector(".lsp-time.lsp-drawn")
    svg, bokeh = book.page.locator(".lsp-time svg.ls-timeline"), book.page.locator(".lsp-bokeh")
    assert svg.is_visible() and not bokeh.is_visible()
    book.page.evaluate("() => { window.paints = true; }")
    bokeh.wait_for(state="visible")
    assert not svg.is_visible()
    book.page.evaluate("() => { window.unpatch(); }")


def test_without_jupyter_bokeh_the_time_is_an_svg_and_a_sentence_says_so_once(open_notebook):
    book = shown(open_notebook, before="import sys\nsys.modules['jupyter_bokeh'] = None\n")
    book.page.wait_for_selector(".lsp-missing span")
    assert "jupyter_bokeh is not installed" in book.page.inner_text(".lsp-missing")
    assert book.page.locator(".lsp-time svg.ls-timeline rect").count() > 4
    assert book.page.locator(".lsp-drawn").count() == 0
    again = "p = Replay(example.ring()).panel()"
    heard = "p.areas.heard(dict(bokeh='', dark=False, since=0, view=0))"
    assert book.ask(f"[exec({again!r}), {heard}, p.areas._time._note.value][-1]") == ""


def test_a_page_whose_server_lacks_the_bokeh_extension_keeps_the_svg(open_notebook):
    book = open_notebook(["1"], reload=True)
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


def test_a_notebook_closed_and_opened_again_shows_the_time_as_it_is(open_notebook):
    book = shown(open_notebook)
    book.page.wait_for_selector(".lsp-drawn")
    first = book.ask("[id(panel.areas._time._model), panel.seek(7)][0]")
    at(book, 7)
    book.save()
    book.leave()
    again = type(book)(book.server, book.page.context, book.name, book.page).open()
    again.page.wait_for_selector(".lsp-panel .ls-words")
    again.until(f"id(panel.areas._time._model) != {first} and panel.areas._time._alive")
    again.leave()


def test_a_panel_whose_kernel_was_restarted_says_what_to_do_and_stays_as_it_was(open_notebook, screenshots):
    book = shown(open_notebook)
    book.page.wait_for_selector(".lsp-drawn")
    before = book.page.evaluate(PLACES)
    book.restart()
    book.page.wait_for_selector(".lsp-panel.jupyter-widgets-disconnected")
    marks = """() => [...document.querySelectorAll('.lsp-panel, .lsp-panel *')]
      .map(part => getComputedStyle(part, '::before').content).filter(text => text.includes('again'))"""
    (sentence,) = book.page.evaluate(marks)
    assert sentence == '"The kernel that drove this panel is gone: run this cell again."'
    below = [place.split() for place in book.page.evaluate(PLACES)]
    moved = {int(now[2]) - int(then.split()[2]) for then, now in zip(before, below, strict=True)}
    assert len(moved) == 1, "all of it moved down together, by the sentence, and no broken link stands in between"
    for theme in book.both_themes():
        book.screenshot(screenshots / f"restarted-{theme}.png", ".lsp-panel")


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
    cell = (
        "from tests.traces import example\nfrom kit.panels.results import record_panel\nrecord_panel(example.failure())"
    )
    book = open_notebook([cell]).run_all()
    words = book.page.locator(".lsp-record .lsp-words")
    words.wait_for()
    assert "ValueError: boom" in words.inner_text()
    assert "Traffic by rank" in book.page.inner_text(".lsp-record .lsp-traffic")
    book.screenshot(screenshots / "failed.png", ".lsp-record")


SWEEP = """from tests.unit.plot.test_bandwidth import LINK, sweep
panel = sweep().plot(link=LINK)
panel"""


def test_a_sweep_is_drawn_by_bokeh_in_the_place_of_its_picture(open_notebook, screenshots):
    book = open_notebook([SWEEP]).run_all()
    book.page.wait_for_selector(".lsp-drawn")
    panel = book.page.locator(".lsp-panel").bounding_box()
    charts = book.page.locator(".lsp-panel .bk-Figure")
    assert charts.count() == 1 + 6, "the key, and two for each operation"
    for i in range(7):
        box = charts.nth(i).bounding_box()
        assert panel["x"] <= box["x"] and box["x"] + box["width"] <= panel["x"] + panel["width"]
        assert panel["y"] <= box["y"] and box["y"] + box["height"] <= panel["y"] + panel["height"] + 1
    for theme in book.both_themes(drawn=1):
        book.screenshot(screenshots / f"sweep-{theme}.png", ".lsp-panel")
