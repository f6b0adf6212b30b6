"""Throttled links: real messages that take as long as the model says, and no longer."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
import torch.distributed as dist

from kit.cost import network
from kit.probe.links.scheduling import SHORT
from kit.run.live import LiveRunner
from kit.topics.collectives.reference import ring_all_reduce
from tests.clusters import NEVER
from tests.topics.data_parallel.ranks.training import train_anywhere

LATENCY, BANDWIDTH = 4e-3, 50e6
BYTES = 1_000_000  # 20 ms on the slow link


@pytest.fixture
def slow(three: LiveRunner) -> Iterator[LiveRunner]:
    with three.link(LATENCY, BANDWIDTH):
        yield three


def one_message(count: int) -> float:
    import time

    x = torch.ones(count // 4)
    dist.barrier()
    begin = time.perf_counter()
    if dist.get_rank() == 0:
        dist.send(x, 1)
    elif dist.get_rank() == 1:
        dist.recv(x, 0)
    return time.perf_counter() - begin


def message_alone() -> float:
    """From rank 0 to rank 1, with no barrier before it: a barrier crosses the slow link."""
    import time

    x = torch.ones(1)
    begin = time.perf_counter()
    if dist.get_rank() == 0:
        dist.send(x, 1)
    elif dist.get_rank() == 1:
        dist.recv(x, 0)
    return time.perf_counter() - begin


def to_both(count: int) -> float:
    import time

    x = torch.ones(count // 4)
    dist.barrier()
    begin = time.perf_counter()
    if dist.get_rank() == 0:
        for work in [dist.isend(x, 1), dist.isend(x, 2)]:
            assert work is not None
            work.wait()
    else:
        dist.recv(x, 0)
    return time.perf_counter() - begin


def ring(count: int) -> float:
    import time

    x = torch.ones(count // 4)
    dist.barrier()
    begin = time.perf_counter()
    ring_all_reduce(x)
    return time.perf_counter() - begin


def built_in(count: int) -> tuple[float, list[float]]:
    import time

    x = torch.full((count // 4,), float(dist.get_rank() + 1))
    dist.barrier()
    begin = time.perf_counter()
    dist.all_reduce(x)
    return time.perf_counter() - begin, x[:2].tolist()


def late_partner() -> list[float]:
    """0 sends to 1, who comes late, and to 2, who needs it to let 1 go on: nobody may hold up the other's message."""
    x, inbox = torch.ones(1), torch.zeros(1)
    if dist.get_rank() == 0:
        for work in [dist.isend(x, 1), dist.isend(x, 2)]:
            assert work is not None
            work.wait()
    elif dist.get_rank() == 1:
        dist.recv(inbox, 2)
        dist.recv(inbox, 0)
    else:
        dist.recv(inbox, 0)
        dist.send(inbox, 1)
    return inbox.tolist()


def relay() -> float:
    """From rank to rank and back to 0."""
    import time

    me, n = dist.get_rank(), dist.get_world_size()
    x = torch.ones(1)
    begin = time.perf_counter()
    if me > 0:
        dist.recv(x, me - 1)
    dist.send(x, (me + 1) % n)
    if me == 0:
        dist.recv(x, n - 1)
    return time.perf_counter() - begin


def from_anybody() -> list[float]:
    """What rank 0 got, and when each rank had its message."""
    import time

    begin = time.perf_counter()
    x = torch.full((1,), float(dist.get_rank()))
    if dist.get_rank() > 0:
        dist.send(x, 0)
        return [time.perf_counter() - begin]
    inboxes = [torch.zeros(1), torch.zeros(1)]
    sources = [dist.recv(inbox) for inbox in inboxes]
    assert sources == [inbox.item() for inbox in inboxes]
    return [time.perf_counter() - begin, *sorted(sources)]


def asked_and_promised() -> list[float]:
    """One message that is asked after until it is there, one that is promised; seconds from the asking."""
    import time

    inbox = torch.zeros(1)
    found = []
    for promised in (False, True):
        begin = time.perf_counter()
        if dist.get_rank() == 0:
            dist.send(torch.ones(1), 1)
        elif dist.get_rank() == 1:
            work = dist.irecv(inbox, 0)
            assert work is not None
            if promised:
                work.get_future().wait()
            while not work.is_completed():
                time.sleep(1e-4)
            found.append(time.perf_counter() - begin)
    return found


def one_pair_two_groups() -> list[float]:
    """The second group's message is asked for first on one side and last on the other."""
    first, second = dist.new_group([0, 1]), dist.new_group([0, 1])
    here, there = torch.zeros(1), torch.zeros(1)
    works: list[dist.Work | None] = []
    if dist.get_rank() == 0:
        works = [dist.isend(torch.ones(1), 1, group=first), dist.isend(torch.full((1,), 2.0), 1, group=second)]
    elif dist.get_rank() == 1:
        works = [dist.irecv(there, 0, group=second), dist.irecv(here, 0, group=first)]
    for work in works:
        assert work is not None
        work.wait()
    return [here.item(), there.item()]


