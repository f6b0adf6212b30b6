"""Ranks as threads of one process: the same values, messages, bytes and sentences as from processes."""

from __future__ import annotations

import os
import signal
import time

import pytest
import torch
import torch.distributed as dist

import kit
from kit.cluster.cluster import Cluster
from kit.cluster.processes import children
from kit.cost.worlds import simulated
from kit.parallel import traffic
from kit.parallel.collectives import halving_doubling_all_reduce, ring_all_reduce, tree_all_reduce
from kit.probe.wire import Channel
from kit.session import threads as threads_module
from kit.session.errors import RankError
from kit.session.links import set_links
from kit.session.threads import LABEL, Threads, threads_on

ALGORITHMS = {
    "ring_all_reduce": ring_all_reduce,
    "tree_all_reduce": tree_all_reduce,
    "halving_doubling_all_reduce": halving_doubling_all_reduce,
}


def threads(cluster: Cluster, ranks: int = 3, patience: float = 60.0) -> Threads:
    return threads_on(cluster, ranks, patience)


# -- large worlds


@pytest.mark.parametrize("ranks", [16, 32])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_large_worlds_send_what_theory_says(three: Cluster, name: str, ranks: int) -> None:
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
def test_a_program_returns_what_it_returns_on_processes(three: Cluster, program: object) -> None:
    on_processes, on_threads = three.record(program), threads(three).record(program)  # type: ignore[arg-type]
    assert repr(on_threads.results) == repr(on_processes.results)
    for rank in range(3):
        assert on_threads.trace.bytes_sent(rank).wire == on_processes.trace.bytes_sent(rank).wire
        assert names(on_threads, rank) == names(on_processes, rank)


def names(recording: object, rank: int) -> list[tuple[object, ...]]:
    operations = recording.trace.ranks[rank].operations  # type: ignore[attr-defined]
    return [(op.name, op.ranks, op.payload, op.root, op.reduce, op.place.line) for op in operations]


def train(steps: int) -> list[float]:
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(steps):
        optimizer.zero_grad()
        torch.manual_seed(step + dist.get_rank())
        model(torch.randn(4, 8)).square().mean().backward()
        optimizer.step()
    return [p.sum().item() for p in model.parameters()]


def test_ddp_trains_the_same(three: Cluster) -> None:
    first, *others = threads(three).record(train, 3).results
    assert others == [first, first]
    assert first == pytest.approx(three.record(train, 3).results[0], abs=1e-6)  # sums are added in another order


# -- what is handed in and what comes out


def spoken(x: torch.Tensor, *, times: int) -> float:
    print(f"I have {x.item() * times:g}")
    return x.item() * times


