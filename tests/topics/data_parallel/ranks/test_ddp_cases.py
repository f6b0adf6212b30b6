"""Data parallel training where ranks or parameters are not alike: unused, in another order, mixed, in groups."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

import kit
from kit.run.live import LiveRunner
from kit.topics.data_parallel import reference as ddp
from tests.topics.data_parallel.ranks.training import WRAPPERS, flat, torch_ddp
from tests.torches import groups_in_any_order

TOLERANCE = 1e-12  # float64, a few sums of n numbers below 100; see test_ddp
ZEROS = {"unused": "zeros"}


@pytest.fixture
def run(cluster_of: Callable[[int], LiveRunner], world: int) -> Callable[..., Any]:
    cluster = cluster_of(max(world, 4))
    return lambda function, *args: kit.options(ranks=world, cluster=cluster).record(function, *args)


class Forks(nn.Module):
    """Two paths and one nobody takes; `order` names those taken, and backward goes the other way.

    Each parameter fills more than half of a bucket of 400 bytes, so backward's order is the order of full buckets.
    """

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right, self.idle = nn.Linear(3, 14), nn.Linear(3, 14, bias=False), nn.Linear(3, 14)
        self.double()

    def forward(self, x: torch.Tensor, order: str) -> torch.Tensor:
        total = torch.zeros(len(x), 14, dtype=x.dtype)
        for path in order.split():
            total = torch.tanh(total + getattr(self, path)(x))  # (B, 14)
        return total


def forked(wrapper: Callable[..., Any], options: dict[str, Any], orders: list[str]) -> tuple[Any, list[Any]]:
    """Five steps, rank r on its own path. Returns the state and which parameters were left without gradient."""
    torch.manual_seed(dist.get_rank())
    model = Forks()
    wrapped = wrapper(model, **options)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.1)
    for _ in range(5):
        optimizer.zero_grad()
        x = torch.randn(2, 3, dtype=torch.float64)  # (B, 3)
        wrapped(x, orders[dist.get_rank() % len(orders)]).square().mean().backward()
        optimizer.step()
    return flat(model.parameters()), [p.grad is None for p in model.parameters()]


@pytest.mark.parametrize("orders", [["left", "left right", "right"], ["left right", "right left"]], ids=str)
def test_ranks_that_take_other_paths_average_as_torch_does(run: Callable[..., Any], world: int, orders: Any) -> None:
    """Also a parameter that no rank uses: without gradient it does not decay, as in a single process."""
    right = run(forked, torch_ddp, {"find_unused_parameters": True}, orders).results
    for name, wrapper in WRAPPERS.items():
        found = run(forked, wrapper, ZEROS, orders).results
        assert all(torch.equal(state, found[0][0]) for state, _ in found), name
        assert (found[0][0] - right[0][0]).abs().max() < TOLERANCE, name
        idle = [False, False, world == 1 and orders[0] == "left", True, True]
        assert [none for _, none in found] == [idle] * world, name
        assert [none for _, none in right] == [idle] * world


def sentence_and_recovery(wrapper: Callable[..., Any]) -> tuple[str, bool]:
    model = nn.ModuleDict({"used": nn.Linear(2, 2), "idle": nn.Linear(2, 2)})
    wrapped = wrapper(model)
    x = torch.full((1, 2), float(dist.get_rank()))
    try:
        model["used"](x).sum().backward()
        said = ""
    except RuntimeError as error:
        said = str(error)
    wrapped.zero_grad()
    wrapped.module = nn.Sequential(model["used"], model["idle"])  # now everything is used
    wrapped(x).sum().backward()
    everyone = [torch.empty(2, 2) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, model["used"].weight.grad)
    return said, all(torch.equal(gradient, everyone[0]) for gradient in everyone)


@pytest.mark.parametrize("name", WRAPPERS)
def test_a_parameter_without_gradient_is_named(three: LiveRunner, name: str) -> None:
    for rank, (said, agreed) in enumerate(three.record(sentence_and_recovery, WRAPPERS[name]).results):
        assert said.startswith(f"rank {rank} has no gradient for idle.weight, idle.bias at the end of backward")
        assert "unused='zeros'" in said
        assert agreed, "after a failed pass the next one no longer averages"


def normed(wrapper: Callable[..., Any], options: dict[str, Any]) -> torch.Tensor:
    """Buffers after training, micro-batches kept local, and an evaluation between."""
    torch.manual_seed(dist.get_rank())
    model: Any = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)).double()
    model[1].running_mean.uniform_()
    wrapped = wrapper(model, **options)
    for turn in range(3):
        with wrapped.no_sync():
            wrapped(torch.randn(4, 2, dtype=torch.float64)).square().mean().backward()
        wrapped(torch.randn(4, 2, dtype=torch.float64)).square().mean().backward()
        if turn == 1:
            with torch.no_grad():
                wrapped.eval()(torch.randn(4, 2, dtype=torch.float64))
            wrapped.train()
    return flat(model.buffers())


@pytest.mark.parametrize("name", ["after backward", "one bucket"])
def test_buffers_are_those_of_rank_zero_when_torch_s_are(three: LiveRunner, name: str) -> None:
    right = three.record(normed, torch_ddp, {}).results
    found = three.record(normed, WRAPPERS[name], {}).results
    assert not torch.equal(right[0], right[1]), "ranks differ after their own last batch"
    for got, want in zip(found, right, strict=True):
        assert torch.equal(got, want)
    alone = three.record(normed, WRAPPERS[name], {"sync_buffers": False}).results
    assert (alone[1] - right[1]).abs().max() > 1e-3
    assert torch.equal(alone[0], right[0]), "rank 0's own are nobody else's"


def where_no_sync_counts(wrapper: Callable[..., Any]) -> list[bool]:
    """Whether ranks agree after: forward inside no_sync, backward outside; the other way round."""
    wrapped = wrapper(nn.Linear(1, 1, bias=False))
    x = torch.full((1, 1), 1.0 + dist.get_rank())
    found = []
    for inside in (True, False):
        wrapped.zero_grad()
        if inside:
            with wrapped.no_sync():
                loss = wrapped(x)
            loss.backward()
        else:
            loss = wrapped(x)
            with wrapped.no_sync():
                loss.backward()
        found.append(wrapped.module.weight.grad.item() != x.item())
    return found


def test_the_forward_pass_settles_whether_gradients_stay_local_as_in_torch(three: LiveRunner) -> None:
    for wrapper in (torch_ddp, *WRAPPERS.values()):
        assert three.record(where_no_sync_counts, wrapper).results == [[False, True], [False, False], [False, True]]


def mixed(wrapper: Callable[..., Any]) -> list[tuple[Any, float]]:
    """Two dtypes, a transposed parameter, an empty one, a batch of another size on each rank."""
    torch.manual_seed(0)
    model: Any = nn.Module()
    model.a = nn.Parameter(torch.rand(3, 2).t())
    model.b = nn.Parameter(torch.rand(2, dtype=torch.bfloat16))
    model.c = nn.Parameter(torch.rand(4))
    model.d = nn.Parameter(torch.empty(0))
    model.forward = lambda x: model.a.sum() * x + model.b.sum() * x + model.c.sum() * x + model.d.sum()
    wrapped = wrapper(model)
    r = dist.get_rank()
    wrapped(torch.full((r + 1,), 2.0 * r)).mean().backward()
    gradients: list[Any] = [p.grad for p in model.parameters()]
    return [(str(g.dtype), float(g.float().mean()) if g.numel() else 0.0) for g in gradients]


def test_dtypes_layouts_and_batches_of_other_sizes(three: LiveRunner) -> None:
    """Rank r's mean is 2 r however many samples it has: the average of 0, 2 and 4, each rank counting once."""
    want = [("torch.float32", 2.0), ("torch.bfloat16", 2.0), ("torch.float32", 2.0), ("torch.float32", 0.0)]
    for name, wrapper in WRAPPERS.items():
        for found in three.record(mixed, wrapper).results:
            assert found == [(dtype, pytest.approx(value)) for dtype, value in want], name


