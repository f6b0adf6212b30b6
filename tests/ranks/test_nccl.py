"""What NCCL does differently, on groups that have its manners: what is recorded or stepped is none the worse for it."""

from __future__ import annotations

import _thread
import gc
import re
import sys
import time
from collections import deque
from collections.abc import Callable
from operator import methodcaller

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import kit
from kit.run.live import LiveRunner

pytestmark = pytest.mark.timeout(120)
SUM = [0.0, 3.0, 6.0]  # of three times 0, 1, 2


@pytest.fixture
def ranks(three_on_nccl: LiveRunner) -> LiveRunner:
    return three_on_nccl


def blocking(x: torch.Tensor) -> torch.Tensor:
    dist.all_reduce(x)
    return x


def waited_for(x: torch.Tensor) -> torch.Tensor:
    work = dist.all_reduce(x, async_op=True)
    assert work is not None
    work.wait()
    return x


def by_future(x: torch.Tensor) -> torch.Tensor:
    dist.all_reduce(x, async_op=True).get_future().wait()
    return x


def never_waited_for(x: torch.Tensor) -> torch.Tensor:
    dist.all_reduce(x, async_op=True)
    return x


@pytest.mark.parametrize("function", [blocking, waited_for, by_future, never_waited_for], ids=lambda f: f.__name__)
def test_a_sum_is_complete_and_its_end_is_known(ranks: LiveRunner, function: Callable[..., torch.Tensor]) -> None:
    recording = ranks.record(function, torch.arange(3.0))
    assert [result.tolist() for result in recording.results] == [SUM] * 3
    for rank in recording.trace.ranks:
        (operation,) = rank.operations
        assert operation.ended is not None and operation.ended > operation.issued
    assert all(rank.clock_error > 0 for rank in recording.trace.ranks), "no clock is exact, and each says how exact"


def to_the_next(x: torch.Tensor) -> torch.Tensor:
    rank, n = dist.get_rank(), dist.get_world_size()
    taken = torch.empty_like(x)
    sent = dist.isend(x, (rank + 1) % n)
    dist.recv(taken, (rank - 1) % n)
    sent.wait()
    return taken


def receives_first(x: torch.Tensor) -> torch.Tensor:
    rank, n = dist.get_rank(), dist.get_world_size()
    taken = torch.empty_like(x)
    received = dist.irecv(taken, (rank - 1) % n)
    sent = dist.isend(x, (rank + 1) % n)
    received.wait()
    sent.wait()
    return taken


def in_a_batch(x: torch.Tensor) -> torch.Tensor:
    rank, n = dist.get_rank(), dist.get_world_size()
    taken = torch.empty_like(x)
    messages = [dist.P2POp(dist.irecv, taken, (rank - 1) % n), dist.P2POp(dist.isend, x, (rank + 1) % n)]
    for work in dist.batch_isend_irecv(messages):
        work.wait()
    return taken


def nobody_waits(x: torch.Tensor) -> torch.Tensor:
    rank, n = dist.get_rank(), dist.get_world_size()
    taken = torch.empty_like(x)
    dist.isend(x, (rank + 1) % n)
    dist.irecv(taken, (rank - 1) % n)
    return taken


@pytest.mark.parametrize("function", [to_the_next, receives_first, in_a_batch, nobody_waits], ids=lambda f: f.__name__)
def test_messages_in_a_circle_pass(ranks: LiveRunner, function: Callable[..., torch.Tensor]) -> None:
    recording = ranks.record(function, kit.per_rank([torch.full((2,), float(rank)) for rank in range(3)]))
    assert [result.tolist() for result in recording.results] == [[2.0, 2.0], [0.0, 0.0], [1.0, 1.0]]
    assert all(operation.ended is not None for rank in recording.trace.ranks for operation in rank.operations)


def waits_for_the_answer(x: torch.Tensor) -> torch.Tensor:
    there, back, rank = dist.new_group([0, 1]), dist.new_group([0, 1]), dist.get_rank()
    taken = torch.empty_like(x)
    if rank < 2:
        coming = dist.irecv(taken, 1 - rank, group=(back, there)[rank])
    dist.barrier()  # before which all go that were held
    if rank == 0:
        dist.isend(x, 1, group=there)
    if rank < 2:
        coming.wait()
    if rank == 1:
        dist.isend(taken + 1, 0, group=back)
    return taken


