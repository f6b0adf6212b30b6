"""A training on real ranks in a real page: its panel grows, is pressed, closed and opened again."""

from __future__ import annotations

CELLS = [
    "import kit\nfrom kit.gpt import Recipe\nfrom kit.topics import gpt\ncluster = kit.cluster(2, device='cpu')",
    "size = dict(n_layer=2, n_head=2, n_embd=32, block_size=32)\n"
    "recipe = Recipe(steps=100_000, batch=8, total_batch=512, validate_every=50)\n"
    "run = gpt.start(gpt.Config(strategy='ddp', checkpoints='checkpoints', model=size, recipe=recipe))\n"
    "panel = gpt.panel(run)\npanel",
]


def test_a_training_is_watched_held_saved_stepped_and_seen_again(open_notebook, screenshots):
    book = open_notebook(CELLS).run_all()
    page = book.page
    page.locator(".lspt-numbers b:text-matches('^[0-9]')").first.wait_for()
    book.until("run.history.done > 120")
    page.locator(".lspt-sample pre:text-matches('.')").wait_for()
    page.locator(".lsp-losses :is(svg circle, .lsp-drawn[data-painted]):visible").first.wait_for()
    where = page.locator(".lspt-numbers").bounding_box()
    book.until("run.history.done > 160")
    assert page.locator(".lspt-numbers").bounding_box() == where, "nothing moves while numbers grow"

    page.locator("button.lsp-pause").click()
    page.locator("button.lsp-pause:has-text('Resume')").wait_for()
    assert book.ask("run.state") == "paused"
    page.locator("button.lsp-measure").click()
    page.locator(".lsp-notice:has-text('was recorded')").wait_for()
    assert page.locator(".lspt-number:has-text('communication') b").inner_text().endswith("%")
    assert book.ask("run.state") == "paused" and float(book.ask("run.history.lost.waiting")) > 0
    stands = book.ask("run.history.done")
    page.locator("button.lsp-save").click()
    page.locator(".lsp-notice:has-text('saved checkpoints')").wait_for()
    page.locator(".lspt-prompt input").fill("def ")
    page.keyboard.press("Enter")
    book.until("run.prompt == 'def '")
    page.locator(".lspt-rate input").fill("0.5")
    page.keyboard.press("Enter")
    book.until("run.rate == 0.5")

    page.locator("button.lsp-through").click()
    page.locator(".lsp-frame .lsp-source").wait_for()
    assert book.ask("run.history.done") == stands
    for width in (560, 900):
        page.evaluate("width => { document.querySelector('.lsp-frame').style.width = width + 'px'; }", width)
        wide = page.locator(".lsp-frame").first.evaluate("panel => [panel.scrollWidth, panel.clientWidth]")
        assert wide[0] <= wide[1]
        for theme in book.both_themes():
            book.screenshot(screenshots / f"training-{width}-{theme}.png", ".lsp-frame")
    page.evaluate("() => { document.querySelector('.lsp-frame').style.width = ''; }")
    page.locator("button.lsp-pause").first.click()
    book.until(f"run.history.done > {stands}")
    page.locator(".lsp-source").wait_for(state="detached")

    book.save()
    book.leave()
    book.open()
    page.locator(".lspt-numbers b:text-matches('^[0-9]')").first.wait_for()
    page.locator("button.lsp-stop").click()
    book.until("run.state == 'stopped'")
    page.locator("button.lsp-stop:disabled").wait_for()
    assert "stopped" in page.locator(".lsp-header").first.inner_text()
    book.screenshot(screenshots / "training-over.png", ".lsp-frame")
