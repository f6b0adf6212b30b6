"""The history of a training, and its file."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from kit import cli
from kit.gpt.model import GPTConfig
from kit.gpt.recipe import Recipe
from kit.topics.gpt import live
from kit.topics.gpt.history import About, History, Reader, Taken

ABOUT = About(
    strategy="ddp=2",
    devices=("cpu", "cpu"),
    model=GPTConfig(n_layer=1, n_head=1, n_embd=8, block_size=8, vocab_size=5),
    parameters=1000,
    recipe=Recipe(steps=10, warm_up=1),
    tokens=64,
    flops=6000.0,
    peak=1e6,
    source="measured",
    started="2026-01-01T00:00:00+00:00",
)
STEP = Taken(0, 1.5, 0.3, 1e-3, 8, 64, {"data": 0.25, "forward": 0.5, "backward": 1.0, "update": 0.25})


def test_speeds_and_what_is_left_follow_from_the_steps() -> None:
    history = History(ABOUT)
    assert (history.done, history.tokens_per_second, history.seconds_left) == (0, 0.0, None)
    for number in range(4):
        history.append(replace(STEP, number=number))
    assert history.latest == replace(STEP, number=3) and history.latest.seconds == 2.0
    assert (history.tokens_per_second, history.samples_per_second) == (32.0, 4.0)
    assert history.mfu == pytest.approx(32 * 6000 / 2e6)
    assert history.seconds_left == 12.0


def test_a_file_is_read_while_it_is_written_and_a_resumed_training_goes_on_in_it(tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"
    with History.writer(file) as writer:
        writer.begin(ABOUT)
        reader = Reader(file)
        assert reader.history == History(ABOUT)
        told = [replace(STEP, number=k, memory=(7, 9), sample="to be\n" * k) for k in range(3)]
        for step in told:
            writer.append(step)
        assert reader.read() and reader.history.steps == told
        assert not reader.read()
    with file.open("a") as half:
        half.write('{"step": {"number": 3')
    assert not reader.read(), "a line that is not whole yet"
    file.write_text(file.read_text().removesuffix('{"step": {"number": 3'))
    again = replace(STEP, number=1, validation=1.25)
    with History.writer(file) as writer:
        writer.begin(replace(ABOUT, devices=("cpu",)))
        writer.append(again)
    assert History.load(file) == History(replace(ABOUT, devices=("cpu",)), [told[0], again])


@pytest.mark.parametrize("text", ["to be\n", '{"step": {}}\n', '{"about": {"strategy": "ddp"}}\n', "[]\n"])
def test_what_is_no_history_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "run.jsonl"
    with pytest.raises(ValueError, match="cannot be read"):
        History.load(file)
    file.write_text("")
    with pytest.raises(ValueError, match="no line yet"):
        History.load(file)
    file.write_text(text)
    with pytest.raises(ValueError, match="no history of a training"):
        History.load(file)


def test_the_command_writes_one(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("to be, or not to be: that is the question. " * 40)
    config, file = tmp_path / "run.toml", tmp_path / "run.jsonl"
    recipe = "[recipe]\nsteps = 3\nwarm_up = 1\nbatch = 2\nvalidate_every = 3"
    config.write_text(f'text = "{tmp_path / "text.txt"}"\n[model]\nname = "tiny"\n{recipe}')
    assert cli.main(["train", "--config", str(config), "--device", "cpu", "--log", str(file)]) == 0
    history = History.load(file)
    about = history.about
    assert (about.strategy, about.devices, about.recipe.steps, about.model.vocab_size) == ("single", ("cpu",), 3, 16)
    assert [step.number for step in history.steps] == [0, 1, 2]
    assert [step.validation is None for step in history.steps] == [True, True, False]
    assert all(step.tokens == about.tokens and step.memory[0] > 1 << 20 for step in history.steps)


def test_a_file_that_another_process_writes_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "FOLLOW", 0.01)
    file = tmp_path / "run.jsonl"
    file.touch()
    with pytest.raises(ValueError, match="no line yet"):
        live.join(file)
    with History.writer(file) as writer:
        writer.begin(ABOUT)
        run = live.join(file)
        assert run.state == "running" and not run.history.steps
        heard = threading.Event()
        end = run.subscribe(heard.set)
        writer.append(STEP)
        heard.wait()
        end()
        assert run.history.steps == [STEP] and "step 1 of 10, loss 1.500, running" in repr(run)
        heard.clear()
        run.subscribe(heard.set)
        writer.append(replace(STEP, number=9))
        heard.wait()
    assert run.state == "finished"
