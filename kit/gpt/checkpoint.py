"""Checkpoints: everything a training goes on from, written so that at every moment a whole one is there.

A folder holds a folder for each, `step_00000100`. It is written under another name, and gets its own in one move when
all ranks have written all of it: what a crash leaves half-written is never taken for one. Weights and moments are
whole and go by the model's own names (`torch.distributed.checkpoint` lets ranks share the writing), so another
strategy, or another number of ranks, can go on from them.
"""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException

from kit.gpt.model import GPTConfig
from kit.gpt.trainer import Trainer

_ABOUT = "about.json"
_STEP = "step_{:08d}"


@dataclass(frozen=True)
class About:
    """What a checkpoint is of. done, seen: steps taken, and windows of the text seen in them."""

    model: GPTConfig
    vocabulary: str
    layout: str
    done: int
    seen: int

    @staticmethod
    def read(folder: Path) -> About:
        found = json.loads((folder / _ABOUT).read_text(encoding="utf-8"))
        return About(**{**found, "model": GPTConfig(**found["model"])})


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints of one training in a folder. model, vocabulary: of what is trained; layout: how it lies on ranks.

    keep: the newest so many; older ones go once a newer one is whole.
    """

    folder: Path
    model: GPTConfig
    vocabulary: str
    layout: str
    keep: int = 2

    def newest(self) -> Path | None:
        """The newest whole one; None where there is none."""
        return max((path for path in self.folder.glob("step_*") if (path / _ABOUT).is_file()), default=None)

    def make_room(self) -> None:
        """Tries whether some can be written here; every rank calls, before there is anything to lose.

        Raises OSError where none can, on every rank.
        """
        _first_rank(self._tried, "make room for checkpoints")

    def _tried(self) -> None:
        room = self.folder / ".room"
        _emptied(room)
        room.rmdir()

    def save(self, trainer: Trainer) -> Path:
        """Writes one; every rank calls, between two steps.

        Raises OSError where it could not be written, on every rank; those that were there before still are.
        """
        target = self.folder / _STEP.format(trainer.done)
        beside = self.folder / f".{target.name}.half"
        _first_rank(lambda: _emptied(beside), "make room for a checkpoint")
        about = About(self.model, self.vocabulary, self.layout, trainer.done, trainer.seen)
        try:
            _dcp(dcp.save, {**trainer.strategy.state(), **_random(trainer)}, beside)
        except CheckpointException as error:  # a BaseException, with what each rank raised
            raise OSError(_unwritten(target, error)) from error
        _first_rank(lambda: self._in_place(beside, target, about), "put the checkpoint in its place")
        return target

    def resume(self, trainer: Trainer) -> About | None:
        """Goes on from the newest; every rank calls, before the first step. None where there is none.

        On the layout that it was written from, random numbers go on too: the continuation is the same, bit by bit.
        Raises ValueError for a checkpoint of another model, or of another text's characters.
        """
        found = self.newest()
        if found is None:
            return None
        about = About.read(found)
        self._check(about, found)
        state = trainer.strategy.state()
        random = _random(trainer) if about.layout == self.layout else {}
        _dcp(dcp.load, {**state, **random}, found)
        trainer.strategy.restore(state, about.done)
        trainer.done, trainer.seen = about.done, about.seen
        if random:
            trainer.strategy.set_random_states([random[key] for key in sorted(random)])
        return about

    def _check(self, about: About, found: Path) -> None:
        ours, theirs = asdict(self.model), asdict(about.model)
        for name, value in ours.items():
            if theirs[name] != value:
                raise ValueError(
                    f"{found} is of another model: its {name} is {theirs[name]}, and here it is {value}. Name another"
                    " folder for this model's checkpoints, or train that model"
                )
        if about.vocabulary != self.vocabulary:
            raise ValueError(f"{found} was trained on a text of other characters: name another folder, or that text")

    def _in_place(self, beside: Path, target: Path, about: About) -> None:
        (beside / _ABOUT).write_text(json.dumps(asdict(about)), encoding="utf-8")
        if target.exists():  # this step was saved before: a training that was resumed from further back
            shutil.rmtree(target)
        beside.replace(target)
        whole = sorted(path for path in self.folder.glob("step_*") if (path / _ABOUT).is_file())
        for old in whole[: -self.keep]:
            shutil.rmtree(old)


def _random(trainer: Trainer) -> dict[str, torch.Tensor]:
    """This rank's random states, by keys that are its own."""
    rank = dist.get_rank() if dist.is_initialized() else 0
    return {f"random {rank:05d} {k}": state for k, state in enumerate(trainer.strategy.random_states())}


def _dcp(call: Callable[..., Any], state: dict[str, torch.Tensor], folder: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about one process, which is what is asked for
        call(state, checkpoint_id=folder, no_dist=not dist.is_initialized())


def _emptied(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)


def _first_rank(work: Callable[[], None], what: str) -> None:
    """Done by the first rank, while the others wait. Raises OSError on all of them where it failed."""
    trouble: list[str] = [""]
    if not dist.is_initialized() or dist.get_rank() == 0:
        try:
            work()
        except OSError as error:
            trouble = [str(error)]
    if dist.is_initialized():
        dist.broadcast_object_list(trouble, src=0)
    if trouble[0]:
        raise OSError(f"could not {what}: {trouble[0]}. Checkpoints that were whole before still are")


def _unwritten(target: Path, error: CheckpointException) -> str:
    rank, (reason, _) = next(iter(error.failures.items()))
    return (
        f"{target} could not be written (rank {rank}: {reason}): is the disk full? Checkpoints that were whole before"
        " still are, and training goes on from the newest of them with --resume"
    )
