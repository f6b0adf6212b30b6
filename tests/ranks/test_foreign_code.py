"""Code that knows nothing of Lockstep steps to its end with the results it has anywhere else."""

from __future__ import annotations

import os

import pytest
import torch
import torch.distributed as dist
from torch import nn

import kit
from kit.run.live import LiveRunner

STEPS = 5


def small() -> nn.Sequential:
    torch.manual_seed(7)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))


def batch(rank: int, step: int) -> torch.Tensor:
    return torch.randn(4, 8, generator=torch.Generator().manual_seed(100 * rank + step))


def train_alone(world: int) -> list[torch.Tensor]:
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(STEPS):
        optimizer.zero_grad()
        whole = torch.cat([batch(rank, step) for rank in range(world)])
        model(whole).square().mean().backward()
        optimizer.step()
    return [p.detach() for p in model.parameters()]


def train_with_ddp() -> list[torch.Tensor]:
    from torch.nn.parallel import DistributedDataParallel

    model = DistributedDataParallel(small(), bucket_cap_mb=0.0005)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = model(batch(dist.get_rank(), step)).square().mean()
        loss.backward()
        optimizer.step()
    return [p.detach() for p in model.parameters()]


def train_with_fsdp2() -> list[torch.Tensor]:
    from torch.distributed.fsdp import fully_shard

    model = small()
    fully_shard(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = model(batch(dist.get_rank(), step)).square().mean()
        loss.backward()
        optimizer.step()
    return [p.full_tensor().detach() for p in model.parameters()]


def set_up(rank: int, world_size: int) -> None:
    os.environ["MASTER_ADDR"] = "localhost"
    os.environ["MASTER_PORT"] = "15623"
    dist.init_process_group("gloo", rank=rank, world_size=world_size)


def lecture_collectives(rank: int, world_size: int) -> tuple[list[float], list[float], str]:
    """A script's shape: init, barrier, all-reduce, reduce-scatter, all-gather, destroy."""
    set_up(rank, world_size)
    dist.barrier()
    data = torch.arange(4.0) + rank
    dist.all_reduce(tensor=data, op=dist.ReduceOp.SUM, async_op=False)
    mine = torch.empty(1)
    dist.reduce_scatter_tensor(mine, torch.arange(float(world_size)) + rank)
    gathered = torch.empty(world_size)
    dist.all_gather_into_tensor(gathered, mine)
    backend = dist.get_backend()
    dist.destroy_process_group()
    return data.tolist(), gathered.tolist(), backend


def lecture_data_parallel(rank: int, world_size: int, data: torch.Tensor) -> list[torch.Tensor]:
    """Gradients averaged by hand in a loop over parameters, on this rank's slice of the batch."""
    set_up(rank, world_size)
    local = data.chunk(world_size)[rank]
    torch.manual_seed(0)
    weights = [nn.Parameter(torch.randn(8, 8) / 8) for _ in range(3)]
    optimizer = torch.optim.AdamW(weights, lr=1e-2)
    for _ in range(3):
        optimizer.zero_grad()
        x = local
        for weight in weights:
            x = torch.nn.functional.gelu(x @ weight)
        x.square().mean().backward()
        for weight in weights:
            dist.all_reduce(tensor=weight.grad, op=dist.ReduceOp.AVG, async_op=False)
        optimizer.step()
    dist.destroy_process_group()
    return [w.detach() for w in weights]


def lecture_pipeline(rank: int, world_size: int, data: torch.Tensor) -> torch.Tensor | None:
    """A layer per rank, activations passed on by send and receive, a micro-batch at a time."""
    set_up(rank, world_size)
    torch.manual_seed(rank)
    weight = torch.randn(8, 8) / 8
    outputs = []
    for micro in data.chunk(2):
        x = micro
        if rank > 0:
            x = torch.empty_like(micro)
            dist.recv(x, src=rank - 1)
        x = torch.relu(x @ weight)
        if rank < world_size - 1:
            dist.send(x, dst=rank + 1)
        else:
            outputs.append(x)
    dist.destroy_process_group()
    return torch.cat(outputs) if outputs else None


@pytest.mark.parametrize("train", [train_with_ddp, train_with_fsdp2], ids=["DDP", "FSDP2"])
def test_training_loops_step_to_their_end_and_equal_serial_training(ranks: LiveRunner, train: object) -> None:
    session = ranks.step(train)
    while session.live:
        session.step()
    wanted = train_alone(ranks.size)
    for result in session.results:
        for ours, alone in zip(result, wanted, strict=True):
            torch.testing.assert_close(ours, alone)  # float32 sums in another order: assert_close's own tolerance
    assert len(session.trace.positions) > 4 * STEPS
    names = {op.name for op in session.trace.ranks[0].operations}
    sharded = {"all_gather", "reduce_scatter"} if ranks.size > 1 else set()  # a rank alone gathers nothing
    assert names >= ({"all_reduce"} if train is train_with_ddp else sharded)


def test_buckets_can_be_stepped_one_by_one(three: LiveRunner) -> None:
    session = three.step(train_with_ddp)
    seen = []
    while session.live:
        session.to_collective()
        stop = session.trace.stop(0, session.position)
        if stop.about_to:
            seen.append(stop.about_to)
    assert seen.count("all_reduce") == STEPS, "the model fits one bucket, reduced once a step from inside backward"


def test_code_that_makes_and_ends_its_own_group(ranks: LiveRunner) -> None:
    n = ranks.size
    session = ranks.step(lecture_collectives, kit.per_rank(list(range(n))), n)
    while session.live:
        session.step()
    shift = sum(range(n))
    summed = [n * i + shift for i in range(4)]
    scattered = [n * r + shift for r in range(n)]
    assert session.results == [(summed, scattered, "gloo")] * n
    assert session.trace.ranks[0].operations[0].name == "init_process_group"
    again = ranks.record(lecture_collectives, kit.per_rank(list(range(n))), n)
    assert again.results == session.results


def test_gradients_averaged_by_hand(ranks: LiveRunner) -> None:
    data = torch.randn(12, 8, generator=torch.Generator().manual_seed(1))
    n = ranks.size
    if 12 % n:
        pytest.skip("the function cuts the batch evenly, as its kind does")
    session = ranks.step(lecture_data_parallel, kit.per_rank(list(range(n))), n, data)
    session.finish()
    (alone,) = kit.options(ranks=1, cluster=ranks).record(lecture_data_parallel, 0, 1, data).results
    for result in session.results:
        for ours, serial in zip(result, alone, strict=True):
            torch.testing.assert_close(ours, serial, rtol=1e-4, atol=1e-5)  # AdamW divides by small moments


def test_a_pipeline_by_send_and_receive(ranks: LiveRunner) -> None:
    data = torch.randn(6, 8, generator=torch.Generator().manual_seed(2))
    n = ranks.size
    session = ranks.step(lecture_pipeline, kit.per_rank(list(range(n))), n, data)
    while session.live:
        session.step()
    wanted = data
    for rank in range(n):
        weight = torch.randn(8, 8, generator=torch.Generator().manual_seed(rank)) / 8
        wanted = torch.relu(wanted @ weight)
    torch.testing.assert_close(session.results[-1], wanted)


def test_a_group_called_with_the_wrong_rank_says_so(three: LiveRunner) -> None:
    state = three.step(lecture_collectives, 0, 3).finish()
    assert "this is rank 1 of 3: take them from the environment" in str(state[1])
