"""Memory accounted for on real ranks, against bytes worked out by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from kit.probe.shipping import PerRank
from kit.run.errors import RankError
from kit.run.live import LiveRunner
from kit.run.options import Options
from kit.run.results import MemoryRecording
from kit.trace.memory import MODEL
from kit.trace.timeline import steps
from kit.trace.trace import Trace

I, H, O = 64, 128, 32  # inputs, hidden, outputs  # noqa: E741
P = I * H + H + H * O + O  # 12,448 parameters, divisible by 2; three ranks pad by two
# What the reducer of four parameters told other ranks when it made its bucket anew, in int32: which parameter is where
# and how many buckets there are, then the size of one. A thread of gloo may not have let go of either yet.
TOLD = {0, 4 * (4 + 1), 4 * 1, 4 * (4 + 1) + 4 * 1}


def accounted(
    cluster: LiveRunner,
    function: Callable[..., Any],
    *args: Any,
    kinds: Mapping[str, str] | None = None,
    world: int | None = None,
) -> MemoryRecording:
    found = Options(memory=True, kinds=kinds, ranks=world, cluster=cluster).record(function, *args)
    assert isinstance(found, MemoryRecording)
    return found


def train(batch: torch.Tensor, steps: int) -> float:
    from torch.nn.parallel import DistributedDataParallel

    torch.manual_seed(0)
    inner = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 32)).to(batch.dtype)
    model = DistributedDataParallel(inner)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    for _ in range(steps):
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return float(loss.detach())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_data_parallel_holds_what_theory_says(ranks: LiveRunner, dtype: torch.dtype) -> None:
    item, sizes = dtype.itemsize, [8 + rank for rank in range(ranks.size)]
    batches = PerRank([torch.ones(b, I, dtype=dtype) for b in sizes])
    run = accounted(ranks, train, batches, 2)
    for rank, b in enumerate(sizes):
        account_of = run.holdings.of(rank)
        begin = [held for held in account_of if held.label == "backward begins"][-1]
        assert (begin.parameters, begin.gradients) == (P * item, 0)
        assert begin.buffers - P * item in TOLD, "the reducer keeps its bucket, as large as all gradients, beside them"
        assert begin.optimizer_state == 2 * P * item + 4 * 4  # and a step counter for each of four parameters
        assert begin.activations == b * (I + H + O) * item + 2 * item
        assert run.peak(rank, MODEL).nbytes == 4 * P * item + 16
        assert run.peak(rank, ["gradients"]).within in ("backward", "step")
        assert max(held.buffers for held in account_of if held.label.startswith("step")) - P * item in TOLD
    assert {one.name for one in run.trace.ranks[0].passes} == {"forward", "backward", "step"}


def test_an_account_changes_no_result(three: LiveRunner) -> None:
    batch = torch.randn(4, I)
    plain, watched = three.record(train, batch, 3), accounted(three, train, batch, 3)
    assert plain.results == watched.results
    assert plain.trace.bytes_sent() == watched.trace.bytes_sent()
    assert any("memory was accounted for" in note for note in watched.trace.meta.notes)
    assert plain.trace.ranks[0].account is None and not plain.trace.meta.notes


def shard_by_hand() -> None:
    """ZeRO stage 1 with SGD's momentum: whole gradients, of which each rank remembers and steps one share."""
    from kit.topics.zero.reference.by_hand import all_gather, flatten, reduce_scatter, unflatten

    torch.manual_seed(0)
    n, r = dist.get_world_size(), dist.get_rank()
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 32))
    parameters = list(model.parameters())
    momentum = torch.zeros_like(flatten(parameters, n)[r])
    model(torch.ones(4, 64)).square().mean().backward()
    with torch.no_grad():
        flat = flatten([p.grad for p in parameters], n)
        share = torch.empty_like(flat[r])
        reduce_scatter(share, flat).wait()
        momentum.mul_(0.9).add_(share / n)
        flat.copy_(flatten(parameters, n))
        flat[r].sub_(momentum, alpha=0.1)
        all_gather(flat, flat[r].clone()).wait()
        for p, new in zip(parameters, unflatten(flat, [p.shape for p in parameters]), strict=True):
            p.copy_(new)


