"""Whichever the strategy and however many the ranks, the curve is that of a plain loop in one process.

Tolerance, in fp32. A step's gradient is a sum over 64 tokens in another order, which differs by 64 x 6e-8 = 4e-6 of its
size (Higham, Accuracy and Stability of Numerical Algorithms, 4.2). AdamW divides by a gradient's own size, so weights
whose gradient is that small against the rest move otherwise, by the rate at most, and change the loss by their gradient
times that; five steps of 1e-2 add up to 5 x 1e-2 x 4e-6 x sqrt(P), P = 13,000: 2e-5. A loss not divided, a sum left out
or a gradient counted twice changes norms by a factor, which AdamW hides from the losses: so norms are compared too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import kit
from kit.gpt.hashes import first_difference
from kit.gpt.trainer import Trainer
from kit.run.live import LiveRunner
from tests.topics.gpt.ranks import training

TOLERANCE = 1e-4
ON = {
    2: ["ddp", "zero1", "zero2", "zero3", "tp", "tp+sp", "pp", "pp:GPipe", "pp:ZBH1", "pp:ZBVZeroBubble"],
    4: ["ddp", "pp", "ddp=2 x tp", "zero1=2 x tp", "zero2=2 x tp", "zero3=2 x tp+sp"],
}


@pytest.fixture(scope="module")
def four(cluster_of: Callable[[int], LiveRunner]) -> LiveRunner:
    """Four ranks that have what they train with imported: once, and not each of them."""
    return cluster_of(4).reset(
        preload=(
            "kit.topics.gpt.run",
            "torch.distributed.device_mesh",
            "torch._dynamo",
            "kit.gpt.checkpoint",
            "torch.distributed.fsdp",
            "torch.distributed.optim",
        )
    )


@cache
def serial(tied: bool) -> training.Found:
    return training.serial(tied)


def assert_same(found: training.Found, right: training.Found, what: str) -> None:
    for name, numbers in right.items():
        assert found[name] == pytest.approx(numbers, rel=TOLERANCE, abs=TOLERANCE), f"{what}: {name}"


def test_the_trainer_on_one_rank_is_a_plain_loop() -> None:
    for tied in (True, False):
        right = serial(tied)
        assert_same(training.curve("single", 1, sizes=replace(training.SIZES, tied=tied)), right, "single")
        assert right["loss"][0] - right["loss"][-1] > 0.2, "it learns"
        assert min(right["norm"]) > training.TIGHT and max(right["norm"]) > training.RECIPE.clip, "clipping has to do"


@pytest.mark.parametrize("ranks", ON)
def test_every_strategy_has_the_curve_of_one_rank(four: LiveRunner, ranks: int) -> None:
    results = kit.options(ranks=ranks, cluster=four).record(training.curves, ON[ranks]).results
    for what in results[0]:
        assert all(found[what] == results[0][what] for found in results), f"{what}: the ranks disagree"
        assert_same(results[0][what], serial(what.endswith(", tied")), what)


def test_torchs_own_and_what_stands_beside_has_the_same_curve(four: LiveRunner) -> None:
    results = kit.options(ranks=2, cluster=four).record(training.curves_with_extras).results
    for what in results[0]:
        assert all(found[what] == results[0][what] for found in results), f"{what}: the ranks disagree"
        assert_same(results[0][what], serial(True), what)


def test_with_the_manners_of_nccl_it_is_the_same(three_on_nccl: LiveRunner) -> None:
    """On three ranks, among which neither layers nor a pass of the data come out even."""
    recipe = replace(training.RECIPE, total_batch=48)
    right = training.curve("single", 1, recipe)
    results = kit.options(cluster=three_on_nccl).record(training.curves_of, ["ddp", "zero3", "pp"], recipe).results
    for what, found in results[0].items():
        assert_same(found, right, what)


def test_accumulation_keeps_shards_where_gradients_are_sharded(four: LiveRunner) -> None:
    """Whole gradients between micro-batches would cost what stages 2 and 3 are there to save."""
    for found in kit.options(ranks=2, cluster=four).record(training.whole_gradients).results:
        assert found["ddp"] == found["zero1"] > 0 == found["zero2"] == found["zero3"]


def same(found: training.Found, right: training.Found) -> bool:
    return all(found[name] == pytest.approx(numbers, rel=TOLERANCE, abs=TOLERANCE) for name, numbers in right.items())


def test_a_mistake_on_ranks_is_seen_in_the_curve(four: LiveRunner) -> None:
    results = kit.options(ranks=2, cluster=four).record(training.mistaken).results
    for what, found in results[0].items():
        assert not same(found, serial(True)), f"nothing shows that there is {what}"


MISTAKES: dict[str, Callable[[pytest.MonkeyPatch, Trainer], None]] = {
    "a loss not divided": lambda patch, t: patch.setattr(t.strategy, "gradients", undivided(t.strategy)),
    "no clipping": lambda patch, t: patch.setattr(t.strategy, "clip", lambda norm, clip=t.strategy.clip: clip(1e9)),
    "the next step's rate": lambda patch, t: patch.setattr(
        t.strategy, "update", lambda rate, update=t.strategy.update: update(t.recipe.rate_of(t.done + 1))
    ),
    "the next step's windows": lambda patch, t: patch.setattr(t, "seen", 8),
    "another beta": lambda patch, t: change_groups(t, lambda group: group.update(betas=(0.9, 0.999))),
    "no decay": lambda patch, t: change_groups(t, lambda group: group.update(weight_decay=0.0)),
    "all decay": lambda patch, t: change_groups(t, lambda group: group.update(weight_decay=0.1)),
}


def undivided(strategy: Any) -> Any:
    right = strategy.gradients

    def gradients(micro_batches: list[Any], mark: Any) -> Any:
        loss = right(micro_batches, mark)
        for p in strategy.module.parameters():
            p.grad *= len(micro_batches)
        return loss

    return gradients


def change_groups(training: Trainer, change: Callable[[dict[str, Any]], None]) -> None:
    for group in training.strategy.stepper.optimizer.param_groups:  # type: ignore[attr-defined]
        change(group)


@pytest.mark.parametrize("what", MISTAKES)
def test_a_mistake_on_one_rank_is_seen_in_the_curve(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = training.trainer("single", 1)
    MISTAKES[what](monkeypatch, wrong)
    assert not same(training.measured(wrong), serial(True))


def test_the_first_tensor_that_differs_is_named(four: LiveRunner) -> None:
    """In the step after one weight of one rank was changed in its last bit, which no loss shows."""
    results = kit.options(ranks=2, cluster=four).record(training.parted).results
    runs = {f"rank {rank}": moments for rank, moments in enumerate(results)}
    assert first_difference(runs).endswith("differ, after step 2: rank 1 from rank 0")
    until_then = {rank: moments[:2] for rank, moments in runs.items()}
    assert first_difference(until_then) == ""


RESUMED = {2: ["ddp", "zero1", "zero3", "tp+sp", "pp"], 4: ["zero2=2 x tp"]}


@pytest.mark.parametrize("ranks", RESUMED)
def test_a_training_goes_on_from_a_checkpoint(four: LiveRunner, ranks: int, tmp_path: Path) -> None:
    """On the same ranks bit by bit, dropout's draws too; from another layout's within the tolerance."""
    training.saved_by_one(tmp_path)
    run = kit.options(ranks=ranks, cluster=four).record
    right = serial(True)["loss"]
    for strategy, found in run(training.saved_and_resumed, RESUMED[ranks], tmp_path).results[0].items():
        assert found["resumed"] == found["rest"] != found["begun"], f"{strategy}: it goes on otherwise"
        assert found["rest"] != pytest.approx(right[2:], abs=TOLERANCE), "dropout makes a difference"
        assert found["elsewhere"] == pytest.approx(right[2:], abs=TOLERANCE), f"{strategy}: from one rank's"
