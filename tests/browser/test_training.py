"""Pictures of a training step in a notebook: memory, overlap and flow charts, in both themes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from playwright.sync_api import expect

MEMORY = """
from kit.panels.results import memory_panel
from kit.trace.facts import MemorySample, Pass
from kit.trace.memory import Holdings
MB = 1_000_000
def held(k, g):
    own = (MemorySample(0, "begins", parameters=4 * MB), MemorySample(1, "forward begins", parameters=4 * MB),
           MemorySample(2, "addmm", parameters=4 * MB, activations=3 * MB),
           MemorySample(3, "mm", parameters=4 * MB, gradients=g, activations=2 * MB, buffers=4 * MB - g // 2),
           MemorySample(4, "step begins", parameters=4 * MB, gradients=g),
           MemorySample(5, "zeros_like", parameters=4 * MB, gradients=g, optimizer_state=k, other=MB),
           MemorySample(6, "step ends", parameters=4 * MB, gradients=g, optimizer_state=k))
    passes = Pass("forward", 1, 3), Pass("backward", 3, 4), Pass("step", 4, 6)
    return Holdings((own,) * 2, (passes,) * 2, "live storages")
panel = memory_panel({"data parallel": held(8 * MB, 4 * MB), "ZeRO, stage 2": held(4 * MB, 2 * MB)},
                     {"data parallel": {"16P": 16 * MB}, "ZeRO, stage 2": {"4P + 12P/n": 10 * MB}})
panel
"""
OVERLAP = """
from kit.topics.data_parallel import plot_overlap
from tests.traces import example
waits = example.overlap()
panel = plot_overlap({"two buckets": waits, "the same": waits})
panel
"""
COUNTING = """
from kit.panels.embed import FigureView
drawn, draw = [], FigureView._draw
FigureView._draw = lambda picture: (drawn.append(picture), draw(picture))
"""
CHARTS = """
from kit.topics.data_parallel.figures import training_chart
training_chart("full", 4, now="average")
"""


def test_a_training_step_in_pictures(open_notebook: Callable[..., Any], screenshots: Path) -> None:
    book = open_notebook([COUNTING, MEMORY, OVERLAP, CHARTS]).run_all()
    panels = book.page.locator(".lsp-panel")
    for number, drawing in enumerate((".ls-memory", ".ls-overlap")):
        panel = panels.nth(number)
        panel.scroll_into_view_if_needed()
        panel.locator(".lsp-drawn .bk-Figure").first.wait_for()
        figures = panel.locator(".lsp-bokeh").bounding_box()
        said = panel.locator(".ls-said").bounding_box()
        assert figures["y"] + figures["height"] <= said["y"] + 1, "the Bokeh picture covers no words"
        expect(panel.locator(drawing)).to_have_css("visibility", "hidden")
    assert book.ask("len(drawn)") == "2", "once each, though both asked for BokehJS"
    chart = book.page.locator(".jp-RenderedMermaid img, .jp-RenderedMermaid svg").first
    chart.wait_for()
    assert chart.bounding_box()["width"] > 300
    for theme in book.both_themes(drawn=2):
        for number in range(2):
            panels.nth(number).scroll_into_view_if_needed()
            panels.nth(number).screenshot(path=str(_made(screenshots) / f"{theme}-{number}.png"))
        chart.screenshot(path=str(screenshots / f"{theme}-chart.png"))


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder
