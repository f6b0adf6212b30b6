"""Code that knows nothing of Lockstep steps to its end with the results it has anywhere else."""

from __future__ import annotations

import os
import re
import signal
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.utils._pytree import tree_leaves
from torch.utils.data import DataLoader, Dataset

import kit
from kit.run.errors import RankError
from kit.run.live import LiveRunner
from tests import gloo
from tests.ranks import foreign, foreign_training
from tests.ranks.modules import layers

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


@pytest.fixture(scope="module")
def plain() -> Iterator[gloo.World]:
    """Two ranks that are torch's and nobody else's."""
    with gloo.world(2) as ranks:
        yield ranks


# Plain gloo does not coalesce, and fails from then on.
PLAIN = [function for function in foreign.EVERY if function is not foreign.coalesced_messages]
ALIKE = [*PLAIN, *foreign_training.EVERY, *foreign_training.WITH_A_FOLDER]


@pytest.mark.parametrize("function", ALIKE, ids=lambda f: f.__name__)
def test_results_are_those_of_plain_ranks_bit_by_bit(
    plain: gloo.World, cluster_of: Callable[[int], LiveRunner], tmp_path: Path, function: Callable[..., Any]
) -> None:
    two = cluster_of(2)
    folder = [str(tmp_path)] if function in foreign_training.WITH_A_FOLDER else []
    wanted = plain.run(function, *folder)
    session = two.step(function, *folder)
    session.finish(timeout=120)
    for ours in (session.results, two.record(function, *folder).results):
        _same(ours, wanted)


def _same(ours: Any, wanted: Any) -> None:
    ours, wanted = tree_leaves(ours), tree_leaves(wanted)
    assert len(ours) == len(wanted) > 0
    for one, other in zip(ours, wanted, strict=True):
        assert torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other, (one, other)


# -- sentences


def warns() -> None:
    warnings.warn("mine", stacklevel=1)
    DataLoader([1, 2, 3], num_workers=1000)  # type: ignore[arg-type]


def handles_signals() -> None:
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)


def fails_elsewhere() -> None:
    layers.summed(torch.ones(1))


def returns_a_wrapped_model() -> Any:
    return nn.parallel.DistributedDataParallel(small())


def test_what_is_said_of_another_file_names_it(three: LiveRunner) -> None:
    mine, torchs = (part.text for part in three.record(warns).trace.ranks[0].output)
    assert mine.startswith(f"line {warns.__code__.co_firstlineno + 1}: UserWarning: mine")
    assert re.match(r"line \d+ of dataloader.py: UserWarning: This DataLoader will create 1000", torchs)
    line = layers.summed.__code__.co_firstlineno + 1
    with pytest.raises(RankError, match=f"rank 0 failed at line {line} of layers.py: AttributeError"):
        three.record(fails_elsewhere)


def test_errors_say_what_to_do_here(three: LiveRunner) -> None:
    with pytest.raises(RankError, match="signal only works in main thread .*: a rank's function runs in another"):
        three.record(handles_signals)
    with pytest.raises(ValueError, match=r"of no use outside its ranks .* return tensors or plain data"):
        print(three.record(returns_a_wrapped_model).results)


@dataclass
class Settings:
    width: int


def makes_settings() -> int:
    return Settings(3).width


def test_code_that_dataclasses_write_is_no_source_to_be_missed(three: LiveRunner) -> None:
    recording = three.record(makes_settings)
    assert recording.results == [3, 3, 3] and recording.trace.meta.notes == ()


def told_by_launchers() -> tuple[str, bool]:
    return os.environ["GROUP_RANK"], dist.is_torchelastic_launched()


def test_the_environment_is_that_of_torchrun(three: LiveRunner) -> None:
    assert three.record(told_by_launchers).results == [("0", True)] * 3


# -- processes that ranks start


class Numbers(Dataset[float]):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> float:
        doubled = 2.0 * index
        return doubled


def loads_with_workers() -> float:
    loader = DataLoader(Numbers(), batch_size=2, num_workers=1, persistent_workers=True)
    total = torch.zeros(1)
    for _ in range(2):
        for numbers in loader:
            total += numbers.sum()
    dist.all_reduce(total)
    return float(total)


def test_workers_of_a_loader_are_not_stepped_and_keep_nobody(cluster_of: Callable[[int], LiveRunner]) -> None:
    two = cluster_of(2)
    session = two.step(loads_with_workers)
    while session.live:
        state = session.step()
        assert not any(rank.place and rank.place.function == "__getitem__" for rank in state), str(state)
    assert session.results == two.record(loads_with_workers).results == [48.0, 48.0]


# -- compiled code


def compiles() -> tuple[int, list[torch.Tensor]]:
    from torch._dynamo.utils import counters

    def doubled(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        return y + 1

    counters.clear()
    compiled = torch.compile(doubled, backend="eager")
    x = compiled(torch.ones(3))
    y = compiled(x)
    return counters["frames"]["ok"], [x, y]


def test_a_compiled_function_is_one_stop_and_compiled(cluster_of: Callable[[int], LiveRunner]) -> None:
    session = cluster_of(2).step(compiles)
    places = set()
    while session.live:
        places |= {(state.place.function, state.phase) for state in session.step() if state.place}
    assert {function for function, _ in places} == {"compiles"}
    for frames, (x, y) in session.results:
        assert (frames, x.tolist(), y.tolist()) == (1, [3.0] * 3, [7.0] * 3)
