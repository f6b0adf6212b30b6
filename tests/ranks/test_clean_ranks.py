"""What one run changed of its ranks, or left open, does not reach the next."""

from __future__ import annotations

import gc
import multiprocessing
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as functional

from kit.gpt.model import GPT, GPTConfig
from kit.run.live import LiveRunner
from tests.ranks.living import alive, until
from tests.torches import modes_without_a_compiler


def disturbs() -> int:
    dist.all_reduce = lambda x: None
    functional.relu = torch.nn.functional.gelu
    torch.Tensor.add_ = torch.Tensor.sub_
    os.chdir("/")
    os.environ["LEFT_OVER"] = os.environ["RANK"] = "7"
    torch.set_default_dtype(torch.float64)
    torch.set_default_device("meta")
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(torch.get_num_threads() + 1)
    torch.manual_seed(0)
    random.seed(0)
    child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,), daemon=True)
    child.start()
    assert child.pid
    return child.pid


def finds() -> dict[str, Any]:
    x = torch.ones(2)
    dist.all_reduce(x)
    return {
        "sum": x.tolist(),
        "relu": functional.relu(-torch.ones(1)).item(),
        "added": torch.ones(1).add_(1).item(),
        "folder": os.getcwd(),
        "environment": (os.environ.get("LEFT_OVER"), os.environ["RANK"], os.environ["WORLD_SIZE"]),
        "torch": (str(x.dtype), str(x.device), torch.are_deterministic_algorithms_enabled(), torch.get_num_threads()),
    }


def draws() -> tuple[float, float]:
    return float(torch.rand(1)), random.random()


def test_cleaning_loads_nothing_of_torch_that_costs_seconds(three: LiveRunner) -> None:
    three.reset()
    for _ in range(2):
        loaded = three.record(lambda: [name for name in ("torch._dynamo", "sympy") if name in sys.modules])
        assert loaded.results == [[]] * 3


@modes_without_a_compiler
def test_a_gpt_is_made_and_goes_back_without_torchs_compiler(three: LiveRunner) -> None:
    """It would be 70 MB of each rank, and seconds."""

    def learns() -> list[str]:
        tokens = torch.zeros(1, 8, dtype=torch.int64)
        GPT(GPTConfig.named("tiny"))(tokens, tokens)[1].backward()
        GPT(GPTConfig.named("tiny"), device="meta").count()
        return [name for name in ("torch._dynamo", "sympy") if name in sys.modules]

    assert three.reset().record(learns).results == [[]] * 3


def test_engines_change_no_environment_beside_the_threads_of_a_rank(three: LiveRunner) -> None:
    """A run would take away what they had added; and whoever reads it in C at that moment is killed."""
    with_engines = three.reset().view.apply_sync(lambda: dict(os.environ))
    assert all("CLICOLOR_FORCE" in names for names in with_engines)
    assert three.record(lambda: dict(os.environ)).results == with_engines


@pytest.mark.parametrize("how", ["record", "step"])
def test_a_run_finds_its_ranks_as_the_first_one_did(three: LiveRunner, how: str) -> None:
    before = three.reset().record(finds).results
    assert before[2]["environment"] == (None, "2", "3") and before[0]["sum"] == [3.0, 3.0]
    if how == "record":
        children = three.record(disturbs).results
    else:
        session = three.step(disturbs)
        session.finish()
        children = session.results
    assert three.record(finds).results == before
    assert not alive(children), "what a run had started ends before the next"
    drawn = three.record(draws).results
    assert len({number for pair in drawn for number in pair}) == 6, "every rank draws its own numbers again"


class Held:
    """Tells when it is let go."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __del__(self) -> None:
        self.file.touch()


def holds(folder: Path, argument: list[Held]) -> float:
    gc.disable()
    rank = dist.get_rank()
    argument.append(Held(folder / f"argument {rank}"))
    held = Held(folder / f"local {rank}")
    x = torch.ones(1)
    dist.all_reduce(x)
    return float(x) * len(argument) * (held is not None)


@pytest.mark.parametrize("how", ["record", "step"])
def test_what_a_function_held_is_let_go_at_its_end(three: LiveRunner, tmp_path: Path, how: str) -> None:
    if how == "record":
        three.record(holds, tmp_path, [])
    else:
        session = three.step(holds, tmp_path, [])
        while session.live:
            session.step()
    wanted = {f"{what} {rank}" for what in ("argument", "local") for rank in range(3)}
    assert until(lambda: {file.name for file in tmp_path.iterdir()} == wanted), "without a garbage collection"


def ends_a_child() -> int | None:
    child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,))
    child.start()
    child.terminate()
    child.join(60)
    return child.exitcode


def test_children_of_ranks_end_when_they_are_told_to(three: LiveRunner) -> None:
    assert three.record(ends_a_child).results == [-signal.SIGTERM] * 3


def moves_away_before_the_engine_comes_up() -> str:
    from kit.clusters.host.engine import Engine

    os.chdir("/")
    Engine.instance().to_work_dir()  # as it calls while it comes up, beside the code that runs already
    return os.getcwd()


def test_the_engine_leaves_the_working_directory_alone(three: LiveRunner) -> None:
    assert three.record(moves_away_before_the_engine_comes_up).results == ["/"] * 3