def test_a_message_goes_when_another_is_waited_for_that_went_before(ranks: LiveRunner) -> None:
    recording = ranks.record(waits_for_the_answer, torch.ones(2))
    assert [result.tolist() for result in recording.results[:2]] == [[2.0, 2.0], [1.0, 1.0]]


def test_stepping_passes_messages_in_a_circle(ranks: LiveRunner) -> None:
    session = ranks.step(receives_first, kit.per_rank([torch.full((2,), float(rank)) for rank in range(3)]))
    session.finish()
    assert [result.tolist() for result in session.results] == [[2.0, 2.0], [0.0, 0.0], [1.0, 1.0]]


def leaves(x: torch.Tensor) -> float:
    if dist.get_rank() == 1:
        return 0.0
    dist.all_reduce(x)
    return float(x[0])


def leaves_unseen(x: torch.Tensor) -> None:
    if dist.get_rank() != 1:
        dist.all_reduce(x, async_op=True)


def leaves_before_a_message(x: torch.Tensor) -> None:
    if dist.get_rank() == 0:
        dist.recv(x, 1)


@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        (leaves, "ranks 0, 2 wait in all_reduce (line {}); rank 1 finished without it"),
        (leaves_unseen, "ranks 0, 2 wait in all_reduce (line {}); rank 1 finished without it"),
        (leaves_before_a_message, "rank 0 waits in recv from rank 1 (line {}); rank 1 finished without it"),
    ],
    ids=["whose host waits for the device", "whose host has ended", "in a message"],
)
def test_a_hang_gets_its_sentence(ranks: LiveRunner, function: Callable[..., object], sentence: str) -> None:
    with pytest.raises(kit.RankError) as raised:
        ranks.record(function, torch.ones(1))
    operation = next(op for op in raised.value.trace.ranks[0].operations)
    assert operation.place is not None
    assert sentence.format(operation.place.line) in str(raised.value)


def connected() -> list[str]:
    """Communicators of this rank that are connected before any operation."""
    from tests.manners.group import log

    return list(log.connected)


def watched_by_nccl() -> list[str | None]:
    import os

    return [os.environ.get(name) for name in ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "TORCH_NCCL_ENABLE_MONITORING")]


def test_nccl_ends_no_rank_because_another_died_or_a_person_thinks(ranks: LiveRunner) -> None:
    assert ranks.record(watched_by_nccl).results == [["0", "0"]] * 3


def lets_a_group_go() -> list[str]:
    from tests.manners.group import log

    group = dist.new_group([0, 1])
    if dist.get_rank() < 2:
        dist.destroy_process_group(group)
    del group
    gc.collect()
    return list(log.forgotten)


def test_groups_are_connected_before_the_first_operation_and_shut_down_after_the_last(ranks: LiveRunner) -> None:
    ranks.reset()
    assert all("0/all" in names for names in ranks.record(connected).results)
    assert ranks.record(lets_a_group_go).results == [[], [], []]


def trained() -> list[float]:
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(3, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(3):
        loss = model(torch.full((2, 3), float(dist.get_rank()))).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss))
    return losses


def test_distributed_data_parallel_shows_its_communication(ranks: LiveRunner) -> None:
    recording = ranks.record(trained)
    buckets = [op for op in recording.trace.ranks[0].operations if op.name == "all_reduce"]
    assert len(buckets) == 3 and all(op.ended is not None and op.ended > op.issued for op in buckets)


def from_threads_of_c(names: list[str]) -> list[str]:
    """Calls methods of the group, and waits, as autograd's threads of a GPU do: with no frame of Python underneath."""
    group, n = dist.group.WORLD, dist.get_world_size()
    one, all_of_them = torch.ones(2), torch.zeros(2 * n)
    arguments = {
        "broadcast": ([one],),
        "allreduce": ([one],),
        "allreduce_coalesced": ([one],),
        "reduce": (one, 0),
        "allgather": ([list(all_of_them.chunk(n))], [one]),
        "_allgather_base": (all_of_them, one),
        "_reduce_scatter_base": (one, all_of_them),
        "alltoall_base": (all_of_them, torch.ones(2 * n), [], []),
        "gather": ([list(all_of_them.chunk(n))] if dist.get_rank() == 0 else [], [one], dist.GatherOptions()),
        "scatter": ([one], [list(all_of_them.chunk(n))] if dist.get_rank() == 0 else [], dist.ScatterOptions()),
        "barrier": (dist.BarrierOptions(),),
    }
    failed: list[str] = []
    before, sys.unraisablehook = sys.unraisablehook, lambda why: failed.append(f"{name}: {why.exc_value!r}")
    try:
        for name in names:
            done = deque[object]()
            works = map(getattr(group, name), *([argument] for argument in arguments[name]))
            _thread.start_new_thread(done.extend, (map(methodcaller("wait"), works),))
            while not done and not failed:
                time.sleep(0.001)
    finally:
        sys.unraisablehook = before
    return failed