def in_pairs(wrapper: Callable[..., Any]) -> tuple[float, float]:
    """Ranks 3 and 1, ranks 2 and 0, each pair for itself; an outsider is refused. Returns weight and gradient."""
    groups = [dist.new_group(members, sort_ranks=False) for members in ([2, 0], [3, 1])]
    r = dist.get_rank()
    model: Any = nn.Linear(1, 1, bias=False)
    nn.init.constant_(model.weight, 10.0 + r)
    wrapped = wrapper(model, groups[r % 2])
    wrapped(torch.full((1, 1), float(r))).sum().backward()
    with pytest.raises(ValueError, match="not in the group"):
        wrapper(nn.Linear(1, 1), groups[1 - r % 2])
    return model.weight.item(), model.weight.grad.item()


@groups_in_any_order
@pytest.mark.parametrize("name", ["after backward", "hooks", "one bucket"])
def test_groups_average_among_themselves_from_their_own_first_rank(
    cluster_of: Callable[[int], LiveRunner], name: str
) -> None:
    assert cluster_of(4).record(in_pairs, WRAPPERS[name]).results == [(12.0, 1.0), (13.0, 2.0)] * 2


def used_again(wrapper: Callable[..., Any]) -> list[Any]:
    """The same model wrapped twice, as when a cell is run again, and what is left when both are gone."""
    model: Any = nn.Linear(1, 1, bias=False)
    wrapped = wrapper(model)
    wrapped = wrapper(model)
    wrapped(torch.full((1, 1), float(dist.get_rank()))).sum().backward()
    gradient = model.weight.grad.item()
    model.weight.grad = None
    wrapper_ref, model_ref = weakref.ref(wrapped), weakref.ref(model)
    del wrapped
    gc.collect()
    model(torch.ones(1, 1)).sum().backward()  # hooks of wrappers that are gone do nothing
    left = [wrapper_ref() is None, model.weight.grad.item()]
    del model
    gc.collect()
    return [gradient, *left, model_ref() is None]


