"""Ranks as threads of one process: the same values, messages, bytes and sentences as from processes."""

from __future__ import annotations

import os

import pytest
import torch
import torch.distributed as dist

import kit
from kit.cost.worlds import simulated
from kit.run.live import LiveRunner
from kit.run.options import Options
from kit.run.threads import LABEL
from kit.topics.collectives.reference import halving_doubling_all_reduce, ring_all_reduce, tree_all_reduce
from tests.topics.collectives import traffic
from tests.topics.data_parallel.ranks.training import train_anywhere

ALGORITHMS = {
    "ring_all_reduce": ring_all_reduce,
    "tree_all_reduce": tree_all_reduce,
    "halving_doubling_all_reduce": halving_doubling_all_reduce,
}


def threads(cluster: LiveRunner, ranks: int = 3, patience: float = 60.0) -> Options:
    return Options(ranks=ranks, threads=True, patience=patience, cluster=cluster)


# -- large worlds


@pytest.mark.parametrize("ranks", [16, 32])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_large_worlds_send_what_theory_says(three: LiveRunner, name: str, ranks: int) -> None:
    count = 1000  # which does not divide by either
    inputs = kit.per_rank([torch.full((count,), float(rank)) for rank in range(ranks)])
    recording = threads(three, ranks).record(ALGORITHMS[name], inputs)

    assert len(recording.results) == ranks
    assert all(torch.equal(x, torch.full((count,), ranks * (ranks - 1) / 2)) for x in recording.results)
    loads = [getattr(traffic, name)(ranks, rank, count) for rank in range(ranks)]
    world = simulated(name, ranks, 4 * count, latency=1e-5, bandwidth=1e9)
    trace = recording.trace
    assert len(trace.messages()) == world.messages == sum(load.sent for load in loads)
    sent = [trace.bytes_sent(rank).wire for rank in range(ranks)]
    assert sent == [load.bytes_sent for load in loads] == world.bytes_sent.tolist()
    received = [trace.bytes_received(rank).wire for rank in range(ranks)]
    assert received == [load.bytes_received for load in loads] == world.bytes_received.tolist()


# -- the same program on processes and on threads


def every_collective() -> list[object]:
    me, n = dist.get_rank(), dist.get_world_size()
    mine = torch.tensor([1.0, 2.0]) * 10**me
    found: list[object] = []
    for op in (dist.ReduceOp.SUM, dist.ReduceOp.PRODUCT, dist.ReduceOp.MIN, dist.ReduceOp.MAX):
        x = mine.clone()
        dist.all_reduce(x, op)
        found.append(x)
    bits = torch.tensor([1 << me, 3])
    dist.all_reduce(bits, dist.ReduceOp.BOR)
    half = mine.bfloat16()
    dist.all_reduce(half)
    told = mine.clone()
    dist.broadcast(told, src=1)
    total = mine.clone()
    dist.reduce(total, dst=2)
    parts = [torch.empty(2) for _ in range(n)]
    dist.all_gather(parts, mine)
    whole = torch.empty(2 * n)
    dist.all_gather_into_tensor(whole, mine)
    at_root = [torch.empty(2) for _ in range(n)] if me == 0 else None
    dist.gather(mine, at_root, dst=0)
    piece = torch.empty(2)
    dist.scatter(piece, [mine * to for to in range(n)] if me == 1 else None, src=1)
    share = torch.empty(1)
    dist.reduce_scatter(share, [mine[:1] * to for to in range(n)])
    other = torch.empty(2)
    dist.reduce_scatter_tensor(other, torch.arange(2.0 * n) * (me + 1))
    mail = [torch.empty(2) for _ in range(n)]
    dist.all_to_all(mail, [torch.full((2,), 10.0 * me + to) for to in range(n)])
    even = torch.empty(n)
    dist.all_to_all_single(even, torch.arange(float(n)) + 10 * me)
    rows = torch.empty(n * (me + 1), 2)
    dist.all_to_all_single(
        rows, torch.arange(12.0).view(6, 2) + 100 * me, output_split_sizes=[me + 1] * n, input_split_sizes=[1, 2, 3]
    )
    objects: list[object] = [None] * n
    dist.all_gather_object(objects, {"rank": me})
    dist.barrier()
    reduced = total if me == 2 else None
    found += [bits, half, told, reduced, parts, whole, at_root, piece, share, other, mail, even, rows, objects]
    return found


def every_message() -> list[object]:
    me, n = dist.get_rank(), dist.get_world_size()
    right, left = (me + 1) % n, (me - 1) % n
    inbox = torch.zeros(2, 2)
    works = [dist.isend(torch.full((4,), float(me)), right), dist.irecv(inbox, left)]
    for work in works:
        assert work is not None
        work.wait()
    batched = torch.zeros(1)
    pair = [dist.P2POp(dist.isend, torch.ones(1) * me, left), dist.P2POp(dist.irecv, batched, right)]
    for work in dist.batch_isend_irecv(pair):
        work.wait()
    tagged = [torch.zeros(1), torch.zeros(1)]
    if me == 0:
        late = [dist.isend(torch.ones(1) * tag, 1, tag=tag) for tag in (1, 2)]
        for work in late:
            assert work is not None
            work.wait()
    elif me == 1:
        dist.recv(tagged[0], 0, tag=2)
        dist.recv(tagged[1], 0, tag=1)
    sources: list[int] = []
    if me == 0:
        for _ in range(n - 1):
            source = dist.recv(batched)
            assert source == batched.item()
            sources.append(source)
    else:
        dist.send(torch.ones(1) * me, 0)
    return [inbox, tagged, sorted(sources)]


