"""A training's panel and pictures, from histories made here: what they say, and what they cost."""

from __future__ import annotations

from math import exp, inf, nan
from pathlib import Path

import pytest

from kit.gpt.model import GPTConfig
from kit.gpt.recipe import Recipe
from kit.plot.figure import Dots, Line
from kit.topics import gpt
from kit.topics.gpt.history import About, History, Taken
from kit.topics.gpt.pictures import MOST, loss_figure, recipe_figure


def made(steps: int, of: int = 500, apart: float = 0.0, strategy: str = "ddp=2", sample: str = "") -> History:
    model = GPTConfig(n_layer=2, n_head=2, n_embd=32, block_size=32, vocab_size=65)
    started = "2026-11-23T00:00:00+00:00"
    about = About(strategy, ("cpu", "cpu"), model, 30_000, Recipe(steps=of), 512, 2e5, 1e11, "measured", started)
    history = History(about)
    for number in range(steps):
        validated = 1.5 + apart + exp(-number / 100) if number % 100 == 99 else None
        spent = {"forward": 0.02, "backward": 0.04, "update": 0.004}
        loss, norm, rate = 1.2 + apart + 3 * exp(-number / 100), 1.0, 1e-3 * min(1, number / 20)
        written = sample if number % 50 == 49 else ""
        history.append(Taken(number, loss, norm, rate, 16, 512, spent, (3_000_000, 5_000_000), validated, written))
    return history


def lines(history: History) -> list[Line]:
    return [mark for _, axes in loss_figure({"": history}).axes() for mark in axes.marks if isinstance(mark, Line)]


def test_everything_it_shows_is_read_as_text_too() -> None:
    told = gpt.panel(made(200, sample="def f(x):")).text()
    assert "ddp=2 · 2 ranks on cpu · 0.03 M parameters" in told and "kept" in told
    assert "step 200 of 500" in told and "left" not in told, "nobody trains it"
    assert "loss: 1.6" in told and "validation 1.6367, step 200" in told
    assert "dt: 64 ms (dtf 20 ms · dtb 40 ms)" in told
    assert "samples a second: 250.0 (125.0 a rank)" in told and "tokens a second: 8,000 (4,000 a rank)" in told
    assert "MFU: 0.8%" in told and "memory of a rank: 5 MB (3 MB, 5 MB)" in told
    assert told.endswith("after step 200 it writes:\ndef f(x):")


def test_before_the_first_step_nothing_is_made_up() -> None:
    panel = gpt.panel(made(0))
    assert "loss: –" in panel.text() and "step 0 of 500" in panel.text()
    panel.inside()


def test_what_a_model_writes_is_data() -> None:
    page, _ = gpt.panel(made(100, sample="<script>alert(1)</script>")).inside()
    assert "<script" not in page and "&lt;script&gt;" in page


def test_a_history_is_looked_at_and_not_driven() -> None:
    panel = gpt.panel(made(3))
    for press in (panel.pause, panel.resume, panel.stop, panel.save, panel.step_through):
        with pytest.raises(ValueError, match="it can be looked at"):
            press()


def test_a_file_will_do(tmp_path: Path) -> None:
    history = made(5)
    with History.writer(tmp_path / "run.jsonl") as file:
        file.begin(history.about)
        for step in history.steps:
            file.append(step)
    assert "step 5 of 500" in gpt.panel(tmp_path / "run.jsonl").text()
    assert "step 5, loss" in gpt.curves(str(tmp_path / "run.jsonl")).text()
    with pytest.raises(ValueError, match="cannot be read"):
        gpt.panel(tmp_path / "none.jsonl")


def test_a_line_has_no_more_points_than_a_picture_shows_and_their_mean_is_the_steps_own() -> None:
    (line,) = lines(made(5000, of=5000))
    assert len(line.x) <= MOST
    assert line.x.max() <= 5000 and line.y[0] > line.y[-1]
    steps = [step.loss for step in made(5000, of=5000).steps]
    assert line.y.mean() == pytest.approx(sum(steps) / 5000, rel=0.01)  # the last mean may be of fewer steps
    assert len(lines(made(200))[0].x) == 200


def test_a_line_ends_where_the_loss_is_no_number() -> None:
    history = made(100)
    for number, loss in ((100, nan), (101, inf)):
        history.append(Taken(number, loss, nan, 1e-3, 16, 512, {"forward": 1.0}))
    assert len(lines(history)[0].x) == 100
    recipe_figure(history)
    assert "not a number" in gpt.panel(history).text() and "which is no number" in gpt.curves(history).text()


def test_trainings_stand_side_by_side_each_with_its_name() -> None:
    both = {"ddp": made(400), "zero3": made(500), "tp": made(500, apart=0.001)}
    figure = loss_figure(both)
    assert [name for _, name in figure.key] == list(both)
    ((_, axes),) = figure.axes()
    heights = sorted(level for level, _ in axes.right)
    gaps = [(b - a) / (axes.y.high - axes.y.low) * axes.height for a, b in zip(heights, heights[1:], strict=False)]
    assert [name for _, name in axes.right] == list(both) and min(gaps) >= 15 - 1e-6, "names do not overlap"
    dots = [mark for mark in axes.marks if isinstance(mark, Dots)]
    assert [len(mark.x) for mark in dots] == [4, 5, 5]


@pytest.mark.parametrize(("over", "end"), [("steps", 400), ("tokens", 400 * 512), ("time", 400 * 0.064)])
def test_losses_are_drawn_over_what_is_asked(over: str, end: float) -> None:
    ((_, axes),) = loss_figure({"": made(400)}, over).axes()
    (line,) = [mark for mark in axes.marks if isinstance(mark, Line)]
    assert line.x[-1] == pytest.approx(end, rel=0.01) and axes.x.high >= end


def test_what_cannot_be_drawn_is_said() -> None:
    with pytest.raises(ValueError, match="1 to 6 trainings, and there are 0"):
        gpt.curves({})
    with pytest.raises(ValueError, match="not 'epochs'"):
        gpt.curves(made(3), over="epochs")


def test_the_axis_of_a_training_moves_seldom() -> None:
    ends = [loss_figure({"": made(done, of=1000)}).columns[0].axes[0].x.high for done in (0, 10, 60, 120, 400, 1000)]
    assert ends == [31.25, 31.25, 62.5, 125, 500, 1000]
