"""Each stage of ZeRO is what a single process does with the whole batch, and what torch's own sharding does.

Tolerance, in float64. The sums of at most 24 samples' gradients, in another order, differ by 24 x 1.1e-16 of their
size, which is of the order of 1 (Higham, Accuracy and Stability of Numerical Algorithms, 4.2). AdamW divides a gradient
by its own size, or by eps = 1e-8 where it has none, so that is where a difference counts most: a step of lr = 1e-2
moves by 1e-2 x 2.6e-15 / 1e-8 = 2.6e-9 more or less, and 20 of them by 5e-8. Most weights agree to 1e-15; training
without a sum is further away than 1e-2.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import kit
from kit.run.live import LiveRunner
from kit.topics.zero.reference import ZeroStage1, ZeroStage2, ZeroStage3
from tests.topics.zero.ranks import cases, training

TOLERANCE = 5e-8
THREE = pytest.mark.parametrize("world", [3])  # where other numbers of ranks would say no more
STAGES = pytest.mark.parametrize("make", [ZeroStage1, ZeroStage2, ZeroStage3], ids=["1", "2", "3"])
Run = Callable[..., Any]


@pytest.fixture(scope="module")
def four(cluster_of: Callable[[int], LiveRunner]) -> LiveRunner:
    """Four ranks that have what they compare with imported: once, and not each of them."""
    return cluster_of(4).reset(preload=("torch.distributed.fsdp", "torch.distributed.optim", "torch._dynamo"))


@pytest.fixture
def run(four: LiveRunner, cluster_of: Callable[[int], LiveRunner], world: int) -> Run:
    """`kit.record` on the first `world` ranks."""
    cluster = four if world <= 4 else cluster_of(world)
    return lambda function, *args: kit.options(ranks=world, cluster=cluster).record(function, *args).results


def apart(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a - b).abs().max())


def assert_agreed(by_rank: list[dict[str, torch.Tensor]], right: torch.Tensor) -> None:
    for name, first in by_rank[0].items():
        assert all(torch.equal(found[name], first) for found in by_rank), f"{name}: the ranks disagree"
        assert apart(first, right) < TOLERANCE, f"{name}: not what one process does"


@pytest.mark.parametrize("world", [1, 2, 4])
def test_twenty_steps_are_those_of_one_process_and_of_torch(run: Run, world: int) -> None:
    apart_before = run(training.before_and_apart, 1)
    first = apart_before[0]
    right = training.serial(world, 1)
    for other in apart_before[1:]:
        assert apart(other["state before"], first["state before"]) > 0.1, "ranks that begin alike prove nothing"
        assert apart(other["gradient before"], first["gradient before"]) > 0.01
        assert apart(other["never summed"], first["never summed"]) > 0.01
        assert apart(other["never summed"], right) > 0.01, "the tolerance could not tell"
    assert_agreed(run(training.every_stage, 1), right)
    assert_agreed(run(training.by_torch, 1), right)


@THREE
def test_twenty_steps_of_several_micro_batches(run: Run, world: int) -> None:
    right = training.serial(world, 2)
    assert world == 1 or all(apart(found["never summed"], right) > 0.01 for found in run(training.before_and_apart, 2))
    assert_agreed(run(training.every_stage, 2), right)
    assert_agreed(run(training.by_torch, 2), right)


@THREE
def test_other_ways_to_the_same_weights(run: Run, world: int) -> None:
    assert_agreed(run(training.every_variant, 2), training.serial(world, 2, steps=training.FEW))


@THREE
def test_in_fp32_it_is_fp32_training(run: Run, world: int) -> None:
    """Weights are below 4, so each of 20 steps rounds by up to 2.4e-7, and AdamW's part of it by 1e-7 of lr: 1e-5."""
    right = training.serial(world, 1, torch.float32)
    assert apart(right, training.serial(world, 1)) > 1e-8, "not float64"
    for found in run(training.in_precision, "fp32"):
        for name, got in found.items():
            assert apart(got, right) < 1e-5, name


@THREE
def test_in_mixed_precision_it_is_mixed_training(run: Run, world: int) -> None:
    """Weights of 16 bits are known to 2^-8 of their size, below 4: within 2^-6 of torch's, rounded in the same way.

    From one process, whose sums are rounded elsewhere: 16 bits know a gradient to 2^-8 of what was summed, of which a
    weight that moves by lr makes 20 lr / 2^8 = 8e-4 in 20 steps, on average; where gradients cancel to nothing their
    rounding alone decides, and the weight may lose its way, by 20 lr = 0.2 at the very most. A quarter is allowed.
    """
    right = training.serial_mixed(world)
    assert apart(right, training.serial(world, 1, torch.float32)) > 1e-3, "not fp32"
    for found in run(training.in_precision, "mixed"):
        torchs = found.pop("torch fully_shard").bfloat16().double()  # it returns the master
        for name, got in found.items():
            assert apart(got, torchs) <= 2**-6, name
            assert apart(got, right) < 0.05 and float((got - right).abs().mean()) < 8e-4, name


@THREE
@STAGES
def test_groups_rates_and_clipping(run: Run, world: int, make: Any) -> None:
    right, norms = cases.clipped_alone(world)
    assert min(norms) > 0.3, "nothing was clipped"
    for got, mine in run(cases.clipped, make):
        assert mine == pytest.approx(norms, rel=1e-6)  # the norm is summed in fp32
        assert apart(got, right) < 1e-6  # and scales the gradients


@THREE
@STAGES
def test_a_parameter_without_a_gradient_is_passed_by(run: Run, world: int, make: Any) -> None:
    right = cases.sometimes_alone(world)
    assert all(apart(got, right) < TOLERANCE for got in run(cases.sometimes, make))


@THREE
@STAGES
@pytest.mark.parametrize("recompute", [False, True], ids=["", "recomputed"])
def test_layers_used_twice_frozen_or_changing_their_input(run: Run, world: int, make: Any, recompute: bool) -> None:
    right = cases.odd_alone(world)
    assert all(apart(got, right) < TOLERANCE for got in run(cases.odd, make, recompute))


@THREE
def test_stage_3_by_hand(run: Run, world: int) -> None:
    assert all(apart(*found) < TOLERANCE for found in run(cases.three_by_hand))


@THREE
def test_evaluation_sees_the_weights_of_the_moment(run: Run, world: int) -> None:
    run(cases.evaluated)


@THREE
def test_groups_inside_the_world(run: Run, world: int) -> None:
    run(cases.in_groups)


@THREE
@STAGES
def test_nothing_remains_of_a_model_that_is_let_go(run: Run, world: int, make: Any) -> None:
    run(cases.nothing_remains, make)


@THREE
def test_wrong_requests_say_what_is_wrong(run: Run, world: int) -> None:
    run(cases.refused)


def test_stages_can_be_stepped(four: LiveRunner) -> None:
    """From one collective to the next, into the hooks that forward and backward call."""
    session = four.step(cases.odd, ZeroStage3, False)
    seen: list[tuple[str, str]] = []
    while session.live and len(seen) < 12:
        session.to_collective()
        stop = session.trace.stop(0, session.position)
        if stop.about_to:
            seen.append((stop.about_to, stop.frames[-1].place.function))
    session.finish()
    assert ("all_gather", "all_gather") in seen and ("reduce_scatter", "reduce_scatter") in seen
    assert apart(session.results[0], cases.odd_alone(4)) < TOLERANCE
