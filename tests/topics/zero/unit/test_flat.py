"""Flat buffers: what goes in comes out, cut into equal shards, and padding stays outside."""

from __future__ import annotations

import pytest
import torch

from kit.topics.zero.reference.by_hand import flatten, spans, unflatten

SHAPES = [torch.Size(shape) for shape in ((2, 3), (1,), (), (0, 4), (3, 1, 2))]


def drawn() -> list[torch.Tensor]:
    return [torch.arange(float(shape.numel())).view(shape) + 100 * number for number, shape in enumerate(SHAPES)]


@pytest.mark.parametrize("n", [1, 2, 3, 4, 7, 20])
def test_flattened_and_back(n: int) -> None:
    tensors = drawn()
    count = sum(x.numel() for x in tensors)
    flat = flatten(tensors, n)
    assert flat.shape == (n, -(-count // n))
    assert torch.equal(flat.view(-1)[:count], torch.cat([x.flatten() for x in tensors]))
    assert flat.view(-1)[count:].count_nonzero() == 0 and flat.numel() - count < n
    for view, x in zip(unflatten(flat, SHAPES), tensors, strict=True):
        assert torch.equal(view, x)
        assert x.numel() == 0 or view.untyped_storage().data_ptr() == flat.untyped_storage().data_ptr()


def test_it_is_a_copy_without_history_of_tensors_that_need_not_be_contiguous() -> None:
    x = torch.arange(6.0).view(2, 3).T.requires_grad_()
    flat = flatten([x], 2)
    assert not flat.requires_grad and flat.tolist() == [[0, 3, 1], [4, 2, 5]]
    flat += 1
    assert x[0, 0] == 0


def test_spans_are_those_of_the_elements() -> None:
    assert [(at.start, at.stop) for at in spans(SHAPES)] == [(0, 6), (6, 7), (7, 8), (8, 8), (8, 14)]
