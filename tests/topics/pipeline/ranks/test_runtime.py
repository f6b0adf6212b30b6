"""Pipelines on real ranks give the values and gradients of a serial run, whatever the schedule; torch's runtime too."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.distributed.pipelining import schedules

from kit.plan.families import FAMILIES
from tests.gloo import World
from tests.topics.pipeline.ranks import training

CHUNKS = {"Interleaved1F1B": 2, "LoopedBFS": 2, "InterleavedZeroBubble": 2}
BLOCKS = 8


def assert_serial(results: list[training.Result], serial: training.Result, copies: int = 1) -> None:
    """Together the ranks have every loss once and all gradients; those of two copies of the model are summed."""
    losses = {j: loss for own, _ in results for j, loss in own.items()}
    assert sum(len(own) for own, _ in results) == len(losses)
    torch.testing.assert_close(losses, serial[0])
    found: dict[str, torch.Tensor] = {}
    for _, own in results:
        for name, gradient in own.items():
            if copies > 1 and name in found:
                found[name] = found[name] + gradient
            else:  # of a tied matrix two ranks have the same sum
                torch.testing.assert_close(gradient, found.setdefault(name, gradient))
    torch.testing.assert_close(found, serial[1])


@pytest.mark.parametrize("family", FAMILIES)
def test_every_schedule_gives_the_serial_gradients(pipeline_world: Callable[[int], World], family: str) -> None:
    for p, m in ((2, 4), (4, 8)):
        results = pipeline_world(p).run(training.piped, family, m, CHUNKS.get(family), BLOCKS)
        assert_serial(results, training.serial(BLOCKS, m), copies=2 if family == "DualPipe" else 1)


def test_a_second_step_is_like_the_first(pipeline_world: Callable[[int], World]) -> None:
    results = pipeline_world(2).run(training.piped, "ZBH1", 4, None, 4, True, 2)
    assert_serial(results, training.serial(4, 4))


@pytest.mark.parametrize("way", ["all_forward_all_backward", "one_forward_one_backward"])
def test_the_pipelines_by_hand_give_the_serial_gradients(pipeline_world: Callable[[int], World], way: str) -> None:
    for p, m in ((2, 1), (2, 4), (4, 3), (4, 6)):
        results = pipeline_world(p).run(training.by_hand_result, way, m, 4)
        assert_serial(results, training.serial(4, m, tied=False))


@pytest.mark.parametrize("family", ["GPipe", "1F1B", "ZBH1", "ZBH2", "Interleaved1F1B", "VHalf", "VMin", "DualPipeV"])
def test_torchs_runtime_takes_our_schedules(pipeline_world: Callable[[int], World], family: str) -> None:
    results = pipeline_world(2).run(training.by_torch, family, 4, CHUNKS.get(family), 4)
    assert_serial(results, training.serial(4, 4, tied=False))


@pytest.mark.skipif(not hasattr(schedules, "REDUCE_GRAD"), reason="this torch has another form for messages")
@pytest.mark.parametrize("family", ["1F1B", "Interleaved1F1B", "ZBH1"])
def test_torchs_runtime_takes_our_messages(pipeline_world: Callable[[int], World], family: str) -> None:
    results = pipeline_world(2).run(training.by_torch, family, 4, CHUNKS.get(family), 4, True)
    assert_serial(results, training.serial(4, 4, tied=False))


def test_what_does_not_fit_is_refused_in_words(pipeline_world: Callable[[int], World]) -> None:
    told = pipeline_world(2).run(training.refusals)
    assert told[0] == [
        "a schedule of 3 ranks cannot run on 2",
        "rank 0 computes stages [0], and was given [0, 1]",
        "3 inputs for a schedule of 4 micro-batches",
        "a model of 4 blocks has 1 to 4 stages, not 5",
    ]
