"""What the tests of the reference collectives run on every rank; each check raises where something is wrong.

Tolerance: two orders of summing n numbers in a format of unit round-off u differ by at most 2(n-1)u times the sum of
their magnitudes (Higham, Accuracy and Stability of Numerical Algorithms, 4.2; eps = 2u). Integers must agree exactly,
and so must the ranks among themselves: every chunk is summed in one place, then copied.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import torch.distributed as dist

from kit.topics.collectives import reference as collectives
from kit.topics.collectives.reference import chunk_sizes, exchange
from tests.topics.collectives import traffic

ALL_REDUCES = ("ring_all_reduce", "tree_all_reduce", "halving_doubling_all_reduce", "all_reduce_via_root")
REDUCE_SCATTERS = ("ring_reduce_scatter", "reduce_scatter_via_root")
ALL_GATHERS = ("ring_all_gather", "all_gather_via_root")
BROADCASTS = ("tree_broadcast", "broadcast_from_root")
ALL_TO_ALLS = ("all_to_all", "all_to_all_in_turn")


def draw(shape: tuple[int, ...], dtype: str, seed: int) -> torch.Tensor:
    """This rank's random input; another on every rank."""
    generator = torch.Generator().manual_seed(1000 * seed + dist.get_rank())
    kind = getattr(torch, dtype)
    if kind == torch.int64:
        return torch.randint(-1000, 1000, shape, generator=generator)
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(kind)


def gather(x: torch.Tensor, group: Any = None) -> list[torch.Tensor]:
    """Every rank's x, by torch, bit for bit."""
    everyone = [torch.empty_like(x, memory_format=torch.contiguous_format) for _ in range(dist.get_world_size(group))]
    dist.all_gather(everyone, x.contiguous(), group=group)
    return everyone


def assert_inputs_differ(inputs: list[torch.Tensor]) -> None:
    """Ranks that began alike would agree whatever the code does."""
    if inputs[0].numel() > 2:
        assert all(not torch.equal(a, b) for i, a in enumerate(inputs) for b in inputs[:i]), (
            "ranks drew the same numbers"
        )


def assert_same_sum(got: torch.Tensor, want: torch.Tensor, inputs: list[torch.Tensor]) -> None:
    assert got.shape == want.shape and got.dtype == want.dtype
    if not got.is_floating_point():
        assert torch.equal(got, want)
        return
    magnitude = torch.stack([x.double().abs() for x in inputs]).sum(0)
    bound = (len(inputs) - 1) * torch.finfo(got.dtype).eps * magnitude
    error = (got.double() - want.double()).abs()
    assert bool((error <= bound).all()), f"off by {error.max():.3g} where {bound.max():.3g} is the most"


def check_all_reduce(name: str, shape: tuple[int, ...], dtype: str, group: Any = None) -> None:
    x = draw(shape, dtype, seed=1)
    before, inputs = x.clone(), gather(x, group)
    assert_inputs_differ(inputs)
    got = getattr(collectives, name)(x, group)
    want = x.clone()
    dist.all_reduce(want, group=group)
    assert_same_sum(got, want, inputs)
    assert torch.equal(x, before), "the input was changed"
    assert not shares_memory(got, x)
    assert all(torch.equal(got, other) for other in gather(got, group)), "the ranks disagree"


def check_reduce_scatter(name: str, shape: tuple[int, ...], dtype: str, group: Any = None) -> None:
    r, n = dist.get_rank(group), dist.get_world_size(group)
    x = draw(shape, dtype, seed=2)
    before, inputs = x.clone(), gather(x, group)
    assert_inputs_differ(inputs)
    got = getattr(collectives, name)(x, group)
    whole = x.clone()
    dist.all_reduce(whole, group=group)  # torch's reduce_scatter takes no uneven rows on gloo
    assert_same_sum(got, whole.tensor_split(n)[r], [other.tensor_split(n)[r] for other in inputs])
    if len(x) % n == 0:
        own = torch.empty_like(got)
        dist.reduce_scatter(own, list(x.tensor_split(n)), group=group)
        assert_same_sum(got, own, [other.tensor_split(n)[r] for other in inputs])
    assert torch.equal(x, before), "the input was changed"
    assert not shares_memory(got, x)


def check_all_gather(name: str, shape: tuple[int, ...], dtype: str) -> None:
    x = draw(shape, dtype, seed=3)
    before = x.clone()
    got = getattr(collectives, name)(x)
    inputs = gather(x)
    assert_inputs_differ(inputs)
    assert torch.equal(got, torch.cat(inputs))
    assert torch.equal(x, before)
    assert not shares_memory(got, x)


