"""What is kept of a tensor says whether another is the same, close, or not."""

from __future__ import annotations

from math import inf, nan

import pytest
import torch

from kit.gpt.prints import Moments, Print, first_parted

X = torch.randn(1000, generator=torch.Generator().manual_seed(0))


def test_how_far_two_tensors_are_apart_is_told_within_a_factor() -> None:
    """Of a difference spread over all elements, and of one in a single element."""
    noise = torch.randn(1000, generator=torch.Generator().manual_seed(1))
    for other in (X + 1e-2 * noise, X + 10 * torch.eye(1000)[7], X * 1.01, X.neg(), X + 1e-6 * noise):
        apart = Print.of(X).apart(Print.of(other))
        true = float((X - other).norm() / max(X.norm(), other.norm()))
        assert true / 3 < apart < 3 * true
    assert Print.of(X).apart(Print.of(X.view(10, 100))) == 0.0 and Print.of(X).hash != Print.of(X.view(10, 100)).hash
    assert Print.of(X).apart(Print.of(X * nan)) == inf


def moments(**tensors: torch.Tensor) -> Moments:
    return {0: {}, 1: {name.replace("_", " ", 1): Print.of(x) for name, x in tensors.items()}}


def test_what_is_within_the_tolerance_is_passed_over() -> None:
    ours, theirs = moments(loss=X, weight_a=X), moments(loss=X + 1e-6, weight_a=X * 2)
    exact, close = first_parted(ours, theirs), first_parted(ours, theirs, 1e-3)
    assert exact is not None and str(exact).startswith("the loss is the first to differ, after step 1, by ")
    assert close is None, "a parameter's step may have another sign where its gradient is nothing but rounding"
    begun = first_parted({1: ours[1]}, {1: theirs[1]}, 1e-3)
    assert (
        begun is not None and str(begun) == "the parameter a is the first to differ, after step 1, by 50.0% of its size"
    )
    assert first_parted(ours, moments(loss=X)) is None, "what one alone holds says nothing"
    with pytest.raises(ValueError, match="of the steps 0 to 1 and 4 to 4: none is of the same step"):
        first_parted(ours, {4: {}})
