"""What a step costs: against published logs, torch's own counters, a hand count of ring messages, worked examples."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from kit.cost.machines import peak
from kit.cost.training import (
    elements_sent,
    flops_per_token,
    mfu,
    scaled_rate,
)
from kit.gpt.model import GPT, GPTConfig
from tests.topics.collectives import traffic


def test_mfu_of_the_talks_log() -> None:
    """wordplay on 4 A100, bf16: 231,000 tokens/s on each, 46 % (the log of the ALCF talk, 2024)."""
    flops = flops_per_token(parameters=85_003_776, layers=12, channels=768, sequence=1024)
    found = mfu(tokens_per_second=4 * 231_000, flops_per_token=flops, peak=peak("A100-40", "bf16"), devices=4)
    assert round(100 * found) == 46


def test_flops_are_those_that_torch_counts() -> None:
    """Its counter knows matrix products. What multiplies nothing (positions, norms) is left out of P for this."""
    config = GPTConfig(n_layer=3, n_head=2, n_embd=16, block_size=20, vocab_size=11, bias=False)
    model = GPT(config)
    tokens = torch.randint(11, (4, 20))
    counter = FlopCounterMode(display=False)
    with counter, sdpa_kernel(SDPBackend.MATH):
        _, loss = model(tokens, tokens)
        assert loss is not None
        loss.backward()
    matrices = sum(p.numel() for name, p in model.named_parameters() if p.dim() == 2 and "positions" not in name)
    assert counter.get_total_flops() == 4 * 20 * flops_per_token(
        parameters=matrices, layers=3, channels=16, sequence=20
    )


def ring_elements(operation: str, n: int, count: int) -> int:
    """What a rank of the rings in kit.topics.collectives sends, from its own exact count; n divides count here."""
    if operation == "all_gather":
        return traffic.ring_all_gather(n, 0, [count // n] * n, itemsize=1).bytes_sent
    rings = {"all_reduce": traffic.ring_all_reduce, "reduce_scatter": traffic.ring_reduce_scatter}
    return rings[operation](n, 0, count, itemsize=1).bytes_sent


# by hand, for P = 60 on 3 ranks: one whole trip of P by a ring is P (N-1)/N = 40 elements
@pytest.mark.parametrize(
    ("stage", "micro_batches", "trips"),
    [(0, 1, 2), (0, 4, 2), (1, 1, 2), (1, 4, 2), (2, 1, 2), (2, 4, 5), (3, 1, 3), (3, 4, 12)],
)
def test_elements_sent_by_hand_and_as_the_rings_send_them(stage: int, micro_batches: int, trips: int) -> None:
    sent = elements_sent(parameters=60, ranks=3, stage=stage, micro_batches=micro_batches)
    assert sent == 40 * trips
    m = micro_batches
    counts: dict[str, int] = [
        {"all_reduce": 1},
        {"reduce_scatter": 1, "all_gather": 1},
        {"reduce_scatter": m, "all_gather": 1},
        {"reduce_scatter": m, "all_gather": 2 * m},
    ][stage]
    for pieces in (1, 5):
        assert sum(n * pieces * ring_elements(name, 3, 60 // pieces) for name, n in counts.items()) == sent


def test_elements_come_near_the_literatures_2_2_2_3_for_many_ranks() -> None:
    shares = [elements_sent(parameters=1000, ranks=1000, stage=stage) / 1000 for stage in range(4)]
    assert shares == pytest.approx([1.998, 1.998, 1.998, 2.997], rel=1e-12)
    assert [elements_sent(parameters=1000, ranks=1, stage=stage) for stage in range(4)] == [0, 0, 0, 0]


def test_ddp_without_no_sync_reduces_every_micro_batch() -> None:
    assert elements_sent(parameters=60, ranks=3, micro_batches=4, every_micro_batch=True) == 40 * 8


def test_the_rules_for_learning_rates() -> None:
    assert scaled_rate(0.1, ranks=16) == pytest.approx(1.6)
    assert scaled_rate(0.1, ranks=16, rule="sqrt") == pytest.approx(0.4)
    assert scaled_rate(0.1, ranks=16, rule="same") == scaled_rate(0.1, ranks=1) == 0.1
    with pytest.raises(ValueError, match="'linear', 'sqrt' or 'same', not 'cubic'"):
        scaled_rate(0.1, ranks=2, rule="cubic")


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(ValueError, match="stage is 0 .*not 5"):
        elements_sent(parameters=1, ranks=1, stage=5)
    with pytest.raises(ValueError, match="ranks is 1 or more, not 0"):
        elements_sent(parameters=1, ranks=0)
    with pytest.raises(ValueError, match="every_micro_batch is for stage 0"):
        elements_sent(parameters=1, ranks=1, stage=2, every_micro_batch=True)
    with pytest.raises(ValueError, match="peak is above 0"):
        mfu(tokens_per_second=1, flops_per_token=1, peak=0)


NAN = float("nan")


@pytest.mark.parametrize(
    "call",
    [
        lambda: elements_sent(parameters=NAN, ranks=2),
        lambda: flops_per_token(parameters=-1, layers=1, channels=1, sequence=1),
        lambda: mfu(tokens_per_second=-1, flops_per_token=1, peak=1),
        lambda: mfu(tokens_per_second=1, flops_per_token=1, peak=NAN),
        lambda: scaled_rate(NAN, ranks=2),
    ],
)
def test_a_nan_is_refused_and_not_handed_on(call: Callable[[], float]) -> None:
    with pytest.raises(ValueError, match="not (nan|-1)"):
        call()
