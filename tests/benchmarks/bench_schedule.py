"""The schedule bench in a real Chromium: how soon it answers a drag, and how it bears 65,536 boxes.

    python -m tests.benchmarks.bench_schedule [--drags 20] [--json FILE]

A drag: from the pointer's move in the page to the canvas with the kernel's answer on it (the page's own marks,
`lockstep-answer`), p = 4, m = 8. First paint: from running the cell that shows a bench of p = 64, m = 512 to its
canvas painted; the kernel's part of it, proof, simulation and numbers for the page, on its own too. Pan: how long a
frame takes while that picture, four times nearer, is moved at every frame, and how much of it the script paints. Each a
median with its quartiles.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kit.cost.pipeline import simulated
from kit.panels.bench import ScheduleBench
from kit.plan.families import schedule
from tests.benchmarks.figures import Figure, options, tell
from tests.browser.book import NotebookPage, launched
from tests.browser.jupyter import LabServer, notebook_of
from tests.browser.test_bench import MIDDLE

CELLS = (
    "from kit.plan.families import schedule\nfrom kit.panels.bench import ScheduleBench",
    "small = ScheduleBench(schedule('1F1B', 4, 8))\nlarge = ScheduleBench(schedule('1F1B', 64, 512))",
    "small",
)
SHOW = """async () => {
  const from = performance.now();
  performance.clearMarks('lockstep-painted');
  const context = jupyterapp.shell.currentWidget.context;
  const cells = context.model.sharedModel;
  cells.addCell({cell_type: 'code', source: 'large'});
  jupyterapp.shell.currentWidget.content.activeCellIndex = cells.cells.length - 1;
  jupyterapp.commands.execute('notebook:run-cell');
  while (!performance.getEntriesByName('lockstep-painted').length) await new Promise(requestAnimationFrame);
  return performance.getEntriesByName('lockstep-painted')[0].startTime - from;
}"""
PAN = """async () => {
  const grid = [...document.querySelectorAll('.lsp-schedule')].at(-1).grid, span = grid.news.span;
  const took = [], painted = [], frames = 90, paint = grid.paint.bind(grid);
  grid.paint = () => { const from = performance.now(); paint(); painted.push(performance.now() - from); };
  grid.shift(0, span / 4);
  await new Promise(requestAnimationFrame);
  for (let i = 0; i < frames; i++) {
    const from = performance.now();
    grid.shift(span / 2 * i / frames, span / 4);
    await new Promise(requestAnimationFrame);
    took.push(performance.now() - from);
  }
  delete grid.paint;
  return [took, painted.slice(-frames)];
}"""


def drags(page: Any, count: int) -> list[float]:
    """Milliseconds from a pointer's move that changes the order to the painted answer, sorted."""
    page.locator(".lsp-bench").scroll_into_view_if_needed()
    for turn in range(count):
        x, y = page.evaluate(MIDDLE, [0, 6])
        there, _ = page.evaluate(MIDDLE, [0, 7 if turn % 2 else 5])
        page.mouse.move(x, y)
        page.mouse.down()
        page.mouse.move(there + (12 if turn % 2 else -12), y)
        page.wait_for_timeout(250)
        page.mouse.up()
        page.wait_for_timeout(250)
    return sorted(page.evaluate("() => performance.getEntriesByName('lockstep-answer').map(one => one.duration)"))


def measure(count: int) -> tuple[list[float], float, list[float], list[float]]:
    with tempfile.TemporaryDirectory() as folder, launched() as browser:
        if browser is None:
            raise SystemExit("no Chromium here: apt-get install chromium, or python -m playwright install chromium")
        server = LabServer(Path(folder) / "lab")
        try:
            server.wait_until_ready()
            (server.notebooks / "bench.ipynb").write_text(json.dumps(notebook_of(list(CELLS))))
            context = browser.new_context(viewport={"width": 1280, "height": 1000})
            page = NotebookPage(server, context, "bench.ipynb").open().run_all().page
            page.wait_for_selector(".lsp-painted")
            taken = drags(page, count)
            paint = page.evaluate(SHOW)
            frames, painted = page.evaluate(PAN)
            return taken, paint, frames, painted
        finally:
            server.close()


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--drags", type=int, default=20)
    chosen = parser.parse_args()
    large = schedule("1F1B", 64, 512)
    simulation = seconds(lambda: simulated(large))
    building = seconds(lambda: ScheduleBench(large))
    sent = len(ScheduleBench(large)._sheet._data.value) / 1e6
    taken, paint, frames, painted = measure(chosen.drags)
    figures = [
        figure("a drag on the bench to its painted answer", taken, "ms", 100),
        Figure("first paint of a schedule of 65,536 actions", paint / 1000, "s", 1.0, beside="p = 64, m = 512"),
        figure("a frame of a pan over 65,536 actions", frames, "ms", 1000 / 30, "30 frames a second"),
        figure("of it painting", painted, "ms"),
        figure("the bench of 65,536 actions built in the kernel", building, "s", beside=f"{sent:.1f} MB to the page"),
        figure("65,536 actions simulated", simulation, "s", 0.3),
    ]
    tell(figures, chosen.json)


def seconds(work: Callable[[], object], repeats: int = 7) -> list[float]:
    taken = []
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        taken.append(time.perf_counter() - began)
    return taken


def figure(what: str, taken: list[float], unit: str, gate: float | None = None, beside: str = "") -> Figure:
    low, median, high = statistics.quantiles(taken, n=4)
    return Figure(what, median, unit, gate, spread=(low, high), beside=beside)


if __name__ == "__main__":
    main()