def seconds(cluster: LiveRunner, function: Callable[..., float], *arguments: object) -> float:
    """The shortest of five runs, each as its slowest rank had it."""
    return min(max(cluster.record(function, *arguments).results) for _ in range(5))


@pytest.mark.parametrize(
    ("function", "model"),
    [
        (one_message, network.message(BYTES, LATENCY, BANDWIDTH)),
        (to_both, LATENCY + 2 * BYTES / BANDWIDTH),  # one link out of rank 0: the second waits for the first
        (ring, network.ring_all_reduce(3, BYTES, LATENCY, BANDWIDTH)),
    ],
    ids=["message", "two at once", "ring"],
)
def test_nothing_arrives_before_the_model_says(slow: LiveRunner, function: Callable[..., float], model: float) -> None:
    """How long after it, at most, is measured by tests/benchmarks/bench_link.py: here others may use the processor."""
    assert seconds(slow, function, BYTES) >= model


def test_a_built_in_collective_takes_its_formula_and_keeps_its_values(slow: LiveRunner) -> None:
    results = slow.record(built_in, BYTES).results
    assert all(values == [6.0, 6.0] for _, values in results)
    assert max(time for time, _ in results) >= network.ring_all_reduce(3, BYTES, LATENCY, BANDWIDTH)


def test_a_chain_takes_as_long_as_its_messages_together(slow: LiveRunner) -> None:
    """Though each counts from the arrival of the one before it, and not from when Python came to ask for it."""
    assert seconds(slow, relay) >= 3 * LATENCY


def test_a_receive_from_any_source_is_as_slow_as_the_others(slow: LiveRunner) -> None:
    (first, *sources), *others = slow.record(from_anybody).results
    assert sources == [1, 2]
    assert min(first, *(time for (time,) in others)) >= LATENCY


def test_questions_and_futures_are_answered_when_it_has_come(slow: LiveRunner) -> None:
    assert all(found >= LATENCY for found in slow.record(asked_and_promised).results[1])


def test_groups_of_the_same_ranks_are_kept_apart(slow: LiveRunner) -> None:
    assert slow.record(one_pair_two_groups).results[1] == [1.0, 2.0]


def test_a_late_partner_holds_up_nobody_else(slow: LiveRunner) -> None:
    assert slow.record(late_partner).results == [[0.0], [1.0], [1.0]]
    session = slow.step(late_partner)
    session.finish()
    assert session.results == [[0.0], [1.0], [1.0]]


def test_only_what_crosses_from_node_to_node_is_slow(three: LiveRunner) -> None:
    with three.link(NEVER, between=[[0, 1], [2]]):
        three.record(message_alone)
    with three.link(0.5, between=[[0, 1], [2]]):
        assert max(three.record(to_both, 4).results) >= 0.5


def granted() -> float:
    from kit.probe.links.scheduling import turn

    return turn()


def test_short_turns_on_the_processor_are_given_back(three: LiveRunner) -> None:
    before = three.record(granted).results
    with three.link(1e-3):
        during = three.record(granted).results
    assert three.record(granted).results == before
    assert during in (before, [SHORT] * 3)  # as they were, where the system grants none


def test_it_is_labelled_and_ends(three: LiveRunner) -> None:
    with three.link(1e-3, 1e8) as setting:
        assert repr(setting) == "links throttled to 1 ms latency and 100 MB/s"
        assert three.record(one_message, 4).trace.meta.notes == ("links throttled to 1 ms latency and 100 MB/s",)
        assert three.step(one_message, 4).trace.meta.notes == ("links throttled to 1 ms latency and 100 MB/s",)
    assert three.record(one_message, 4).trace.meta.notes == ()


@pytest.mark.parametrize(
    ("wishes", "words"),
    [
        ({"latency": -1.0}, "latency is a time in seconds"),
        ({"bandwidth": 0}, "bandwidth is in bytes per second"),
        ({"latency": "1 ms"}, "latency is a time in seconds"),
        ({"latency": 1e-3, "between": [[0, 1]]}, "two or more groups"),
        ({"latency": 1e-3, "between": [[0, 1], [1, 2]]}, "two or more groups"),
        ({"latency": 1e-3, "between": [[0], [7]]}, "two or more groups"),
    ],
)
def test_what_cannot_be_says_what_can(three: LiveRunner, wishes: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        three.link(**wishes)  # type: ignore[arg-type]


def test_ddp_trains_the_same_on_slow_links(three: LiveRunner) -> None:
    fast = three.record(train_anywhere, 3).results
    with three.link(5e-3):
        slow = three.record(train_anywhere, 3)
    assert slow.results == fast and fast[0] == fast[1]
