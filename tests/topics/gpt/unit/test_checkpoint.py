"""Checkpoints of one rank: whole or not there, and refused where they are of something else."""

from __future__ import annotations

import re
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.distributed.checkpoint as dcp

from kit.gpt.checkpoint import Checkpoints
from kit.gpt.feed import Feed
from kit.gpt.model import GPT, GPTConfig
from kit.gpt.recipe import Recipe
from kit.gpt.trainer import Trainer
from kit.topics.gpt.reference import Layout
from kit.topics.gpt.run import lay_out

SIZES = GPTConfig.named("tiny", vocab_size=10, dropout=0.1)
RECIPE = Recipe(steps=6, batch=2, warm_up=1)


def trainer(seed: int = 0) -> Trainer:
    torch.manual_seed(seed)
    text = torch.arange(400) * 3 % 10
    return Trainer(lay_out(GPT(SIZES), Layout(), RECIPE), RECIPE, Feed(text, 8, seed=0))


@pytest.fixture
def kept(tmp_path: Path) -> Checkpoints:
    return Checkpoints(tmp_path / "run", SIZES, "abc", "single")


def some_steps(training: Trainer, count: int) -> list[float]:
    return [training.step().loss for _ in range(count)]


def names(kept: Checkpoints) -> list[str]:
    return sorted(path.name for path in kept.folder.iterdir())


def test_it_goes_on_as_if_nothing_had_been(kept: Checkpoints) -> None:
    going = trainer()
    some_steps(going, 3)
    assert kept.save(going).name == "step_00000003"
    rest = some_steps(going, 3)
    other = trainer(seed=1)
    about = kept.resume(other)
    assert about is not None and (about.done, about.seen, other.done, other.seen) == (3, 6, 3, 6)
    assert [step.loss for step in other] == rest
    without = trainer(seed=1)
    kept.resume(without)
    torch.manual_seed(1)
    assert some_steps(without, 3) != rest, "dropout's draws are part of it"


def test_only_the_newest_are_kept(kept: Checkpoints) -> None:
    assert kept.resume(trainer()) is None
    going = trainer()
    for _ in range(4):
        some_steps(going, 1)
        kept.save(going)
    kept.save(going)  # a step that is there is written anew
    assert names(kept) == ["step_00000003", "step_00000004"]


def test_what_was_half_written_is_never_gone_on_from(kept: Checkpoints, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed while the files are written, before the note about them, or before the move: the one before counts."""
    going = trainer()
    some_steps(going, 1)
    kept.save(going)
    some_steps(going, 1)
    for dies_in in ((dcp, "save"), (Path, "write_text"), (Path, "replace")):
        with monkeypatch.context() as patch:
            patch.setattr(*dies_in, killed)
            with pytest.raises(Killed):
                kept.save(going)
        assert kept.newest() == kept.folder / "step_00000001"
        other = trainer(seed=1)
        kept.resume(other)
        assert other.done == 1
    kept.save(going)
    assert names(kept) == ["step_00000001", "step_00000002"], "what was left is cleared away"


class Killed(BaseException):
    """As a kill, nothing may catch it."""


def killed(*_: object, **__: object) -> None:
    raise Killed


@contextmanager
def files_no_longer_than(size: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)


def test_a_folder_that_cannot_be_written_is_told_before_the_first_step(kept: Checkpoints, tmp_path: Path) -> None:
    kept.make_room()
    assert list(kept.folder.iterdir()) == []
    (tmp_path / "file").write_text("no folder")
    there = replace(kept, folder=tmp_path / "file" / "kept")
    with pytest.raises(OSError, match="could not make room for checkpoints: .*file/kept"):
        there.make_room()


def test_a_full_disk_is_said_and_costs_no_checkpoint(kept: Checkpoints) -> None:
    going = trainer()
    some_steps(going, 1)
    kept.save(going)
    some_steps(going, 1)
    with (
        files_no_longer_than(2000),
        pytest.raises(OSError, match="step_00000002 could not be written .*disk full.*whole"),
    ):
        kept.save(going)
    assert kept.newest() == kept.folder / "step_00000001"
    some_steps(going, 1)
    assert kept.save(going).name == "step_00000003"


def test_another_models_checkpoint_is_refused(kept: Checkpoints) -> None:
    kept.save(trainer())
    wider = replace(kept, model=replace(SIZES, n_embd=32))
    with pytest.raises(
        ValueError, match="is of another model: its n_embd is 16, and here it is 32. Name another folder"
    ):
        wider.resume(trainer())
    with pytest.raises(ValueError, match="a text of other characters"):
        replace(kept, vocabulary="abd").resume(trainer())
    assert re.fullmatch(r"step_\d{8}", names(kept)[0])