def groups_and_waits() -> list[object]:
    me = dist.get_rank()
    low, high = dist.new_group([0, 1]), dist.new_group([1, 2])
    found: list[object] = [dist.get_world_size(), dist.get_backend(), dist.get_process_group_ranks(low)]
    for group, members in ((low, [0, 1]), (high, [1, 2])):
        if me in members:
            x = torch.ones(1) * (me + 1)
            dist.all_reduce(x, group=group)
            found += [x, dist.get_rank(group), ring_all_reduce(x, group)]
    work = dist.all_reduce(torch.ones(1), async_op=True)
    while not work.is_completed():
        pass
    promised = dist.all_reduce(torch.ones(1) * me, async_op=True)
    found.append(promised.get_future().wait())
    return found


def own_randomness() -> list[object]:
    """Drawn in turns with the others, who draw from the same generators of the process."""
    import random

    import numpy as np

    me = dist.get_rank()
    torch.manual_seed(me)
    np.random.seed(me)
    random.seed(me)
    drawn: list[object] = []
    for _ in range(3):
        drawn += [torch.rand(2), float(np.random.rand()), random.random(), os.environ["RANK"], os.environ["WORLD_SIZE"]]
        dist.barrier()
    return drawn


def script_of_its_own() -> list[object]:
    dist.destroy_process_group()
    dist.init_process_group("gloo")
    x = torch.ones(1)
    dist.all_reduce(x)
    dist.destroy_process_group()
    return [x, dist.is_initialized()]


@pytest.mark.parametrize(
    "program", [every_collective, every_message, groups_and_waits, own_randomness, script_of_its_own]
)
def test_a_program_returns_what_it_returns_on_processes(three: LiveRunner, program: object) -> None:
    on_processes, on_threads = three.record(program), threads(three).record(program)  # type: ignore[arg-type]
    assert repr(on_threads.results) == repr(on_processes.results)
    for rank in range(3):
        assert on_threads.trace.bytes_sent(rank).wire == on_processes.trace.bytes_sent(rank).wire
        assert names(on_threads, rank) == names(on_processes, rank)


def names(recording: object, rank: int) -> list[tuple[object, ...]]:
    operations = recording.trace.ranks[rank].operations  # type: ignore[attr-defined]
    return [(op.name, op.ranks, op.payload, op.root, op.reduce, op.place.line) for op in operations]


def test_ddp_trains_the_same(three: LiveRunner) -> None:
    first, *others = threads(three).record(train_anywhere, 3).results
    assert others == [first, first]
    assert first == pytest.approx(
        three.record(train_anywhere, 3).results[0], abs=1e-6
    )  # sums are added in another order


# -- what is handed in and what comes out


def spoken(x: torch.Tensor, *, times: int) -> float:
    print(f"I have {x.item() * times:g}")
    return x.item() * times


def test_arguments_differ_by_rank_and_output_says_whose_it_is(
    three: LiveRunner, capsys: pytest.CaptureFixture[str]
) -> None:
    recording = threads(three, 4).record(spoken, kit.per_rank([torch.ones(1) * rank for rank in range(4)]), times=2)
    assert recording.results == [0.0, 2.0, 4.0, 6.0]
    assert capsys.readouterr().out.splitlines() == [f"[rank {rank}] I have {2 * rank}" for rank in range(4)]
    with pytest.raises(ValueError, match="per_rank holds 2 values, and there are 4 ranks"):
        threads(three, 4).record(spoken, kit.per_rank([1, 2]), times=1)


def test_it_is_labelled(three: LiveRunner) -> None:
    recording = threads(three).record(spoken, torch.ones(1), times=1)
    meta = recording.trace.meta
    assert (meta.world, meta.backend, meta.notes) == (3, "threads of one process", (LABEL,))
    assert repr(recording).startswith("spoken on 3 ranks (threads of one process)")
    with three.link(1e-3):  # between processes; no link lies between threads
        assert threads(three).record(spoken, torch.ones(1), times=1).trace.meta.notes == (LABEL,)


# -- what each rank has for itself


class Box:
    rank = -1


LAST = -1


def keeps_its_number() -> tuple[object, ...]:
    global LAST
    Box.rank = LAST = dist.get_rank()
    os.environ["KEPT"] = str(Box.rank)
    os.chdir("/" if Box.rank else "/usr")
    dist.barrier()
    return Box.rank, LAST, os.environ["KEPT"], os.getcwd()


def test_classes_globals_environment_and_folder_are_each_ranks_own(three: LiveRunner) -> None:
    wanted = [(rank, rank, str(rank), "/" if rank else "/usr") for rank in range(3)]
    assert threads(three).record(keeps_its_number).results == wanted == three.record(keeps_its_number).results