CALLED = (
    ["broadcast", "allreduce", "allreduce_coalesced", "reduce", "allgather", "_allgather_base"],
    ["_reduce_scatter_base", "alltoall_base", "gather", "scatter", "barrier"],
)


@pytest.mark.parametrize("names", CALLED, ids=["first", "second"])
def test_threads_without_a_frame_of_python_may_communicate(ranks: LiveRunner, names: list[str]) -> None:
    recording = ranks.record(from_threads_of_c, names)
    assert recording.results == [[], [], []]
    for operation in recording.trace.ranks[0].operations:
        assert operation.place is not None and operation.place.function == "from_threads_of_c"


def test_stepping_sees_threads_without_a_frame_of_python(ranks: LiveRunner) -> None:
    session = ranks.step(from_threads_of_c, ["allreduce", "barrier"])
    session.finish()
    assert session.results == [[], [], []]


def from_whoever_comes(x: torch.Tensor) -> None:
    if dist.get_rank() == 0:
        dist.recv(x)
    elif dist.get_rank() == 1:
        dist.send(x, 0)


def with_a_tag(x: torch.Tensor) -> None:
    if dist.get_rank() == 0:
        dist.recv(x, 1, tag=7)
    elif dist.get_rank() == 1:
        dist.send(x, 0, tag=7)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (from_whoever_comes, "nccl receives from a rank that is named: dist.recv(x, src=...)"),
        (with_a_tag, "nccl knows no tags"),
    ],
    ids=["any source", "a tag"],
)
def test_what_nccl_cannot_do_is_refused_in_words(
    ranks: LiveRunner, function: Callable[[torch.Tensor], None], words: str
) -> None:
    with pytest.raises(kit.RankError, match=re.escape(words)):
        ranks.record(function, torch.ones(1))


@pytest.mark.parametrize("function", [from_whoever_comes, with_a_tag], ids=["any source", "a tag"])
def test_stepping_does_it_and_says_that_nccl_would_not(
    ranks: LiveRunner, function: Callable[[torch.Tensor], None]
) -> None:
    session = ranks.step(function, torch.ones(1))
    session.finish()
    said = "".join(text for stop in session.trace.ranks[0].stops for text in map(str, stop.output))
    assert "nccl" in said


def overlaps(x: torch.Tensor) -> float:
    """One sum under way while something else is asked of the same stream."""
    work = dist.all_reduce(x, async_op=True)
    assert work is not None
    issued = work.is_completed()
    work.wait()
    return float(x[0]) + 10 * issued


def test_a_slow_link_holds_the_host_no_longer_than_the_message_and_its_end_is_real(ranks: LiveRunner) -> None:
    latency = 0.02
    with ranks.link(latency, 1e9):
        recording = ranks.record(overlaps, torch.ones(2))
    assert recording.results == [3.0, 3.0, 3.0]
    for rank in recording.trace.ranks:
        (operation,) = rank.operations
        assert operation.ended is not None and operation.ended - operation.issued >= latency * 1e9


def over_a_link_faster_than_the_machine(count: int) -> int:
    from tests.manners.streams import under_way

    work = dist.all_reduce(torch.ones(count), async_op=True)
    assert work is not None
    work.wait()
    return under_way()


def test_a_message_is_not_over_before_it_has_really_come(ranks: LiveRunner) -> None:
    with ranks.link(1e-6, 1e15):
        assert ranks.record(over_a_link_faster_than_the_machine, 4_000_000).results == [0, 0, 0]


def test_passes_of_a_training_step_on_slow_links_are_times_of_the_device(ranks: LiveRunner) -> None:
    with ranks.link(0.005, 1e9):
        trace = ranks.record(trained).trace
    for rank in trace.ranks:
        assert [one.name for one in rank.passes] == ["forward", "backward", "step"] * 3
        buckets = [op for op in rank.operations if op.name == "all_reduce"]
        backward = [one for one in rank.passes if one.name == "backward"]
        for bucket, one in zip(buckets, backward, strict=True):
            assert bucket.ended is not None and one.start <= bucket.ended <= one.end + 1_000_000
