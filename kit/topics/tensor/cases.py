"""What lab 05's functions are tried on, and the right answers, computed in one process.

Every case begins with whole tensors; facts["right"] holds by rank what is right, part by part and by its name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from random import Random
from typing import TYPE_CHECKING, Any

from kit.grade import inputs
from kit.grade.exercise import Case

if TYPE_CHECKING:
    import torch

FLOAT = 4  # bytes of a float32
P = 0.25  # of dropout
DROPOUTS = ("same", "again", "other", "part", "other part")  # as `drives.dropped` calls it
Parts = dict[str, Any]  # name -> tensor


def right(case: Case) -> list[Any]:
    """The parts of each rank, end to end."""
    import torch

    return [torch.cat([x.flatten() for x in parts.values()]) for parts in case.facts["right"]]


def drawn(random: Random, *shape: int) -> torch.Tensor:
    """Of the order of 1, so that all parts of a result are of one size."""
    return (inputs.tensor(prod(shape), random) / 500).view(shape)


def linear_sizes(world: int, random: Random) -> Iterator[tuple[int, int, int]]:
    """B, C, F: all different; squares, whose transposes fit too; and one feature on each rank."""
    yield 2, world + 1, world * (world + 2)
    yield 3, 3, world * 3
    yield 1, random.randint(2, 5), world


def column_cases(world: int, random: Random) -> Iterator[Case]:
    for B, C, F in linear_sizes(world, random):
        x, w, b, dy = drawn(random, B, C), drawn(random, F, C), drawn(random, F), drawn(random, B, F)
        ws, bs, dys = w.chunk(world), b.chunk(world), dy.chunk(world, 1)
        found = [
            {"y": x @ ws[r].T + bs[r], "dx": dy @ w, "dw": dys[r].T @ x, "db": dys[r].sum(0)} for r in range(world)
        ]
        arguments = [(x, ws[r].clone(), bs[r].clone(), dys[r].clone()) for r in range(world)]
        yield _case(arguments, F, {"B": B, "C": C}, found, "linear")


def row_cases(world: int, random: Random) -> Iterator[Case]:
    for B, C, F in linear_sizes(world, random):
        x, w, b, dy = drawn(random, B, F), drawn(random, C, F), drawn(random, C), drawn(random, B, C)
        xs, ws = x.chunk(world, 1), w.chunk(world, 1)
        found = [{"y": x @ w.T + b, "dx": dy @ ws[r], "dw": dy.T @ xs[r], "db": dy.sum(0)} for r in range(world)]
        arguments = [(xs[r].clone(), ws[r].clone(), b, dy) for r in range(world)]
        yield _case(arguments, F, {"B": B, "C": C}, found, "linear")


def mlp_cases(world: int, random: Random) -> Iterator[Case]:
    import torch.nn.functional as F

    for B, C, features in linear_sizes(world, random):
        whole = {
            "x": drawn(random, B, C),
            "up": drawn(random, features, C),
            "up_bias": drawn(random, features),
            "down": drawn(random, C, features),
            "down_bias": drawn(random, C),
        }
        cuts = {"up": 0, "up_bias": 0, "down": 1}

        def dense(x: Any, up: Any, up_bias: Any, down: Any, down_bias: Any) -> Any:
            return F.linear(F.gelu(F.linear(x, up, up_bias)), down, down_bias)

        found = _differentiated(dense, whole, dy := drawn(random, B, C))
        yield _differentiated_case(world, features, whole, cuts, found, [dy] * world, {"B": B, "C": C})


def attention_cases(world: int, random: Random) -> Iterator[Case]:
    """Heads of several channels; a head on each rank; and samples, positions and channels of a head of one number."""
    for B, T, H, D in (
        (2, 5, 2 * world, 4),
        (1, 3, world, 2),
        (3, 3, 3 * world, 3),
    ):
        C = H * D
        whole = {"x": drawn(random, B, T, C), "qkv": drawn(random, 3 * C, C), "out": drawn(random, C, C)}
        whole = {name: t if name == "x" else t / C**0.5 for name, t in whole.items()}
        dy = drawn(random, B, T, C)
        found = _differentiated(lambda x, qkv, out, H=H: attend(x, qkv, out, H), whole, dy)
        rows = [_rows(C, world, rank) for rank in range(world)]
        by_rank = []
        for rank in range(world):  # elsewhere than in its part a weight has no gradient on this rank
            dqkv, dout = found["dqkv"] * 0, found["dout"] * 0
            dqkv[rows[rank]] = found["dqkv"][rows[rank]]
            mine = slice(rank * C // world, (rank + 1) * C // world)
            dout[:, mine] = found["dout"][:, mine]
            by_rank.append({"y": found["y"], "dx": found["dx"], "dqkv": dqkv, "dout": dout})
        yield _case(
            [(whole, [H], dy)] * world, C, {"B": B, "T": T, "H": H, "whole": whole, "dy": dy}, by_rank, "differentiated"
        )


def attend(x: torch.Tensor, qkv: torch.Tensor, out: torch.Tensor, heads: int, causal: bool = True) -> torch.Tensor:
    """Self-attention in one process: (B, T, C) -> (B, T, C)."""
    import torch.nn.functional as F

    q, k, v = (y.unflatten(-1, (heads, -1)).transpose(1, 2) for y in F.linear(x, qkv).chunk(3, -1))
    y = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
    return F.linear(y.transpose(1, 2).flatten(2), out)


def _rows(C: int, n: int, rank: int) -> list[int]:
    """Those of qkv (3C, C) that a rank's heads have."""
    width = C // n
    return [third * C + rank * width + row for third in range(3) for row in range(width)]