def test_a_shard_by_hand_is_named_by_its_variable(ranks: LiveRunner) -> None:
    run = accounted(ranks, shard_by_hand, kinds={"optimizer state": "momentum"})
    size = -(-P // ranks.size)
    for rank in range(ranks.size):
        most = run.holdings.most(rank)
        assert (most["parameters"], most["gradients"], most["optimizer state"]) == (4 * P, 4 * P, 4 * size)
        # the flat buffer, this rank's share of the sum, and the copy handed to the gather
        assert most["communication buffers"] == 4 * (size * ranks.size + 2 * size)


def fails_after(count: int) -> None:
    kept = torch.zeros(count)
    raise RuntimeError(f"left with {kept.numel()}")


def test_what_a_failed_run_held_is_in_its_trace(three: LiveRunner, tmp_path: Path) -> None:
    with pytest.raises(RankError) as caught:
        accounted(three, fails_after, 1000)
    path = caught.value.trace.save(tmp_path / "failed.trace")
    assert [Trace.load(path).holdings().peak(rank).nbytes for rank in range(3)] == [4000] * 3


def test_kinds_that_there_are_not(three: LiveRunner) -> None:
    with pytest.raises(ValueError, match="no kind of memory 'momentum': choose from parameters, gradients"):
        accounted(three, shard_by_hand, kinds={"momentum": "momentum"})


def fully_sharded() -> None:
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Sequential(nn.Linear(64, 64), nn.ReLU()) for _ in range(4)))
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    for _ in range(2):
        model(torch.ones(4, 64)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def test_shards_inside_dtensors_and_the_layer_in_hand(three: LiveRunner) -> None:
    layer = 4 * (64 * 64 + 64)
    run = accounted(three, fully_sharded, world=2)
    for rank in range(2):
        step = [held for held in run.holdings.of(rank) if held.label == "step begins"][-1]
        assert (step.parameters, step.gradients) == (2 * layer, 2 * layer), "half of four layers"
        assert step.optimizer_state == 4 * layer + 4 * 8
        forward = [held for held in run.holdings.of(rank) if held.label == "addmm"]
        assert {held.parameters for held in forward} <= {3 * layer, 4 * layer}, "one layer is whole, or two"


def zero(stage: int) -> tuple[int, int, int]:
    """Bytes of (parameters, gradients, optimizer) by the reference's own account, between backward and step."""
    from kit.topics.zero.reference import ZeroStage1, ZeroStage2, ZeroStage3
    from tests.topics.zero.ranks.counts import nbytes

    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Sequential(nn.Linear(64, 64), nn.ReLU()) for _ in range(4)))
    sharded = {1: ZeroStage1, 2: ZeroStage2, 3: ZeroStage3}[stage](model)
    for _ in range(2):
        model(torch.ones(4, 64)).square().mean().backward()
        held = [nbytes(tensors) for tensors in sharded.tensors_held().values()]
        sharded.step()
        sharded.zero_grad()
    return held[0], held[1], held[2]


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_the_stages_of_zero_say_what_is_theirs(ranks: LiveRunner, stage: int) -> None:
    count, n = 4 * (64 * 64 + 64), ranks.size
    run = accounted(ranks, zero, stage)
    for rank, own in enumerate(run.results):
        over = [held for held in run.holdings.of(rank) if held.label == "backward ends"][-1]
        gone = 4 * 4 if stage == 3 else 0  # what stands for each of four layers' weights while they are away
        assert (over.parameters - gone, over.gradients, over.optimizer_state) == own
        whole = 4 * count, 4 * count, 8 * count
        ideal = [size if stage <= last else size / n for size, last in zip(whole, (2, 1, 0), strict=True)]
        for size, least in zip(own, ideal, strict=True):
            assert least <= size <= 1.01 * least + 4 * 8, "shares, and the padding of at most n-1 elements a buffer"


def several_micro_batches(stage: int) -> None:
    from kit.topics.zero.reference import ZeroStage1, ZeroStage2, ZeroStage3

    torch.manual_seed(0)
    model = nn.Linear(8, 8)
    sharded = {1: ZeroStage1, 2: ZeroStage2, 3: ZeroStage3}[stage](model)
    for _ in range(2):
        for _ in range(3):
            model(torch.ones(2, 8)).square().mean().backward()
        sharded.step()
        sharded.zero_grad()


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_a_step_of_zero_has_all_its_micro_batches(three: LiveRunner, stage: int) -> None:
    run = accounted(three, several_micro_batches, stage)
    for rank in run.trace.ranks:
        assert [one.name for one in rank.passes] == 2 * (3 * ["forward", "backward"] + ["step"])
        (_, first), (second, _) = steps(rank.passes)
        assert first < second
        assert sum(one.start >= second for one in rank.passes if one.name == "backward") == 3
