"""Training: the rate's shape, accumulation against one large batch, clipping, wrappers, and that it learns a text."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle, islice
from math import log
from typing import Any

import pytest
import torch
from torch import nn

from kit.gpt.data import Batch, Characters, batches, split
from kit.gpt.loop import accumulate, training
from kit.gpt.model import GPT, GPTConfig
from kit.gpt.recipe import cosine
from kit.gpt.sample import sample

CONFIG = GPTConfig(n_layer=1, n_head=2, n_embd=8, block_size=8, vocab_size=11)


def made(seed: int = 0) -> GPT:
    torch.manual_seed(seed)
    return GPT(CONFIG)


def some(count: int, batch: int = 4, seed: int = 0) -> list[Batch]:
    draw = torch.Generator().manual_seed(seed)
    pairs = torch.randint(11, (count, batch, 9), generator=draw)
    return [(pair[:, :-1], pair[:, 1:]) for pair in pairs]


def train(model: nn.Module, batches: Iterator[Batch], **how: Any) -> list[float]:
    """All steps; their losses."""
    return [step.loss for step in training(model, batches, **how)]


def test_the_rate_warms_up_evenly_and_comes_down_to_its_floor() -> None:
    rates = [cosine(step, peak=1.0, steps=11, warm_up=4, floor=0.1) for step in range(13)]
    assert rates[:4] == [0.25, 0.5, 0.75, 1.0]
    assert rates[4] == 1.0 and rates[7] == pytest.approx(0.55) and rates[10] == pytest.approx(0.1)  # ends and middle
    assert rates[4:11] == sorted(rates[4:11], reverse=True) and rates[11:] == pytest.approx([0.1, 0.1])
    drops = [a - b for a, b in zip(rates[4:10], rates[5:11], strict=True)]
    assert drops[0] < drops[2] and drops[-1] < drops[3], "a cosine: slow, fast, slow"
    with pytest.raises(ValueError, match="warm-up of 5 steps does not fit in 5"):
        cosine(0, peak=1.0, steps=5, warm_up=5)


def test_micro_batches_add_up_to_one_large_batch() -> None:
    parts = some(3)
    whole = (torch.cat([x for x, _ in parts]), torch.cat([y for _, y in parts]))
    model = made()
    loss = accumulate(model, parts)
    by_parts = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    model.zero_grad()
    assert accumulate(model, [whole]) == pytest.approx(loss, rel=1e-6)
    for p, accumulated in zip(model.parameters(), by_parts, strict=True):
        torch.testing.assert_close(p.grad, accumulated)
    model.zero_grad()
    accumulate(model, parts[:1])
    assert not all(torch.allclose(p.grad, a) for p, a in zip(model.parameters(), by_parts, strict=True))


class Counting(nn.Module):
    """A wrapper that notes for which forward passes it would average."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module, self.averaged, self.quiet = module, list[bool](), False

    def forward(self, *batch: torch.Tensor) -> object:
        self.averaged.append(not self.quiet)
        return self.module(*batch)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        self.quiet = True
        yield
        self.quiet = False


def test_a_wrapper_is_called_in_the_models_place_and_averages_once_a_step() -> None:
    made_by = []

    def wrap(model: nn.Module) -> nn.Module:
        made_by.append(Counting(model))
        return made_by[-1]

    wrapped = train(made(), iter(some(6)), steps=2, rate=1e-2, micro_batches=3, wrap=wrap)
    assert [counting.averaged for counting in made_by] == [[False, False, True] * 2]
    assert wrapped == train(made(), iter(some(6)), steps=2, rate=1e-2, micro_batches=3)


def test_a_step_is_adamw_on_clipped_gradients() -> None:
    """The first step by hand: Adam's first moves every parameter by rate x g / (|g| + eps), whatever the size of g."""
    model, twin = made(), made()
    (step,) = training(model, iter(some(1)), steps=1, rate=0.01, weight_decay=0.5, clip=0.1)
    accumulate(twin, some(1))
    norm = torch.cat([p.grad.flatten() for p in twin.parameters()]).norm()
    assert step.norm == pytest.approx(norm.item(), rel=1e-6) and norm > 0.1
    assert (step.number, step.rate) == (0, 0.01)
    for p, q in zip(model.parameters(), twin.parameters(), strict=True):
        g = q.grad * 0.1 / (norm + 1e-6)  # torch's clipping divides by the norm plus 1e-6
        decayed = q * (1 - 0.01 * 0.5) if q.dim() >= 2 else q
        torch.testing.assert_close(p, decayed - 0.01 * g / (g.abs() + 1e-8))
    assert all(p.grad is None for p in model.parameters())


