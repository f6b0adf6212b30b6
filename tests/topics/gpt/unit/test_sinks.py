"""Numbers for TensorBoard and W&B: what either is given, and what is said where it is not installed."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kit.gpt.recipe import Recipe
from kit.topics.gpt import run
from kit.topics.gpt.run import Config
from kit.topics.gpt.sinks import sink

Written = dict[tuple[str, int], float]
RECIPE = Recipe(steps=2, warm_up=1, batch=2, validate_every=2)


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    (tmp_path / "text.txt").write_text("to be, or not to be: that is the question. " * 40)
    monkeypatch.setattr(run, "RUNS", str(tmp_path / "runs"))
    return Config(text=str(tmp_path / "text.txt"), model={"name": "tiny"}, recipe=RECIPE)


class Writer:
    """As torch.utils.tensorboard's and a run of wandb's."""

    def __init__(self, **begun_with: Any) -> None:
        self.begun_with, self.written, self.closed = begun_with, Written(), False

    def add_scalar(self, name: str, number: float, step: int) -> None:
        self.written[name, step] = number

    def log(self, numbers: dict[str, float], step: int) -> None:
        self.written |= {(name, step): number for name, number in numbers.items()}

    def close(self) -> None:
        self.closed = True

    finish = close


def module(monkeypatch: pytest.MonkeyPatch, name: str, what: str) -> list[Writer]:
    """Stands in the place of a module, one of whose names begins a run."""
    begun: list[Writer] = []

    def begin(*folder: str, **how: str) -> Writer:
        begun.append(Writer(**how, **({"folder": folder[0]} if folder else {})))
        return begun[-1]

    stand_in = ModuleType(name)
    setattr(stand_in, what, begin)
    monkeypatch.setitem(sys.modules, name, stand_in)
    return begun


@pytest.mark.parametrize(
    ("name", "of", "what"),
    [("tensorboard", "torch.utils.tensorboard", "SummaryWriter"), ("wandb", "wandb", "init")],
)
def test_each_step_and_validation_is_written(
    monkeypatch: pytest.MonkeyPatch, config: Config, name: str, of: str, what: str
) -> None:
    begun = module(monkeypatch, of, what)
    said: list[str] = []
    run.train(replace(config, send_to=name), say=said.append)
    (writer,) = begun
    assert run.RUNS in writer.begun_with.values() and writer.closed
    assert {name for name, step in writer.written if step == 1} == {"loss", "lr", "norm", "dt", "tps", "mfu"}
    for step in (1, 2):
        (line,) = (line for line in said if line.startswith(f"step={step} loss="))
        assert f"loss={writer.written['loss', step]:.4f}" in line and f"dt={writer.written['dt', step]:.4f}" in line
        assert f"mfu={writer.written['mfu', step]:.2%}" in line and f"tps={writer.written['tps', step]:.0f}" in line
    assert said[-1].endswith(f"val_loss={writer.written['val_loss', 2]:.4f}")


@pytest.mark.parametrize(("name", "of"), [("tensorboard", "torch.utils.tensorboard"), ("wandb", "wandb")])
def test_what_is_not_installed_is_said(monkeypatch: pytest.MonkeyPatch, name: str, of: str) -> None:
    monkeypatch.setitem(sys.modules, of, None)
    with pytest.raises(ValueError, match=f"{name} is not installed here: pip install {name}, or leave it out"):
        sink(name, "")
    with pytest.raises(ValueError, match="can be sent to tensorboard or wandb, not to 'mlflow'"):
        sink("mlflow", "")