def dropout_cases(world: int, random: Random) -> Iterator[Case]:
    """A matrix and a batch of them: many elements, since what is dropped is a matter of chance."""
    for shape in ((40, 100), (2, 30, 70)):
        x, seed = drawn(random, *shape), random.randint(1, 10_000)
        parts = [drawn(random, *shape) for _ in range(world)]
        right = [{call: t / (1 - P) for call, t in zip(DROPOUTS, (x, x, x, part, part), strict=True)} for part in parts]
        yield _case([(x, part, P, seed) for part in parts], prod(shape), {}, right, "dropped")


def sequence_cases(world: int, random: Random) -> Iterator[Case]:
    import torch.nn.functional as F

    for each, C, features in ((2, world + 3, 2 * world), (3, 4, 4 * world), (1, 5, world)):
        T = each * world
        whole = {
            "x": drawn(random, T, C),
            "gain": drawn(random, C),
            "up": drawn(random, features, C),
            "down": drawn(random, C, features),
        }

        def dense(x: Any, gain: Any, up: Any, down: Any) -> Any:
            return F.linear(F.gelu(F.linear(F.layer_norm(x, gain.shape, gain), up)), down)

        dy = drawn(random, T, C)
        found = _differentiated(dense, whole, dy)
        cuts = {"x": 0, "up": 0, "down": 1}
        facts = {"T": T, "C": C, "gains": _gains(dense, whole, dy, world)}
        yield _differentiated_case(world, T, whole, cuts, found, dy.chunk(world), facts, y=0)


def _gains(dense: Any, whole: Parts, dy: torch.Tensor, world: int) -> list[torch.Tensor]:
    """The gradient of the gain from each rank's positions alone: (C,) by rank."""
    return [
        _differentiated(dense, {**whole, "x": x}, part)["dgain"]
        for x, part in zip(whole["x"].chunk(world), dy.chunk(world), strict=True)
    ]


def _differentiated(function: Any, whole: Parts, dy: torch.Tensor) -> Parts:
    """y of the whole layer and the gradients of its inputs."""
    given = {name: t.clone().requires_grad_() for name, t in whole.items()}
    y = function(**given)
    (y * dy).sum().backward()
    return {"y": y.detach(), **{f"d{name}": t.grad for name, t in given.items()}}


def _differentiated_case(
    world: int,
    size: int,
    whole: Parts,
    cuts: Mapping[str, int],
    found: Parts,
    dy: Sequence[torch.Tensor],
    facts: Mapping[str, Any],
    y: int | None = None,
) -> Case:
    """cuts: along which dimension an input is cut, if it is; y: and the result. found: of the whole layer."""
    cut = {**cuts, **{f"d{name}": dim for name, dim in cuts.items()}}
    if y is not None:
        cut["y"] = y

    def shards(parts: Parts, rank: int) -> Parts:
        return {name: (t.chunk(world, cut[name])[rank] if name in cut else t).clone() for name, t in parts.items()}

    arguments: list[tuple[Any, ...]] = [(shards(whole, rank), [], dy[rank]) for rank in range(world)]
    by_rank = [shards(found, rank) for rank in range(world)]
    return _case(arguments, size, {**facts, "whole": whole}, by_rank, "differentiated")


def _case(
    arguments: Sequence[tuple[Any, ...]], size: int, facts: Mapping[str, Any], right: Sequence[Parts], drive: str
) -> Case:
    from kit.topics.tensor import drives

    given: Any = tuple((*each, {}) for each in arguments)
    return Case(len(given), given, size, {**facts, "right": right}, getattr(drives, drive))
