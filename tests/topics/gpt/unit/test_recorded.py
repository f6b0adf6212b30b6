"""A recorded training has the face of one that goes on, and changes nothing."""

from __future__ import annotations

import pytest

from kit.gpt.trainer import Trainer
from kit.run.errors import NoRanks
from kit.run.recordings import index, replay_runner
from kit.run.recordings.replay_runner import ReplayRunner
from kit.topics import gpt
from kit.topics.gpt.live import Training
from kit.topics.gpt.recorded import Recorded


@pytest.fixture
def runner() -> ReplayRunner:
    return ReplayRunner(index.load("10_gpt"), "ports are denied.")


def begun(runner: ReplayRunner, cell: str, monkeypatch: pytest.MonkeyPatch) -> Recorded:
    monkeypatch.setattr(replay_runner, "running", lambda: (runner.recordings.cells[cell], "1"))
    run = gpt.start(gpt.Config(), runner)
    assert isinstance(run, Recorded)
    return run


def test_it_is_what_was_there_at_the_end(
    runner: ReplayRunner, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = begun(runner, "final-run", monkeypatch)
    assert "made on" in capsys.readouterr().out
    before = repr(run)
    assert before.startswith("Training(ddp=4, step ") and "recorded)" in before
    run.rate, run.prompt = 0.5, "to be"
    run.pause()
    run.resume()
    run.stop()
    run.subscribe(lambda: None)()
    assert run.wait(timeout=0.0, step=10**6) == run.state
    assert repr(run) == before
    assert "loss" in gpt.panel(run).text() and gpt.curves(run)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="it can be looked at"):
        gpt.panel(run).pause()  # type: ignore[arg-type]


def test_each_cell_has_its_own(runner: ReplayRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    killed = begun(runner, "break-killed-run", monkeypatch)
    assert killed.state == "failed" and "rank 3 was lost" in killed.trouble
    first = begun(runner, "step-live-start", monkeypatch)
    assert first.state == "stopped" and first.save().name.startswith("step_")
    assert first.history.done <= killed.history.steps[0].number
    monkeypatch.setattr(replay_runner, "running", lambda: (runner.recordings.cells["step-live-pause"], "1"))
    assert first.step_through().trace.meta.function.endswith(Trainer.step.__name__)


def test_a_lab_without_one_says_that_it_needs_ranks() -> None:
    with pytest.raises(NoRanks, match="training needs ranks: lab 00_ranks has no recording of it"):
        gpt.start(gpt.Config(), ReplayRunner(index.load("00_ranks"), "ports are denied."))


def test_no_wish_is_left_out() -> None:
    """What a lab may ask of a training it may ask of a recorded one."""
    wishes = {name for name in vars(Training) if not name.startswith("_")}
    assert wishes - {"told"} <= set(dir(Recorded))