def test_without_clipping_the_norm_is_only_told() -> None:
    free, clipped = made(), made()
    sgd = [torch.optim.SGD(model.parameters(), lr=9.0) for model in (free, clipped)]
    (one,) = training(free, iter(some(1)), steps=1, rate=0.1, clip=None, optimizer=sgd[0])
    (other,) = training(clipped, iter(some(1)), steps=1, rate=0.1, clip=one.norm / 2, optimizer=sgd[1])
    start = made()
    for s, f, c in zip(start.parameters(), free.parameters(), clipped.parameters(), strict=True):
        torch.testing.assert_close(f - s, 2 * (c - s), rtol=1e-3, atol=1e-6)  # fp32 differences of near numbers
    assert one.norm == other.norm
    assert sgd[0].param_groups[0]["lr"] == 0.1, "the rate is set, whatever the optimizer was made with"


def test_steps_are_taken_when_they_are_asked_for() -> None:
    model = made()
    before = model.tokens.weight.clone()
    going = training(model, iter(some(5)), steps=5, rate=0.1, warm_up=2)
    assert torch.equal(model.tokens.weight, before)
    rates = [step.rate for step in islice(going, 3)]
    assert not torch.equal(model.tokens.weight, before)
    assert rates == [0.05, 0.1, 0.1]
    assert [step.number for step in going] == [3, 4]


def test_it_learns_a_text_and_can_say_it() -> None:
    text = "the quick brown fox jumps over a lazy dog. " * 30
    characters = Characters.of(text)
    tokens, held_out = split(characters.encode(text))
    torch.manual_seed(0)
    model = GPT(GPTConfig(n_layer=1, n_head=2, n_embd=16, block_size=16, vocab_size=characters.size))
    validation = next(batches(held_out, 4, 16))
    first = model(*validation)[1].item()
    assert first == pytest.approx(log(characters.size), rel=0.1)
    losses = train(model, batches(tokens, 8, 16, seed=1), steps=120, rate=3e-2, warm_up=10)
    assert len(losses) == 120 and losses[-1] < 0.5
    assert model(*validation)[1] < 0.5
    start = characters.encode("the quick ")
    said = characters.decode(sample(model, start[None], 20, temperature=0)[0])
    assert said == "the quick brown fox jumps over"


def test_the_same_seeds_train_the_same_and_another_rate_differently() -> None:
    def losses(rate: float) -> list[float]:
        return train(made(), cycle(some(3)), steps=6, rate=rate)

    assert losses(0.01) == losses(0.01) != losses(0.1)


def test_batches_that_end_and_no_steps_are_refused() -> None:
    with pytest.raises(ValueError, match="come to an end"):
        train(made(), iter(some(1)), steps=2, rate=0.1)
    for wrong in ({"steps": 0}, {"steps": 1, "micro_batches": 0}):
        with pytest.raises(ValueError, match="at least one step and one micro-batch"):
            training(made(), iter([]), rate=0.1, **wrong)
    with pytest.raises(ValueError, match="does not fit"):
        training(made(), iter([]), steps=2, rate=0.1, warm_up=2)


def test_a_list_of_batches_is_gone_through_and_an_end_is_said() -> None:
    """Each step takes the next batch, of a list too."""
    data = some(3)
    assert train(made(), data, steps=3, rate=0.1) == train(made(), iter(data), steps=3, rate=0.1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="have the batches come to an end"):
        train(made(), data, steps=4, rate=0.1)  # type: ignore[arg-type]


def test_every_step_is_clipped() -> None:
    """With a norm of 0 nothing moves, in the second step either."""
    model = made()
    before = [p.detach().clone() for p in model.parameters()]
    train(model, iter(some(3)), steps=3, rate=0.1, clip=0.0, weight_decay=0.0)
    assert all(torch.equal(p, old) for p, old in zip(model.parameters(), before, strict=True))


@pytest.mark.parametrize(
    "wrong", [{"rate": -1.0}, {"rate": float("nan")}, {"clip": -1.0}, {"weight_decay": -0.1}], ids=str
)
def test_numbers_below_zero_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} is 0 or more"):
        train(made(), iter(some(1)), **{"steps": 1, "rate": 0.1, **wrong})


def test_an_optimizer_that_clips_does_so_itself() -> None:
    """As a sharded one must: no rank has all gradients."""
    asked = []

    class Own(torch.optim.SGD):
        def clip(self, norm: float) -> float:
            asked.append(norm)
            return 7.0

    model = made()
    steps = training(model, iter(some(1)), steps=1, rate=0.1, clip=0.5, optimizer=Own(model.parameters(), lr=0.1))
    assert [step.norm for step in steps] == [7.0] and asked == [0.5]