def test_arguments_differ_by_rank_and_output_says_whose_it_is(
    three: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    recording = threads(three, 4).record(spoken, kit.per_rank([torch.ones(1) * rank for rank in range(4)]), times=2)
    assert recording.results == [0.0, 2.0, 4.0, 6.0]
    assert capsys.readouterr().out.splitlines() == [f"[rank {rank}] I have {2 * rank}" for rank in range(4)]
    with pytest.raises(ValueError, match="per_rank holds 2 values, and there are 4 ranks"):
        threads(three, 4).record(spoken, kit.per_rank([1, 2]), times=1)


def test_it_is_labelled(three: Cluster) -> None:
    recording = threads(three).record(spoken, torch.ones(1), times=1)
    meta = recording.trace.meta
    assert (meta.world, meta.backend, meta.notes) == (3, "threads of one process", (LABEL,))
    assert repr(recording).startswith("spoken on 3 ranks (threads of one process)")
    with set_links(three, 1e-3):  # between processes; no link lies between threads
        assert threads(three).record(spoken, torch.ones(1), times=1).trace.meta.notes == (LABEL,)


# -- what goes wrong


def fails_on_one(rank: int) -> None:
    if dist.get_rank() == rank:
        raise LookupError("no batch")
    dist.all_reduce(torch.ones(1))


def all_send_first() -> None:
    x, n = torch.ones(1), dist.get_world_size()
    dist.send(x, (dist.get_rank() + 1) % n)
    dist.recv(x, (dist.get_rank() - 1) % n)


def one_stays_away() -> None:
    if dist.get_rank() != 1:
        dist.all_reduce(torch.ones(1))


def said(run: object, *arguments: object) -> str:
    with pytest.raises(RankError) as caught:
        run(*arguments)  # type: ignore[operator]
    return str(caught.value)


@pytest.mark.parametrize(("program", "arguments"), [(all_send_first, ()), (one_stays_away, ()), (fails_on_one, (1,))])
def test_the_sentences_are_those_of_processes(three: Cluster, program: object, arguments: tuple[object, ...]) -> None:
    sentences = said(threads(three).record, program, *arguments)
    assert sentences == said(three.record, program, *arguments)
    assert "Deadlock" in sentences


def test_a_failed_rank_shows_its_traceback_and_the_trace_what_was_done(three: Cluster) -> None:
    with pytest.raises(RankError) as caught:
        threads(three).record(fails_on_one, 2)
    assert "LookupError: no batch" in str(caught.value)
    assert 'raise LookupError("no batch")' in caught.value.__notes__[0]
    assert [len(rank.operations) for rank in caught.value.trace.ranks] == [1, 1, 0]


def disagrees() -> None:
    dist.all_reduce(torch.ones(2 if dist.get_rank() == 1 else 3))


def test_what_does_not_fit_is_said_before_anything_moves(three: Cluster) -> None:
    sentence = said(threads(three).record, disagrees)
    assert "rank 1 calls all_reduce of 2 x float32" in sentence and "the shapes must be equal" in sentence


def handles_it() -> str:
    try:
        disagrees()
    except RuntimeError as error:
        return type(error).__name__
    return "nothing"


def test_it_reaches_the_ranks_as_an_exception(three: Cluster) -> None:
    sentence = said(threads(three).record, handles_it)  # they go on; the record is not sound
    assert "the shapes must be equal" in sentence


def computes_for_ever() -> None:
    while dist.get_rank() == 1:
        pass
    dist.barrier()


def test_a_rank_that_never_comes_is_given_up(three: Cluster) -> None:
    sentence = said(threads(three, patience=0.5).record, computes_for_ever)
    assert "rank 1 has worked for 0.5 s without talking to another (line" in sentence
    assert "patience=600" in sentence


def kills_itself() -> None:
    dist.barrier()
    if dist.get_rank() == 2:
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_process_that_dies_takes_nobody_along(three: Cluster) -> None:
    before = three.record(whose_process).results
    assert "died" in said(threads(three).record, kills_itself)
    assert threads(three).record(spoken, torch.ones(1), times=1).results == [1.0] * 3
    assert three.record(whose_process).results == before


def whose_process() -> tuple[int, int]:
    return os.getpid(), os.getppid()


def only_ranks_are_left(cluster: Cluster) -> bool:
    """Of what the host agent has forked, as soon as it has heard of the end."""
    found = cluster.record(whose_process).results
    ranks, agent, deadline = {pid for pid, _ in found}, found[0][1], time.monotonic() + 10
    while not set(children(agent)) <= ranks and time.monotonic() < deadline:
        time.sleep(0.01)
    return set(children(agent)) <= ranks


def test_nothing_is_left_and_this_process_is_untouched(three: Cluster) -> None:
    ((process, agent), *others) = threads(three).record(whose_process).results
    assert set(others) == {(process, agent)}
    assert process not in (os.getpid(), *(pid for pid, _ in three.record(whose_process).results))
    assert agent == three.record(whose_process).results[0][1]
    assert only_ranks_are_left(three)
    assert not list(three.folder.glob("t*.sock"))


def test_an_interruption_ends_it(three: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted(Channel):
        def receive(self) -> None:
            assert super().receive() == {"kind": "alive"}
            raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(threads_module, "Channel", Interrupted)
        threads(three).record(computes_for_ever)
    assert only_ranks_are_left(three)


def cannot_load() -> None:
    import no_such_module  # type: ignore[import-not-found]  # noqa: F401


def test_an_import_that_fails_is_the_ranks_failure(three: Cluster) -> None:
    assert "No module named 'no_such_module'" in said(threads(three).record, cannot_load)


@pytest.mark.parametrize(
    ("wishes", "words"),
    [
        ({"ranks": 0}, "ranks is a whole number from 1 to 128, not 0"),
        ({"ranks": 1000}, "from 1 to 128"),
        ({"ranks": 2.0}, "from 1 to 128"),
        ({"patience": 0}, "patience is a time in seconds"),
    ],
)
def test_what_cannot_be_says_what_can(three: Cluster, wishes: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        threads(three, **wishes)  # type: ignore[arg-type]


def test_one_rank_alone(three: Cluster) -> None:
    assert threads(three, 1).record(ring_all_reduce, torch.ones(3)).results[0].tolist() == [1.0, 1.0, 1.0]