@pytest.mark.parametrize("name", WRAPPERS)
def test_a_model_is_wrapped_anew_and_nothing_is_kept_alive(three: LiveRunner, name: str) -> None:
    recording = three.record(used_again, WRAPPERS[name])
    assert recording.results == [[1.0, True, 1.0, True]] * 3
    sums = [op for op in recording.trace.collectives(rank=0) if op.name == "all_reduce"]
    assert len(sums) == 1


def check_refusals() -> None:
    with pytest.raises(ValueError, match="nothing to average"):
        ddp.HookedDDP(nn.Linear(1, 1).requires_grad_(False))
    with pytest.raises(ValueError, match="choose 'error' or 'zeros'"):
        ddp.HookedDDP(nn.Linear(1, 1), unused="ignore")
    with pytest.raises(ValueError, match="give 1 or more"):
        ddp.BucketedDDP(nn.Linear(1, 1), bucket_bytes=0)


def test_wrong_requests_say_what_is_wrong(three: LiveRunner) -> None:
    three.record(check_refusals)


def stepped(x: torch.Tensor) -> Any:
    torch.manual_seed(0)
    model: Any = ddp.BucketedDDP(nn.Linear(2, 1, bias=False), bucket_bytes=4)
    model(x).sum().backward()
    return model.module.weight.grad


def test_a_learner_steps_into_the_hooks(three: LiveRunner) -> None:
    import kit

    session = three.step(stepped, kit.per_rank([torch.full((1, 2), float(r)) for r in range(3)]))
    while session.state[0].place.function != "stepped" or "backward" not in line_of(session):
        session.step()
    seen: list[str] = []
    while "empty" not in seen[seen.index("_on_end") if "_on_end" in seen else len(seen) :]:
        session.into()
        seen.append(session.state[0].place.function)
    after = dict.fromkeys(seen[seen.index("_on_gradient") :])
    inside = ["_on_gradient", "gradient_ready", "take", "launch_all_reduce", "_on_end", "finish", "_forget", "forget"]
    assert [function for function in after if function in inside] == inside
    session.finish()
    assert [gradient.tolist() for gradient in session.results] == [[[1.0, 1.0]]] * 3


def line_of(session: Any) -> str:
    place = session.state[0].place
    return str(session.trace.source(place.file).lines[place.line - 1])
