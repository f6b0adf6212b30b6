"""How lab 04's functions are used on a rank, and what is noted while they are: loaded on the ranks alone."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn import Parameter

Seen = dict[str, Any]  # comes back with the arguments: what was noted on this rank

KEEPS = "it keeps its shape with memory and without"
NO_MEMORY = "out of bounds for storage|not allocated"
EXPLAINED = {  # what torch says, and what it means here
    ("lend_layer", NO_MEMORY): "a tensor without memory cannot be cut: make the weight before the first resize_(0)",
    ("lend_layer", "is invalid for input of size"): "the padding is in the weight, which is the first shape.numel()"
    " elements of what is gathered",
    ("gather()", NO_MEMORY): "it fills, or cuts, a tensor that has no memory: first resize its"
    " storage, to the bytes it had before resize_(0)",
    ("the layer", NO_MEMORY): "after gather() the weight has no memory: gather() resizes its storage to what it was;"
    " the order is (weight, gather, free)",
}


def steps(
    function: Callable[..., Any], weights: torch.Tensor, gradients: Sequence[torch.Tensor], lr: float, seen: Seen
) -> Any:
    """One step for each gradient (P,), with one `state`. Returns the weights after every step, end to end."""
    state: dict[str, Any] = {}
    found = []
    for gradient in gradients:
        got = function(weights.clone(), gradient.clone(), state, lr)
        if not isinstance(got, torch.Tensor) or got.shape != weights.shape:
            return got
        weights = got.detach().clone()  # (P,)
        found.append(weights)
    seen["kept"] = [value.detach().clone() for value in state.values() if isinstance(value, torch.Tensor)]
    return torch.cat(found)


def micro_batches(function: Callable[..., Any], gradients: Sequence[torch.Tensor], seen: Seen) -> Any:
    """One call for each micro-batch's gradient (P,), with what the call before has kept. Returns the last."""
    kept = None
    for gradient in gradients:
        kept = function(gradient.clone(), kept)
    return kept


def layers(
    function: Callable[..., Any],
    shards: Sequence[torch.Tensor],
    shapes: Sequence[torch.Size],
    x: torch.Tensor,
    seen: Seen,
) -> Any:
    """Forward and backward through layers y = relu(x w) whose weights are lent.

    Returns the output and all gradients, end to end: y, dx, and dw from the last layer to the first. Notes how many
    elements are whole at once, and what is left after everything was freed.
    """
    with explained("lend_layer"):
        lent = [function(shard, shape) for shard, shape in zip(shards, shapes, strict=True)]
    weights = [weight for weight, _, _ in lent]
    for weight, shape in zip(weights, shapes, strict=True):
        if not isinstance(weight, torch.Tensor):
            raise ValueError(
                f"lend_layer: the weight is {weight!r} where a tensor of shape {tuple(shape)} is right: it is made once"
                " and handed out then; what gather() binds to its name later, nobody else sees"
            )
        if weight.shape != shape:
            raise ValueError(
                f"lend_layer: the weight has shape {tuple(weight.shape)} where {tuple(shape)} is right: {KEEPS}"
            )
    parameters = [Parameter(torch.empty(())) for _ in lent]
    for weight in weights:
        if weight.untyped_storage().nbytes():
            weight.fill_(math.nan)  # what gather() leaves untouched shows
    seen.update(most=0, left=0)
    passes = []
    for parameter, (weight, gather, free) in zip(parameters, lent, strict=True):
        parameter.data = weight  # the same memory: what is gathered later is seen by what autograd keeps
        with explained("gather()", weight):
            gather()
        _filled(weight, parameter)
        seen["most"] = max(seen["most"], _memory(weights))
        x = x.detach().requires_grad_()  # (B, C)
        with explained("the layer"):
            y = torch.relu(x @ parameter)  # (B, C')
        passes.append((x, parameter, y))
        free()
        x = y
    found, dy = [x.detach().clone().flatten()], torch.ones_like(x)
    for (x, parameter, y), (weight, gather, free) in reversed(list(zip(passes, lent, strict=True))):
        with explained("gather()", weight):
            gather()
        seen["most"] = max(seen["most"], _memory(weights))
        with explained("the layer"):
            dy, dw = torch.autograd.grad(y, (x, parameter), dy)  # (B, C), (C, C')
        found += [dy.flatten(), dw.flatten()]
        free()
    seen["left"] = _memory(weights)
    return torch.cat(found)


def _filled(weight: torch.Tensor, parameter: Parameter) -> None:
    """ValueError where gather() filled something else than the memory that the layer looks at."""
    if weight.untyped_storage()._cdata != parameter.untyped_storage()._cdata:
        raise ValueError(
            "gather() gave the weight another memory (`weight.data = ...`): whoever looks at the first, as autograd"
            " does, does not see it; resize that, and fill it"
        )
    if parameter.untyped_storage().nbytes() and bool(parameter.isnan().any()):
        raise ValueError(
            "after gather() the weight is as it was: what was filled is another tensor's memory;"
            " `whole[...].view(shape)` shares it, a copy does not"
        )


@contextmanager
def explained(what: str, weight: torch.Tensor | None = None) -> Iterator[None]:
    """Errors of torch that have a usual cause are raised again, in words that name it. weight: what is being filled."""
    try:
        yield
    except RuntimeError as error:
        for (where, words), meaning in EXPLAINED.items():
            if where == what and re.search(words, str(error)):
                has, wants = (weight.untyped_storage().nbytes(), weight.nbytes) if weight is not None else (0, 0)
                if 0 < has < wants:
                    meaning = f"the weight wants {wants} bytes and has {has}: resize_ counts bytes, not elements"
                told = RuntimeError(f"{what}: {meaning}")
                raise told.with_traceback(error.__traceback__) from error  # the learner's line stays the last one
        raise


def _memory(weights: Sequence[torch.Tensor]) -> int:
    """Elements that the memory behind the weights has room for."""
    storages = {weight.untyped_storage().data_ptr(): weight.untyped_storage() for weight in weights}
    return sum(storage.nbytes() for storage in storages.values()) // 4