def check_uneven_all_gather(name: str, count: int) -> None:
    """Shares of unequal size: those of tensor_split, and some with nothing on the even ranks."""
    r, n = dist.get_rank(), dist.get_world_size()
    for sizes in (chunk_sizes(count, n), [3 * (i % 2) * i for i in range(n)]):
        shares = [torch.arange(sizes[i] * 2).view(-1, 2) + 100 * i for i in range(n)]
        got = getattr(collectives, name)(shares[r], sizes=sizes)
        assert torch.equal(got, torch.cat(shares))


def check_broadcast(name: str, shape: tuple[int, ...], dtype: str) -> None:
    for root in range(dist.get_world_size()):
        x = draw(shape, dtype, seed=4 + root)
        before = x.clone()
        assert_inputs_differ(gather(x))
        got = getattr(collectives, name)(x, root)
        want = x.clone()
        dist.broadcast(want, src=root)
        assert torch.equal(got, want)
        assert torch.equal(x, before)
        assert not shares_memory(got, x)


def check_all_to_all(name: str, shape: tuple[int, ...], dtype: str) -> None:
    r, n = dist.get_rank(), dist.get_world_size()
    x = draw(shape, dtype, seed=5)
    before, inputs = x.clone(), gather(x)
    assert_inputs_differ(inputs)
    got = getattr(collectives, name)(x)
    assert torch.equal(got, torch.cat([other.tensor_split(n)[r] for other in inputs]))
    if shape[0] % n == 0:
        want = torch.empty_like(x)
        dist.all_to_all_single(want, x)
        assert torch.equal(got, want)
    assert torch.equal(x, before)


def check_uneven_all_to_all(name: str) -> None:
    """Rank i sends i * j rows to rank j, nothing among the first."""
    r, n = dist.get_rank(), dist.get_world_size()
    rows = [r * j for j in range(n)]
    x = draw((sum(rows), 2), "float32", seed=6)
    got = getattr(collectives, name)(x, None, rows, rows)
    want = torch.empty(sum(rows), 2)
    dist.all_to_all_single(want, x, rows, rows)
    assert torch.equal(got, want)


def check_not_contiguous(name: str) -> None:
    n = dist.get_world_size()
    for x in (
        draw((2 * n, 6), "float32", 7)[:, ::2],
        draw((3, 2 * n), "float32", 8).T,
        draw((1, 3), "float32", 9).expand(2 * n, 3),
    ):
        assert not x.is_contiguous()
        before = x.clone()
        got = getattr(collectives, name)(x)
        assert torch.equal(got, getattr(collectives, name)(x.contiguous()))
        assert got.is_contiguous()
        assert torch.equal(x, before)


def check_gradient_history(name: str) -> None:
    weight = draw((5, 2), "float32", 10).requires_grad_()
    got = getattr(collectives, name)(weight * 2)
    assert not got.requires_grad
    getattr(collectives, name)(weight)
    assert weight.grad is None and weight.is_leaf


def check_scalar() -> list[float]:
    loss = torch.tensor(float(dist.get_rank() + 1))
    answers = [getattr(collectives, name)(loss) for name in ALL_REDUCES]
    assert all(answer.shape == () for answer in answers)
    return [answer.item() for answer in answers]


def check_halves_make_a_whole(count: int) -> None:
    x = draw((count, 2), "int64", 11)
    share = collectives.ring_reduce_scatter(x)
    whole = collectives.ring_all_gather(share, sizes=chunk_sizes(count, dist.get_world_size()))
    assert torch.equal(whole, collectives.ring_all_reduce(x))


def check_sub_groups() -> tuple[int, ...]:
    """Odd and even ranks apart, members listed backwards: group ranks are neither global ranks nor in their order."""
    world_size = dist.get_world_size()
    mine: tuple[int, ...] = ()
    for parity in (0, 1):
        members = list(range(parity, world_size, 2))[::-1]
        group = dist.new_group(members, sort_ranks=False) if members else None
        if dist.get_rank() not in members:
            continue
        mine = tuple(members)
        assert dist.get_process_group_ranks(group) == members
        for name in ALL_REDUCES:
            check_all_reduce(name, (7,), "float32", group)
        for name in REDUCE_SCATTERS:
            check_reduce_scatter(name, (7,), "int64", group)
        here = torch.tensor([dist.get_rank()])
        for name in ALL_GATHERS:
            assert getattr(collectives, name)(here, group).tolist() == members
        for name in BROADCASTS:
            for root, member in enumerate(members):
                assert getattr(collectives, name)(here, root, group).tolist() == [member]
        for name in ALL_TO_ALLS:
            asked = dist.get_rank() * 10 + torch.tensor(members)  # member m gets '10 source + m'
            answered = getattr(collectives, name)(asked, group)
            assert answered.tolist() == [10 * member + dist.get_rank() for member in members]
    return mine


