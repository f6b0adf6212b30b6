"""Whichever the strategy and however many the ranks, the curve is that of a plain loop in one process.

Tolerance, in fp32. A step's gradient is a sum over 64 tokens in another order, which differs by 64 x 6e-8 = 4e-6 of its
size (Higham, Accuracy and Stability of Numerical Algorithms, 4.2). AdamW divides by a gradient's own size, so weights
whose gradient is that small against the rest move otherwise, by the rate at most, and change the loss by their gradient
times that; five steps of 1e-2 add up to 5 x 1e-2 x 4e-6 x sqrt(P), P = 13,000: 2e-5. A loss not divided, a sum left out
or a gradient counted twice changes norms by a factor, which AdamW hides from the losses: so norms are compared too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import kit
from kit.clusters.request import checked
from kit.gpt.checkpoint import Checkpoints
from kit.gpt.trainer import Trainer
from kit.plan.families import FAMILIES
from kit.run.live import LiveRunner
from kit.topics.gpt.comparing import Parting
from tests.gloo import RankFailed, World, world
from tests.manners import mannered
from tests.topics.gpt.ranks import training

TOLERANCE = 1e-4
ON = {
    2: ["ddp", "zero1", "zero2", "zero3", "tp", "tp+sp", "pp", *(f"pp:{family}" for family in FAMILIES)],
    4: ["ddp", "pp", "zero1=2 x tp", "zero3=2 x tp+sp", "ddp=2 x pp", "zero1=2 x pp:ZBVZeroBubble", "tp=2 x pp:ZBH1"],
}
ON_IN_FULL = {
    4: ["ddp=2 x tp", "zero2=2 x tp", "zero1=2 x pp", "tp+sp=2 x pp:ZBVZeroBubble", "tp=2 x pp:DualPipe"],
    8: ["ddp=2 x tp=2 x pp", "zero1=2 x tp+sp=2 x pp:ZBH1", "tp=2 x pp=4", "ddp=2 x pp=4"],
}


@pytest.fixture(scope="module")
def world_of() -> Iterator[Callable[[int], World]]:
    """`world_of(4)`: plain ranks, without what would watch them, the same for every test that asks."""
    with ExitStack() as worlds:
        made = cache(lambda size: worlds.enter_context(world(size)))
        yield made


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


BY_TORCH = ["ddp", "zero1", "zero3", "tp+sp", "pp", "pp:ZBVZeroBubble"]
BY_TORCH_IN_FULL = [
    "zero2",
    "tp",
    "pp:GPipe",
    "pp:Interleaved1F1B",
    "pp:LoopedBFS",
    "pp:InterleavedZeroBubble",
    "pp:DualPipeV",
]


RESUMED = {2: ["zero3", "tp+sp", "pp:DualPipe"], 4: ["zero1=2 x pp", "tp=2 x pp"]}
RESUMED_IN_FULL = {2: ["ddp", "zero1"], 4: ["zero2=2 x tp"]}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """By number of ranks; what proves little more than the others is left to the full matrix."""
    for name, (usual, in_full) in {
        "strategies": (ON, ON_IN_FULL),
        "resumed": (RESUMED, RESUMED_IN_FULL),
        "in_16_bits": (IN_16_BITS, IN_16_BITS_IN_FULL),
    }.items():
        if name in metafunc.fixturenames:
            cases = [*usual.items(), *(in_full.items() if metafunc.config.getoption("--full-matrix") else ())]
            metafunc.parametrize(("size", name), cases, ids=[f"{size}-ranks" for size, _ in cases])


def test_every_strategy_has_the_curve_of_one_rank(
    world_of: Callable[[int], World], size: int, strategies: list[str]
) -> None:
    results = world_of(size).run(training.curves, strategies)
    assert len(results[0]) >= len(strategies)
    for what in results[0]:
        assert all(found[what] == results[0][what] for found in results), f"{what}: the ranks disagree"
        assert_same(results[0][what], serial(what.endswith(", tied")), what)


def test_torchs_own_and_what_stands_beside_has_the_same_curve(
    world_of: Callable[[int], World], request: pytest.FixtureRequest
) -> None:
    names = BY_TORCH + (BY_TORCH_IN_FULL if request.config.getoption("--full-matrix") else [])
    results = world_of(2).run(training.curves_with_extras, names)
    for what in results[0]:
        assert all(found[what] == results[0][what] for found in results), f"{what}: the ranks disagree"
        assert_same(results[0][what], serial(True), what)


def test_states_go_from_torchs_own_to_ours_and_back(world_of: Callable[[int], World]) -> None:
    for what, numbers in world_of(2).run(training.exchanged_with_torchs)[0].items():
        assert numbers[3:] == pytest.approx(numbers[:3], abs=TOLERANCE), what


IN_16_BITS = {2: ["ddp", "zero1", "zero2", "tp+sp", "pp:ZBH1"]}
IN_16_BITS_IN_FULL = {2: ["zero3", "tp", "pp"], 4: ["ddp=2 x tp", "zero1=2 x pp", "tp=2 x pp:ZBVZeroBubble"]}


def test_in_16_bits_curves_are_the_same_within_the_format(
    world_of: Callable[[int], World], size: int, in_16_bits: list[str], request: pytest.FixtureRequest
) -> None:
    """For the tolerance see unit/test_ladder.py; norms of several ranks differ as those of one do."""
    right = serial(True)
    full = bool(request.config.getoption("--full-matrix"))
    by_torch = ["ddp", "zero1", "zero2", "tp", "tp+sp", "pp"] if full and size == 2 else []
    for what, found in world_of(size).run(training.curves_in_16_bits, in_16_bits, by_torch)[0].items():
        tolerance = 16 * 2.5 * 2 ** {"bf16": -9, "fp16": -12}[what.partition(" ")[0]]
        for name in ("loss", "norm", "validation"):
            assert found[name] == pytest.approx(right[name], abs=tolerance), f"{what}: {name}"
        assert found["loss"] != pytest.approx(right["loss"], abs=1e-6), f"{what}: nothing was rounded"


def test_with_the_manners_of_nccl_it_is_the_same(three_on_nccl: LiveRunner) -> None:
    """On three ranks, among which neither layers nor a pass of the data come out even."""
    recipe = replace(training.RECIPE, total_batch=48)
    right = training.curve("single", 1, recipe)
    results = kit.options(cluster=three_on_nccl).record(training.curves_of, ["ddp", "zero3", "pp"], recipe).results
    for what, found in results[0].items():
        assert_same(found, right, what)


def test_products_too(request: pytest.FixtureRequest) -> None:
    if not request.config.getoption("--full-matrix"):
        pytest.skip("four ranks with the manners of nccl: in the full matrix")
    with mannered():
        cluster = LiveRunner(checked(4, "cpu"))
    try:
        products = ["ddp=2 x pp", "zero1=2 x pp:ZBH1", "tp=2 x pp:ZBVZeroBubble", "pp:DualPipe"]
        recipe = replace(training.RECIPE, batch=1)
        results = kit.options(cluster=cluster).record(training.curves_of, products, recipe).results
    finally:
        cluster.stop()
    for what, found in results[0].items():
        assert_same(found, serial(True), what)


def test_accumulation_keeps_shards_where_gradients_are_sharded(world_of: Callable[[int], World]) -> None:
    """Whole gradients between micro-batches would cost what stages 2 and 3 are there to save."""
    for found in world_of(2).run(training.whole_gradients):
        assert found["ddp"] == found["zero1"] > 0 == found["zero2"] == found["zero3"]


def test_a_rank_killed_while_it_saves_costs_the_steps_since_the_last_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(RankFailed, match="rank 1: its process ended"), world(2) as two:
        two.run(training.killed_while_saving, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".step_00000002.half", "step_00000001"]
    going = training.trainer("single", 1)
    Checkpoints(tmp_path, training.SIZES, "", "single").resume(going)
    assert [step.loss for step in going] == pytest.approx(serial(True)["loss"][1:], abs=TOLERANCE)


@pytest.mark.parametrize("strategy", ["ddp", "pp", "pp:DualPipe"])
def test_the_second_recipe_trains_alike_on_ranks_with_whole_matrices(
    world_of: Callable[[int], World], strategy: str
) -> None:
    """Each takes the same step of Muon by the same gradients."""
    right = training.modern("single", 1)
    for found in world_of(2).run(training.modern, strategy, 2):
        assert_same(found, right, f"{strategy}, by Muon")


def test_todays_model_is_sharded_where_adamw_steps_it(world_of: Callable[[int], World]) -> None:
    right = training.modern("single", 1, "adamw")
    for found in world_of(2).run(training.modern, "zero3", 2, "adamw"):
        assert_same(found, right, "zero3")


def test_ranks_share_out_questions(world_of: Callable[[int], World]) -> None:
    """Seven of them on two ranks; whose model is in shards calls it equally often on both."""
    (right,) = training.answers(["single"]).values()
    assert right.asked == 7 and 0 < right.raw < 7
    for found in world_of(2).run(training.answers, ["ddp", "zero3"]):
        assert found == {"ddp": right, "zero3": right}


def same(found: training.Found, right: training.Found) -> bool:
    return all(found[name] == pytest.approx(numbers, rel=TOLERANCE, abs=TOLERANCE) for name, numbers in right.items())


def test_a_mistake_on_ranks_is_seen_in_the_curve(world_of: Callable[[int], World]) -> None:
    on_two = world_of(2).run(training.mistaken)[0]
    on_four = world_of(4).run(training.mistaken_in_products)[0]
    for what, found in {**on_two, **on_four}.items():
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


def test_strategies_are_the_same_tensor_by_tensor_and_the_first_that_differs_is_named(
    world_of: Callable[[int], World],
) -> None:
    """Ranks of one training bit by bit, two trainings within what rounding leaves."""
    right = training.noted(training.trainer("single", 1))

    def of_ranks(run: Callable[..., Any], *what: Any) -> dict[str, Parting]:
        results = world_of(2).run(run, *what)
        return {
            name: Parting({"single": [right], name: [found[name] for found in results]}, TOLERANCE)
            for name in results[0]
        }

    for name, parting in of_ranks(training.all_noted, ["ddp", "zero3", "tp+sp", "pp"]).items():
        assert parting.same, parting
        assert f"{name} beside single: the same within 0.0001 after step 2" in str(parting)
    wrong = {name: str(parting).splitlines() for name, parting in of_ranks(training.museum).items()}
    first = "is the first to differ,"
    up = "the parameter blocks.1.mlp.up.weight"
    assert wrong["started apart"][0].startswith(f"started apart: {up} {first} before the first step, by ")
    assert wrong["started apart"][0].endswith("of its size: rank 1 from a rank before it")
    same_on_all = "what several ranks hold is the same on all of them, bit by bit"
    assert wrong["equal seeds"][0].endswith(same_on_all) and wrong["not divided"][0].endswith(same_on_all)
    assert wrong["equal seeds"][1].startswith(f"equal seeds beside single: the parameter tokens.weight {first} before")
    assert f"the norm of all gradients {first} after step 1, by 50.0% of its size" in wrong["not divided"][1]
    assert f"the parameter norm.weight {first} after step 1, by " in wrong["touched"][0]


def test_a_training_goes_on_from_a_checkpoint(
    world_of: Callable[[int], World], size: int, resumed: list[str], tmp_path: Path
) -> None:
    """On the same ranks bit by bit, dropout's draws too; from another layout's within the tolerance."""
    training.saved_by_one(tmp_path)
    right = serial(True)["loss"]
    for strategy, found in world_of(size).run(training.saved_and_resumed, resumed, tmp_path)[0].items():
        assert found["resumed"] == found["rest"] != found["begun"], f"{strategy}: it goes on otherwise"
        assert found["rest"] != pytest.approx(right[2:], abs=TOLERANCE), "dropout makes a difference"
        assert found["elsewhere"] == pytest.approx(right[2:], abs=TOLERANCE), f"{strategy}: from one rank's"
        on_one = training.validated_by_one(tmp_path / f"{strategy} {size}")
        assert on_one == pytest.approx(found["validation"], abs=TOLERANCE), f"{strategy}: by one rank"
