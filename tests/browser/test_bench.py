"""The schedule bench in a real page: a drag, keys and undo, and the canvas shows what the kernel has proved."""

from __future__ import annotations

CELLS = [
    "from kit.plan.families import schedule\nfrom kit.panels.bench import ScheduleBench, Target\n"
    "bench = ScheduleBench(schedule('1F1B', 4, 8), Target(idle=0.2, held=4))",
    "bench",
]
REPAINTED = """async () => {
  const place = document.querySelector('.lsp-schedule');
  await new Promise(seen => requestAnimationFrame(() => requestAnimationFrame(seen)));
  return place.grid.mut === getComputedStyle(place).getPropertyValue('--ls-mut').trim();
}"""
MIDDLE = """([rank, position]) => {
  const grid = document.querySelector('.lsp-schedule').grid, box = grid.box(rank, position);
  const place = grid.canvas.getBoundingClientRect();
  return [place.x + (box.x + box.right) / 2, place.y + box.middle];
}"""


def test_an_action_is_dragged_and_the_page_and_the_kernel_agree(open_notebook, screenshots):
    book = open_notebook(CELLS).run_all()
    page = book.page
    page.locator(".lsp-painted canvas").wait_for()
    page.locator(".lsp-bench").scroll_into_view_if_needed()
    before = book.ask("bench.schedule")
    x, y = page.evaluate(MIDDLE, [1, 3])  # 1B0, to the place before 1F1
    goal, _ = page.evaluate(MIDDLE, [1, 1])
    page.mouse.move(x, y)
    page.mouse.down()
    for tenth in range(1, 11):
        page.mouse.move(x + (goal - 12 - x) * tenth / 10, y)
    book.until("str(bench.schedule.rows[1][1]) == '1B0'")
    page.mouse.up()
    page.locator(".lsp-words :text('2F1: stage 2 needs the activation of micro-batch 1')").wait_for()
    page.wait_for_function("() => document.querySelector('.lsp-schedule').grid.news.halt !== null")
    answers = page.evaluate("() => performance.getEntriesByName('lockstep-answer').length")
    assert answers > 0 and book.ask("bench.chosen") == "Place(rank=1, position=1)"

    page.keyboard.press("ArrowRight")
    book.until("bench.chosen.position == 2")
    page.keyboard.press("Shift+ArrowLeft")
    book.until("bench.chosen.position == 1")
    page.keyboard.press("z")
    book.until("bench.chosen.position == 1 and str(bench.schedule.rows[1][1]) == '1B0'")
    page.keyboard.press("z")
    book.until("bench.status == 'runs'")
    assert book.ask("bench.schedule") == before

    for width in (560, 900):
        page.evaluate("width => { document.querySelector('.lsp-bench').style.width = width + 'px'; }", width)
        wide = page.locator(".lsp-bench").evaluate("panel => [panel.scrollWidth, panel.clientWidth]")
        assert wide[0] <= wide[1]
    for theme in book.both_themes():
        page.wait_for_function(REPAINTED)
        book.screenshot(screenshots / f"bench-{theme}.png", ".lsp-bench")


PANNED = """() => {
  const grid = document.querySelector('.lsp-schedule').grid, span = grid.news.span, [block] = grid.blocks;
  const alike = [0.3, 0.31, 0.305, 0.9, 0, 0.4].map(begin => { // a little on, back, far away, over the ends
    grid.shift(begin * span, span / 5);
    grid.paint();
    const panned = block.picture.image.data.slice();
    block.picture = null;
    grid.paint();
    return panned.every((value, i) => value === block.picture.image.data[i]);
  });
  return [alike, new Set(new Uint32Array(block.picture.image.data.buffer)).size];
}"""


def test_a_pan_paints_what_came_in_and_it_is_the_same_picture(open_notebook, screenshots):
    book = open_notebook([CELLS[0].replace("'1F1B', 4, 8", "'ZBH1', 64, 128"), "bench"]).run_all()
    book.page.locator(".lsp-painted canvas").wait_for()
    alike, colours = book.page.evaluate(PANNED)
    assert all(alike), alike
    assert colours == 5  # forward, backward, weights, idle, nothing
    for theme in book.both_themes():
        book.page.wait_for_function(REPAINTED)
        book.screenshot(screenshots / f"large-{theme}.png", ".lsp-bench")


ON_RANKS = [
    "import kit\ncluster = kit.cluster(ranks=2, device='cpu')",
    "from kit.topics.pipeline import Work, bench\n"
    "mine = bench('1F1B', ranks=2, micro_batches=3, work=Work(forward=0.002, input=0.002, weight=0.002))",
    "mine",
]


def test_run_puts_what_real_ranks_took_under_what_is_drawn(open_notebook, screenshots):
    book = open_notebook(ON_RANKS).run_all()
    page = book.page
    page.locator(".lsp-painted canvas").wait_for()
    assert book.ask("mine.measured") == "None"
    page.locator(".lsp-bench").get_by_role("button", name="Run", exact=True).click()
    page.wait_for_function("() => document.querySelector('.lsp-schedule').grid.blocks.length === 2")
    drawn, measured = page.evaluate(
        "() => document.querySelector('.lsp-schedule').grid.blocks.map("
        "block => ({title: block.title, top: block.top, actions: block.began.length}))"
    )
    assert drawn["top"] < measured["top"] and measured["title"].startswith("measured")
    assert drawn["actions"] == measured["actions"] == 12
    page.locator(".lsp-bench").scroll_into_view_if_needed()
    for theme in book.both_themes():
        page.wait_for_function(REPAINTED)
        book.screenshot(screenshots / f"bench-ran-{theme}.png", ".lsp-bench")
    book.ask("cluster.stop()")
