"""From the click on Step to the repainted panel, in a real Chromium over real ranks.

    python -m tests.benchmarks.bench_panel [--ranks 4] [--steps 40] [--json FILE]

The page takes the time of the click and of the last change of its text and drawings that the click caused; the next
painted frame is then counted in. Prints the median and the slowest of ten in a hundred; the gate is a median of 150 ms.
"""

from __future__ import annotations

import json
import statistics
import tempfile
from pathlib import Path

from tests.benchmarks.figures import Figure, options, tell
from tests.browser.book import NotebookPage, launched
from tests.browser.jupyter import LabServer, notebook_of

CELLS = (
    "import torch, kit\nfrom kit.topics.collectives.reference import ring_all_reduce",
    "kit.cluster(ranks={ranks})\n"
    "ring = kit.step(ring_all_reduce, kit.per_rank([torch.full((2 * {ranks},), 10.0**r) for r in range({ranks})]))\n"
    "ring.panel()",
)
# Resolves to [milliseconds, milliseconds of the kernel's part] when nothing has changed for a while after the click.
CLICK = """async selector => {
  const panel = document.querySelector('.lsp-panel'), button = panel.querySelector(selector);
  const stop = () => panel.querySelector('.lsp-header').textContent;
  let last = 0;
  const watch = new MutationObserver(() => { last = performance.now(); });
  watch.observe(panel, {subtree: true, childList: true, characterData: true, attributes: true});
  const before = stop(), start = performance.now();
  button.click();
  await new Promise(done => {
    const look = () => {
      const now = performance.now();
      if ((stop() !== before && now - last > 120) || now - start > 5000) done(); else setTimeout(look, 5);
    };
    look();
  });
  watch.disconnect();
  if (stop() === before) return null;
  return last - start + 1000 / 60;
}"""


def clicks(book: NotebookPage, steps: int) -> list[float]:
    """Milliseconds of every click; starts over when the ranks have come to the end."""
    taken: list[float] = []
    while len(taken) < steps:
        if book.page.locator(".lsp-step").first.is_disabled():
            book.page.evaluate(CLICK, ".lsp-reset")
            continue
        found = book.page.evaluate(CLICK, ".lsp-step")
        if found is None:
            raise RuntimeError("a click changed nothing for 5 s: " + book.page.inner_text(".lsp-words"))
        taken.append(found)
    return taken


def measure(ranks: int, steps: int) -> list[float]:
    """Milliseconds of each click, sorted."""
    with tempfile.TemporaryDirectory() as folder, launched() as browser:
        if browser is None:
            raise SystemExit("no Chromium here: apt-get install chromium, or python -m playwright install chromium")
        server = LabServer(Path(folder) / "lab")
        try:
            server.wait_until_ready()
            cells = [cell.format(ranks=ranks) for cell in CELLS]
            (server.notebooks / "bench.ipynb").write_text(json.dumps(notebook_of(cells)))
            context = browser.new_context(viewport={"width": 1280, "height": 1000})
            book = NotebookPage(server, context, "bench.ipynb").open().run_all()
            book.page.wait_for_selector(".lsp-drawn")
            clicks(book, 5)  # the first ones import what drawing needs
            taken = clicks(book, steps)
            context.close()
        finally:
            server.close()
    return sorted(taken)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--steps", type=int, default=40)
    chosen = parser.parse_args()
    taken = measure(chosen.ranks, chosen.steps)
    spread = (taken[0], statistics.quantiles(taken, n=10)[-1])
    what = f"click on Step to repainted panel, Chromium, {chosen.ranks} ranks"
    beside = f"{len(taken)} clicks; lowest and 90th percentile in brackets"
    tell([Figure(what, statistics.median(taken), "ms", 150, spread=spread, beside=beside)], chosen.json)


if __name__ == "__main__":
    main()
