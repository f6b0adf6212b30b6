"""How lab 05's functions are used on a rank, and what is noted while they are: loaded on the ranks alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

Tensor = torch.Tensor
Function = Callable[..., Any]
Seen = dict[str, Any]  # comes back with the arguments: what was noted on this rank

LINEAR = ("y", "dx", "dw", "db")


def linear(function: Function, x: Tensor, w: Tensor, b: Tensor, dy: Tensor, seen: Seen) -> Any:
    """Forward and backward by hand. Returns y, dx, dw and db, end to end."""
    got = function(x.clone(), w.clone(), b.clone(), dy.clone())
    if got is None:
        return None
    if not isinstance(got, list | tuple) or len(got) != len(LINEAR):
        what = f"{len(got)} things" if isinstance(got, list | tuple) else f"a {type(got).__name__}"
        raise ValueError(f"four tensors are asked for, `return y, dx, dw, db`, and this returned {what}")
    for name, part in zip(LINEAR, got, strict=True):
        if not isinstance(part, Tensor):
            what = "None" if part is None else f"a {type(part).__name__}"
            raise ValueError(f"four tensors are asked for, `return y, dx, dw, db`, and {name} is {what}")
    return _joined(dict(zip(LINEAR, got, strict=True)), seen)


class Norms(TorchFunctionMode):
    """Notes the shapes of what is normalised inside it: a norm of too much gives the right numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.shapes: list[tuple[int, ...]] = []

    def __torch_function__(self, called: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if called is F.layer_norm:
            self.shapes.append(tuple(args[0].shape))
        return called(*args, **(kwargs or {}))


def differentiated(
    function: Function, inputs: Mapping[str, Tensor], others: Sequence[Any], dy: Tensor, seen: Seen
) -> Any:
    """A call of the function with the inputs and what else it takes, then backward from dy, like y.

    Returns y and the gradient of each input, end to end.
    """
    given = {name: x.clone().requires_grad_() for name, x in inputs.items()}
    with Norms() as norms:
        y = function(*given.values(), *others)
    seen["normed"] = norms.shapes
    if not isinstance(y, Tensor):
        return y
    if y.shape != dy.shape:
        return _joined({"y": y}, seen)
    if not y.requires_grad:
        raise ValueError("y has no way back to the inputs: what autograd does not see, it cannot go back through")
    (y * dy).sum().backward()
    gradients = {f"d{name}": torch.zeros_like(x) if x.grad is None else x.grad for name, x in given.items()}
    return _joined({"y": y.detach(), **gradients}, seen)


def dropped(function: Function, x: Tensor, part: Tensor, p: float, seed: int, seen: Seen) -> Any:
    """Five calls: on the same x everywhere, again, and with another seed; on a part of its own, and with another seed.

    Notes what was left each time. Returns the five, with the right value in the place of each element that went.
    """
    before = torch.get_rng_state()
    calls = {"same": (x, seed, False), "again": (x, seed, False), "other": (x, seed + 1, False)}
    calls |= {"part": (part, seed, True), "other part": (part, seed + 1, True)}
    found = []
    for name, (given, number, cut) in calls.items():
        got = function(given.clone(), p, number, cut)
        if not isinstance(got, Tensor):
            return got
        if got.shape != given.shape:
            raise ValueError(f"x has shape {tuple(given.shape)}, and what dropout returned {tuple(got.shape)}: keep it")
        got = got.detach()
        seen[name] = (got != 0).cpu()
        found.append(torch.where(got == 0, given / (1 - p), got))
    seen["reseeded"] = not torch.equal(before, torch.get_rng_state())
    return torch.cat([one.flatten() for one in found])


def _joined(parts: Mapping[str, Tensor], seen: Seen) -> Tensor:
    seen["shapes"] = {name: tuple(x.shape) for name, x in parts.items()}
    return torch.cat([x.detach().flatten() for x in parts.values()])
