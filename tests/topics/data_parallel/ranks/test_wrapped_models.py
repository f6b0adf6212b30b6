"""What people do to a wrapped model: it ends in the right value or in a sentence, on every rank."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch

from kit.run.live import LiveRunner
from kit.topics.data_parallel.reference import AveragedAfterBackward, BucketedDDP, HookedDDP
from tests.topics.data_parallel.ranks.mishaps import (
    check_that_a_gradient_in_two_parts_is_refused,
    check_that_training_is_settled_before,
    check_that_what_cannot_be_wrapped_is_said,
    flat,
    loss_of,
    mean_gradient,
    model,
)

DDPS: dict[str, Any] = {"after": AveragedAfterBackward, "hooks": HookedDDP, "buckets": BucketedDDP}


def copies(wrapper: Any) -> None:
    wrapped = wrapper(model())
    loss_of(wrapped).backward()
    for again in (copy.deepcopy(wrapped), pickle.loads(pickle.dumps(wrapped))):
        again.zero_grad()
        loss_of(again).backward()
        torch.testing.assert_close(flat(p.grad for p in again.parameters()), mean_gradient())


@pytest.mark.parametrize("name", DDPS)
def test_a_copy_averages_too(three: LiveRunner, name: str) -> None:
    three.record(copies, DDPS[name])


def wrapped_in_two(first: Any, second: Any) -> None:
    """Two wrappers side by side, and one around the other: the mean is taken once."""
    one = model()
    kept = [first(one), second(one)]
    loss_of(kept[1]).backward()
    torch.testing.assert_close(flat(p.grad for p in one.parameters()), mean_gradient())
    around = second(first(model()))
    loss_of(around).backward()
    torch.testing.assert_close(flat(p.grad for p in around.parameters()), mean_gradient())


@pytest.mark.parametrize("second", DDPS)
@pytest.mark.parametrize("first", ["hooks", "buckets"])
def test_of_two_wrappers_the_newest_averages(three: LiveRunner, first: str, second: str) -> None:
    three.record(wrapped_in_two, DDPS[first], DDPS[second])


@pytest.mark.parametrize("name", DDPS)
def test_what_is_trained_is_settled_before(three: LiveRunner, name: str) -> None:
    check_that_training_is_settled_before(three, DDPS[name])


@pytest.mark.parametrize("name", ["hooks", "buckets"])
def test_a_gradient_in_two_parts_is_refused(three: LiveRunner, name: str) -> None:
    check_that_a_gradient_in_two_parts_is_refused(three, DDPS[name])


def test_what_cannot_be_wrapped_is_said(three: LiveRunner) -> None:
    check_that_what_cannot_be_wrapped_is_said(three, HookedDDP)