def check_refusals() -> None:
    n = dist.get_world_size()
    three = torch.zeros(3)
    refused: list[tuple[str, Callable[[], Any]]] = [
        ("not a rank of this group", lambda: collectives.tree_broadcast(three, root=n)),
        ("not a rank of this group", lambda: collectives.broadcast_from_root(three, root=-1)),
        ("without dimensions", lambda: collectives.ring_all_gather(torch.tensor(1.0))),
        ("without dimensions", lambda: collectives.ring_reduce_scatter(torch.tensor(1.0))),
        ("numbers", lambda: collectives.ring_all_gather(three, sizes=[3] * (n + 1))),
        ("it holds 3", lambda: collectives.ring_all_gather(three, sizes=[1] * n)),
        ("add up to", lambda: collectives.all_to_all(three, None, [4] * n)),
    ]
    for words, call in refused:
        with pytest.raises(ValueError, match=words):
            call()


def check_exchange(count: int) -> None:
    """Everybody sends first, in a ring and in pairs; sizes differ by direction, some are 0."""
    r, n = dist.get_rank(), dist.get_world_size()
    right, left = (r + 1) % n, (r - 1) % n
    outbox = torch.full((count * r,), float(r))
    inbox = torch.full((count * left,), -1.0)
    exchange(outbox, right, inbox, left)
    assert torch.equal(inbox, torch.full((count * left,), float(left)))
    if n > 1:
        with pytest.raises(ValueError, match="on one side only"):
            exchange(outbox, r, inbox, left)
        with pytest.raises(ValueError, match="contiguous"):
            exchange(torch.zeros(4)[::2], right, torch.zeros(2), left)


@contextmanager
def counting(counts: Counter[str]) -> Iterator[None]:
    """Count what this process hands to torch's send and receive, all four ways in."""
    inner = dist.distributed_c10d
    kept = {name: getattr(inner, name) for name in ("send", "isend", "recv", "irecv")}
    depth = [0]  # recv calls irecv, send calls isend: count the outer call

    def counted(name: str) -> Callable[..., Any]:
        direction = "sent" if "send" in name else "received"

        def call(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            if depth[0] == 0:
                counts[direction] += 1
                counts[f"bytes_{direction}"] += tensor.numel() * tensor.element_size()
            depth[0] += 1
            try:
                return kept[name](tensor, *args, **kwargs)
            finally:
                depth[0] -= 1

        return call

    def install(functions: dict[str, Callable[..., Any]]) -> None:
        for name, function in functions.items():
            setattr(inner, name, function)
            setattr(dist, name, function)

    install({name: counted(name) for name in kept})
    try:
        yield
    finally:
        install(kept)


def measured(name: str, *args: Any) -> traffic.Load:
    counts: Counter[str] = Counter()
    with counting(counts):
        getattr(collectives, name)(*args)
    return traffic.Load(**counts)


def check_traffic(count: int, columns: int, dtype: str) -> None:
    """Messages and bytes of every collective on rows (count, columns), against theory."""
    r, n = dist.get_rank(), dist.get_world_size()
    x = draw((count, columns), dtype, 12)
    elements, row = x.numel(), columns * x.element_size()
    for name in ALL_REDUCES:
        assert measured(name, x) == getattr(traffic, name)(n, r, elements, x.element_size()), name
    for name in REDUCE_SCATTERS:
        assert measured(name, x) == getattr(traffic, name)(n, r, count, row), name
    sizes = chunk_sizes(count, n)
    for name in ALL_GATHERS:
        assert measured(name, x[: sizes[r]], None, sizes) == getattr(traffic, name)(n, r, sizes, row), name
    for name in BROADCASTS:
        for root in range(n):
            assert measured(name, x, root) == getattr(traffic, name)(n, r, elements, x.element_size(), root), name
    for name in ALL_TO_ALLS:
        assert measured(name, x) == traffic.all_to_all(n, r, sizes, [sizes[r]] * n, row), name


def fail_on_rank_one() -> None:
    assert dist.get_rank() != 1, "rank one says no"


def shares_memory(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.numel() > 0 and b.numel() > 0 and a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()
