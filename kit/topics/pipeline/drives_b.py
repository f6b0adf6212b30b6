"""How lab 06b's functions are used on a rank: a stage whose backward pass is parted, taken through its row."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch

Tensor = torch.Tensor
B, C, D = 4, 3, 5


def drawn(seed: int, m: int) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    """Weights (D, C), and of m micro-batches what the stage is given, (B, C), and what comes back to it, (B, D)."""
    source = torch.Generator().manual_seed(seed)
    weight = torch.randn(D, C, generator=source, device="cpu")
    xs = torch.randn(m, B, C, generator=source, device="cpu")
    dys = torch.randn(m, B, D, generator=source, device="cpu")
    return weight, list(xs), list(dys)


def row_of(m: int) -> Iterator[tuple[str, int]]:
    """One forward ahead; W of micro-batch 0 after I of the next, the others at the end, the newest first."""
    yield "F", 0
    for j in range(m):
        if j + 1 < m:
            yield "F", j + 1
        yield "I", j
        if j == 1:
            yield "W", 0
    for j in reversed(range(m)):
        if j or m == 1:
            yield "W", j


def by_parts(function: Callable[..., Any], seed: int, m: int, seen: dict[str, Any]) -> Tensor:
    """Returns all y, all dx and the gradient of the weights, end to end.

    seen: 'parts' what the function returned, 'nothing' the action that gave nothing; of micro-batches, 'early' the
    first whose I touched weight.grad, 'idle' whose W did not, 'kept' that was held after its W.
    """
    here = torch.get_default_device()
    weight, xs, dys = drawn(seed, m)
    weight = weight.to(here)
    weight.grad = torch.zeros_like(weight)
    parts = function(weight)
    seen["parts"] = _named(parts)
    if seen["parts"] != "three functions":
        return torch.zeros(0)
    does = dict(zip("FIW", parts, strict=True))
    made: dict[tuple[str, int], Any] = {}
    given: dict[int, weakref.ref[Tensor]] = {}
    for kind, j in row_of(m):
        before = weight.grad.clone()
        if kind == "W":
            does[kind](j)
        else:
            what = {"F": xs, "I": dys}[kind][j].to(here, copy=True)
            if kind == "F":
                given[j] = weakref.ref(what)
            made[kind, j] = does[kind](j, what)
            del what
        after = _gradient(weight)
        if after is None or made.get((kind, j), after) is None:
            seen["nothing"] = f"{kind}{j}"
            return torch.zeros(0)
        if torch.equal(before, after) == (kind == "W"):
            seen.setdefault({"F": "early", "I": "early", "W": "idle"}[kind], j)
        if kind == "W" and given[j]() is not None:
            seen.setdefault("kept", j)
    told = [made[kind, j].detach() for kind in "FI" for j in range(m)]
    return torch.cat([one.flatten() for one in (*told, weight.grad)])


def _gradient(weight: Tensor) -> Tensor | None:
    """Which a learner's function may have taken away."""
    return weight.grad


def taken(seed: int, m: int) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    """By micro-batch y, dx and what it adds to the gradient of the weights, by autograd."""
    weight, xs, dys = drawn(seed, m)
    weight.requires_grad_()
    ys, dxs, dws = [], [], []
    for x, dy in zip(xs, dys, strict=True):
        x.requires_grad_()
        y = torch.tanh(x @ weight.T)
        dx, dw = torch.autograd.grad(y, (x, weight), dy)
        ys.append(y.detach())
        dxs.append(dx)
        dws.append(dw)
    return ys, dxs, dws


def by_pairs(function: Callable[..., Any], *arguments: Any) -> Any:
    """The two tensors that it returns, end to end; whatever else it returns as it is."""
    pair = function(*arguments)
    if isinstance(pair, tuple | list) and len(pair) == 2 and all(isinstance(one, Tensor) for one in pair):
        return torch.cat(list(pair))
    return pair


def _named(parts: Any) -> str:
    if isinstance(parts, tuple | list) and len(parts) == 3 and all(map(callable, parts)):
        return "three functions"
    if isinstance(parts, tuple | list):
        return f"a {type(parts).__name__} of {len(parts)}"
    return "nothing" if parts is None else f"a {type(parts).__name__}"
