"""What the steps run on the ranks: plain torch.distributed functions, as a learner writes them.

They are run from a copy outside the kit (`bench.learners_copy`), so that they travel and are stepped as a learner's do.
kind: 'cuda', 'xpu' or 'cpu'; a rank's own device is the current one of its kind. Letters: n ranks, r this one, B batch.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

Told = dict[str, Any]


def settle(kind: str) -> None:
    """Waits until the device has done all it was given."""
    getattr(torch, kind).synchronize()


def compared(got: torch.Tensor, expected: torch.Tensor) -> Told:
    """Whether all elements are right, and the first that are not (or the first of all)."""
    wrong = (got != expected).flatten()  # NaN differs from all
    where = (
        wrong.nonzero().flatten()[:4] if bool(wrong.any()) else torch.arange(min(4, wrong.numel()), device=got.device)
    )
    return {
        "right": not bool(wrong.any()),
        "got": got.flatten()[where].tolist(),
        "expected": expected.flatten()[where].tolist(),
    }


def full(kind: str, count: int, value: float) -> torch.Tensor:
    return torch.full((count,), float(value), device=kind)


# ------------------------------------------------------------------------------------------------------ where one is


def about(kind: str) -> Told:
    """Of the process: which it is, whose child, and whether it could use the device after its fork."""
    in_bad_fork = getattr(getattr(torch, kind), "_is_in_bad_fork", lambda: False)
    return {"pid": os.getpid(), "parent": os.getppid(), "in a bad fork": bool(in_bad_fork())}


def current_devices(kind: str) -> dict[str, str]:
    """Where a tensor comes to lie that is made in the function, and in its backward pass."""
    found = {"in the function": str(torch.empty(1, device=kind).device)}
    x = torch.ones(1, device=kind, requires_grad=True)
    y = 2 * x
    y.register_hook(lambda gradient: found.update({"in backward": str(torch.empty(1, device=kind).device)}))
    y.sum().backward()
    return found


def sums(kind: str, times: int) -> Told:
    """All-reduces of one number, one after the other: seconds of each, the first among them."""
    n, r = dist.get_world_size(), dist.get_rank()
    seconds = []
    for _ in range(times):
        x = full(kind, 1, r + 1)
        began = time.perf_counter()
        dist.all_reduce(x)
        settle(kind)
        seconds.append(time.perf_counter() - began)
    return {"seconds": seconds, **compared(x, full(kind, 1, n * (n + 1) / 2))}


# ------------------------------------------------------------------------------------------------------- collectives


def collective(kind: str, name: str, nbytes: int, asynchronous: bool, times: int) -> Told:
    """One collective on a buffer of `nbytes`: its values, and when it was called and over by this rank's own clock."""
    n = dist.get_world_size()
    moments = []
    for _ in range(times):
        launch, out, expected = prepared(kind, name, max(1, nbytes // (4 * n)))
        settle(kind)
        dist.barrier()
        settle(kind)
        began = time.monotonic_ns()
        work = launch(asynchronous)
        if work is not None:
            work.wait()
        settle(kind)
        moments.append((began, time.monotonic_ns()))
    return {"moments": moments, **compared(out, expected)}


def prepared(kind: str, name: str, share: int) -> tuple[Callable[[bool], Any], torch.Tensor, torch.Tensor]:
    """(its call, what it writes to, what is right there). Rank r gives r + 1; `share` elements are one rank's."""
    n, r = dist.get_world_size(), dist.get_rank()
    whole, total, last = share * n, n * (n + 1) / 2, n - 1
    mine = full(kind, share, r + 1)  # (share,)
    steps = torch.arange(1, n + 1, device=kind, dtype=torch.float32).repeat_interleave(share)  # (n share,): 1.. 2.. n
    x = full(kind, whole, r + 1)  # (n share,)
    if name == "all_reduce":
        return lambda a: dist.all_reduce(x, async_op=a), x, full(kind, whole, total)
    if name == "broadcast":
        return lambda a: dist.broadcast(x, src=last, async_op=a), x, full(kind, whole, n)
    if name == "reduce":  # the others' buffers are the library's, and may hold anything
        right = full(kind, whole, total) if r == last else x
        return lambda a: dist.reduce(x, dst=last, async_op=a), x, right
    if name == "all_gather":
        out = torch.zeros(whole, device=kind)
        return lambda a: dist.all_gather(list(out.view(n, share).unbind()), mine, async_op=a), out, steps
    if name == "all_gather_into_tensor":
        out = torch.zeros(whole, device=kind)
        gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
        return lambda a: gather(out, mine, async_op=a), out, steps
    if name == "reduce_scatter_tensor":
        out = torch.zeros(share, device=kind)
        scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
        return lambda a: scatter(out, x, async_op=a), out, full(kind, share, total)
    if name == "all_to_all_single":
        out = torch.zeros(whole, device=kind)
        return lambda a: dist.all_to_all_single(out, x, async_op=a), out, steps
    if name == "gather":
        out = torch.zeros(whole, device=kind)
        into = list(out.view(n, share).unbind()) if r == 0 else None
        return lambda a: dist.gather(mine, into, dst=0, async_op=a), out, steps if r == 0 else torch.zeros_like(out)
    if name == "scatter":
        out = torch.zeros(share, device=kind)
        pieces = list(steps.view(n, share).unbind()) if r == last else None
        return lambda a: dist.scatter(out, pieces, src=last, async_op=a), out, full(kind, share, r + 1)
    assert name == "barrier", name
    return lambda a: dist.barrier(async_op=a), mine, full(kind, share, r + 1)


def race(kind: str, side: int, seconds: float) -> Told:
    """Products that keep the device busy for `seconds`, and an all-reduce of what the last one writes.

    Whoever reads too early finds -1. "launched", "done": seconds until the host had launched all of it, and until the
    device was done.
    """
    n, r = dist.get_world_size(), dist.get_rank()
    a = torch.eye(side, device=kind)  # (side, side): products leave b as it is, to the last bit
    b = torch.full((side, side), r + 1.0, device=kind)
    result = torch.full((side, side), -1.0, device=kind)
    torch.mm(b, a)
    settle(kind)
    began = time.perf_counter()
    for _ in range(4):
        torch.mm(b, a)
    settle(kind)
    each = (time.perf_counter() - began) / 4
    began = time.perf_counter()
    for _ in range(max(1, min(20_000, round(seconds / each)))):
        torch.mm(b, a)
    torch.mm(b, a, out=result)
    launched = time.perf_counter() - began
    dist.all_reduce(result)
    told = compared(result, torch.full_like(result, n * (n + 1) / 2))
    return {**told, "launched": launched, "done": time.perf_counter() - began}


# ---------------------------------------------------------------------------------------------------------- messages


def ring(kind: str) -> Told:
    """The kit's ring all-reduce."""
    from kit.topics.collectives.reference import ring_all_reduce

    n, r = dist.get_world_size(), dist.get_rank()
    return compared(ring_all_reduce(full(kind, 1000, r + 1)), full(kind, 1000, n * (n + 1) / 2))


def exchanged(kind: str) -> Told:
    """One step of a ring: both messages posted before either is waited for."""
    from kit.topics.collectives.reference.primitives import exchange

    n, r = dist.get_world_size(), dist.get_rank()
    inbox = full(kind, 1000, 0)
    exchange(full(kind, 1000, r), (r + 1) % n, inbox, (r - 1) % n)
    return compared(inbox, full(kind, 1000, (r - 1) % n))


def isend_then_recv(kind: str) -> Told:
    """What a learner writes first: isend, recv, wait."""
    n, r = dist.get_world_size(), dist.get_rank()
    inbox = full(kind, 1000, 0)
    sending = dist.isend(full(kind, 1000, r), (r + 1) % n)
    dist.recv(inbox, (r - 1) % n)
    assert sending is not None
    sending.wait()
    return compared(inbox, full(kind, 1000, (r - 1) % n))


def batched(kind: str) -> Told:
    """batch_isend_irecv, to the right and from the left."""
    n, r = dist.get_world_size(), dist.get_rank()
    outbox, inbox = full(kind, 1000, r), full(kind, 1000, 0)
    posted = [dist.P2POp(dist.isend, outbox, (r + 1) % n), dist.P2POp(dist.irecv, inbox, (r - 1) % n)]
    for work in dist.batch_isend_irecv(posted):
        work.wait()
    return compared(inbox, full(kind, 1000, (r - 1) % n))


def subgroup(kind: str) -> Told:
    """An all-reduce among every second rank, and another among the rest."""
    n, r = dist.get_world_size(), dist.get_rank()
    groups = [dist.new_group([rank for rank in range(n) if rank % 2 == part]) for part in range(min(2, n))]
    x = full(kind, 1000, r + 1)
    dist.all_reduce(x, group=groups[r % 2])
    return compared(x, full(kind, 1000, sum(rank + 1 for rank in range(n) if rank % 2 == r % 2)))


def met(kind: str) -> Told:
    """A barrier that stands behind work on the device."""
    x = full(kind, 1000, 1)
    x += 1
    dist.barrier()
    return compared(x, full(kind, 1000, 2))


# ------------------------------------------------------------------------------------------------------------ faults


def leaves(kind: str) -> None:
    """Rank 1 returns where the others wait for it."""
    if dist.get_rank() == 1:
        return
    dist.all_reduce(full(kind, 1000, 1))


def leaves_a_new_group(kind: str) -> None:
    """The first operation of a group, in which its communicator is started: rank 1 does not come to it."""
    group = dist.new_group(list(range(dist.get_world_size())))
    if dist.get_rank() == 1:
        return
    dist.all_reduce(full(kind, 1000, 1), group=group)


def is_killed(kind: str) -> None:
    """Rank 1 is killed where the others wait for it."""
    if dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.all_reduce(full(kind, 1000, 1))


# ---------------------------------------------------------------------------------------------------------- training

WIDE, CLASSES, B = 64, 8, 16


def small_model(kind: str) -> nn.Sequential:
    """The same on every rank and in every process: drawn on the CPU."""
    with torch.device("cpu"), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = nn.Sequential(
            nn.Linear(WIDE, WIDE), nn.Tanh(), nn.Linear(WIDE, WIDE), nn.Tanh(), nn.Linear(WIDE, CLASSES)
        )
    return model.to(kind)


def data(kind: str, step: int, parts: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The whole batch of one step: (parts B, WIDE) and its targets (parts B,)."""
    with torch.device("cpu"):
        drawn = torch.Generator(device="cpu").manual_seed(step)
        x = torch.randn(parts * B, WIDE, generator=drawn)
        y = torch.randint(CLASSES, (parts * B,), generator=drawn)
    return x.to(kind), y.to(kind)


RATE = 1e-2


def plain(kind: str, model: nn.Module) -> tuple[Any, Any]:
    return model, torch.optim.AdamW(model.parameters(), lr=RATE)


def ddp(kind: str, model: nn.Module) -> tuple[Any, Any]:
    from torch.nn.parallel import DistributedDataParallel

    return DistributedDataParallel(model), torch.optim.AdamW(model.parameters(), lr=RATE)


def averaged(kind: str, model: nn.Module) -> tuple[Any, Any]:
    from kit.topics.data_parallel.reference import AveragedAfterBackward

    return AveragedAfterBackward(model), torch.optim.AdamW(model.parameters(), lr=RATE)


def hooked(kind: str, model: nn.Module) -> tuple[Any, Any]:
    from kit.topics.data_parallel.reference import HookedDDP

    return HookedDDP(model), torch.optim.AdamW(model.parameters(), lr=RATE)


def bucketed(kind: str, model: nn.Module) -> tuple[Any, Any]:
    from kit.topics.data_parallel.reference import BucketedDDP

    return BucketedDDP(model), torch.optim.AdamW(model.parameters(), lr=RATE)


def zero(stage: int, model: nn.Module) -> tuple[Any, Any]:
    from kit.topics.zero.reference import ZeroStage1, ZeroStage2, ZeroStage3

    sharded = (ZeroStage1, ZeroStage2, ZeroStage3)[stage - 1](model, lr=RATE)
    return sharded, sharded


def fsdp(kind: str, model: nn.Module) -> tuple[Any, Any]:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    fully_shard(model, mesh=init_device_mesh(kind, (dist.get_world_size(),)))
    return model, torch.optim.AdamW(model.parameters(), lr=RATE)


WAYS: dict[str, Callable[[str, nn.Module], tuple[Any, Any]]] = {
    "DistributedDataParallel": ddp,
    "AveragedAfterBackward": averaged,
    "HookedDDP": hooked,
    "BucketedDDP": bucketed,
    "ZeroStage1": lambda kind, model: zero(1, model),
    "ZeroStage2": lambda kind, model: zero(2, model),
    "ZeroStage3": lambda kind, model: zero(3, model),
    "fully_shard": fsdp,
}


def train(kind: str, way: str, steps: int) -> list[float]:
    """Losses of this rank's part of each batch, before each step."""
    n, r = dist.get_world_size(), dist.get_rank()
    called, optimizer = WAYS[way](kind, small_model(kind))
    losses = []
    for step in range(steps):
        x, y = (whole.chunk(n)[r] for whole in data(kind, step, n))  # (B, WIDE), (B,)
        loss = nn.functional.cross_entropy(called(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def train_alone(kind: str, parts: int, steps: int) -> list[float]:
    """Losses of the whole batches, in one process."""
    called, optimizer = plain(kind, small_model(kind))
    losses = []
    for step in range(steps):
        x, y = data(kind, step, parts)
        loss = nn.functional.cross_entropy(called(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def holds(kind: str, nbytes: int) -> Told:
    """Holds two buffers at once, then one; and what the device's allocator says of it, where it has one."""
    module: Any = getattr(torch, kind)
    has_one = hasattr(module, "max_memory_allocated")
    before = 0
    if has_one:
        settle(kind)
        module.reset_peak_memory_stats()
        before = module.memory_allocated()
    a = torch.zeros(nbytes // 4, device=kind)
    b = torch.ones(nbytes // 4, device=kind)
    a += b
    del b
    settle(kind)
    peak = module.max_memory_allocated() if has_one else None
    return {"allocator": peak, "before": before, **compared(a[:1000], full(kind, 1000, 1))}


def loaded(kind: str) -> Told:
    """An ordinary script's data: a shuffled DataLoader, a DistributedSampler, numpy; each sample is seen once."""
    from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

    n = dist.get_world_size()
    dataset = TensorDataset(torch.arange(16 * n, dtype=torch.float32))
    total = full(kind, 2, 0)
    for (x,) in DataLoader(dataset, batch_size=4, sampler=DistributedSampler(dataset, shuffle=True)):
        total[0] += x.to(kind).sum()
    dist.all_reduce(total[:1])
    for (x,) in DataLoader(dataset, batch_size=4, shuffle=True):
        total[1] += float(x.cpu().numpy().sum())
    return compared(total, full(kind, 2, sum(range(16 * n))))


def compiled(kind: str, compiler: str) -> Told:
    """torch.compile, and an all-reduce of what it computed."""

    def twice_and_one(x: torch.Tensor) -> torch.Tensor:
        return x * 2 + 1

    n, r = dist.get_world_size(), dist.get_rank()
    y = torch.compile(twice_and_one, backend=compiler)(full(kind, 1000, r))
    dist.all_reduce(y)
    return compared(y, full(kind, 1000, sum(2 * rank + 1 for rank in range(n))))


def in_bf16(kind: str) -> Told:
    """bfloat16: a sum over the ranks (numbers it holds exactly), and a layer under autocast."""
    n, r = dist.get_world_size(), dist.get_rank()
    x = torch.full((1000,), r + 1.0, device=kind, dtype=torch.bfloat16)
    dist.all_reduce(x)
    layer = nn.Linear(8, 8).to(kind)
    with torch.autocast(kind, dtype=torch.bfloat16):
        y = layer(torch.ones(4, 8, device=kind))  # (4, 8)
    y.float().sum().backward()
    assert y.dtype == torch.bfloat16 and layer.weight.grad is not None
    gradient = layer.weight.grad  # (8, 8): four ones at each place
    return compared(
        torch.cat([x.float(), gradient.flatten()]), torch.cat([full(kind, 1000, n * (n + 1) / 2), full(kind, 64, 4)])
    )
