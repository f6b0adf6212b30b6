"""The recipe's arithmetic, and a trainer that can be stopped between steps and refuses what is no number."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
import torch

from kit.gpt.data import Batch
from kit.gpt.feed import Feed
from kit.gpt.recipe import Recipe
from kit.gpt.trainer import Trainer
from kit.gpt.watch import Mark, watch


class Told:
    """A strategy that notes what it is asked for and answers as it is told."""

    device = torch.device("cpu")

    def __init__(self, loss: float = 1.0, norm: float = 2.0, part: int = 0, parts: int = 1) -> None:
        self.part, self.parts = part, parts
        self.answers = loss, norm
        self.seen: list[list[Batch]] = []
        self.rates: list[float] = []

    def gradients(self, micro_batches: Sequence[Batch], mark: Mark) -> torch.Tensor:
        self.seen.append(list(micro_batches))
        mark("forward")
        return torch.tensor(self.answers[0])

    def clip(self, norm: float) -> float:
        return self.answers[1]

    def update(self, rate: float) -> None:
        self.rates.append(rate)

    def loss(self, micro_batches: Sequence[Batch]) -> torch.Tensor:
        return torch.stack([tokens.float().mean() for tokens, _ in micro_batches]).mean()


FEED = Feed(torch.arange(1003), block=8)
RECIPE = Recipe(steps=4, batch=2, total_batch=96, rate=1.0, warm_up=1, validate_every=3, validation=2)


def test_accumulation_follows_from_the_ranks() -> None:
    assert [RECIPE.micro_batches(8, parts) for parts in (1, 2, 3, 6)] == [6, 3, 2, 1]
    assert Recipe(total_batch=None).micro_batches(8, 5) == 1
    with pytest.raises(ValueError, match="96 tokens in a step do not divide.*2 x 8 on each of 4: take 128"):
        RECIPE.micro_batches(8, 4)


def test_the_rate_ends_at_a_tenth_of_the_peak() -> None:
    recipe = Recipe(steps=10, warm_up=2, rate=3e-4)
    assert [recipe.rate_of(step) for step in (0, 1, 9, 12)] == pytest.approx([1.5e-4, 3e-4, 3e-5, 3e-5])


@pytest.mark.parametrize(
    "wrong", [{"steps": 0}, {"batch": 0}, {"rate": math.nan}, {"clip": -1.0}, {"steps": 5, "warm_up": 5}], ids=str
)
def test_numbers_that_make_no_sense_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(wrong))}|warm-up"):
        Recipe(**wrong)  # type: ignore[arg-type]


def test_a_step_is_taken_when_it_is_asked_for() -> None:
    told = Told(part=1, parts=2)
    trainer = Trainer(told, RECIPE, FEED, FEED)
    assert not told.seen
    one = trainer.step()
    assert (one.number, one.loss, one.norm, one.rate, one.windows, one.tokens) == (0, 1.0, 2.0, 1.0, 12, 96)
    assert trainer.done == 1 and len(told.seen) == 1
    assert [step.number for step in trainer] == [1, 2, 3]
    assert [len(batches) for batches in told.seen] == [3] * 4
    assert told.rates == [RECIPE.rate_of(step) for step in range(4)]
    seen = [tokens for batches in told.seen for tokens, _ in batches]
    wanted = [x for step in range(4) for x, _ in FEED.micro_batches(12 * step, 12, 2, part=1, parts=2)]
    assert all(torch.equal(a, b) for a, b in zip(seen, wanted, strict=True))


def test_validation_looks_at_the_same_windows_each_time() -> None:
    trainer = Trainer(Told(), RECIPE, FEED, FEED)
    first = trainer.validate()
    due = [trainer.validates for _ in trainer]
    assert due == [False, False, True, True], "every third step, and at the end"
    assert trainer.validate() == first
    expected = torch.stack([x.float().mean() for x, _ in FEED.micro_batches(0, 24, 2)]).mean()
    assert first == pytest.approx(expected.item())
    with pytest.raises(ValueError, match="no text to validate with"):
        Trainer(Told(), RECIPE, FEED).validate()


@pytest.mark.parametrize("answers", [(math.nan, 1.0), (1.0, math.inf)])
def test_no_weight_is_changed_by_what_is_no_number(answers: tuple[float, float]) -> None:
    trainer = Trainer(Told(*answers), RECIPE, FEED)
    with pytest.raises(
        FloatingPointError, match="the loss of step 0 is .* no weight was changed. Go on from a checkpoint"
    ):
        trainer.step()
    assert trainer.done == 0 and trainer.strategy.rates == []  # type: ignore[attr-defined]


def test_a_text_too_short_for_a_step_is_refused() -> None:
    with pytest.raises(ValueError, match="the text to validate with has 11 windows of 8 tokens, and a step takes 12"):
        Trainer(Told(), RECIPE, FEED, Feed(torch.arange(103), 8))


def test_a_watch_adds_up_what_has_one_name() -> None:
    time = watch(torch.device("cpu"))
    for name in ("forward", "backward", "forward"):
        time.mark(name)
    spent = time.seconds()
    assert list(spent) == ["forward", "backward"] and all(seconds >= 0 for seconds in spent.values())
