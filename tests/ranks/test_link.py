"""Throttled links: real messages that take as long as the model says, and no longer."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist

from kit.cluster.cluster import Cluster
from kit.cost import network
from kit.parallel.collectives import ring_all_reduce
from kit.session.links import set_links

LATENCY, BANDWIDTH = 4e-3, 50e6
BYTES = 1_000_000  # 20 ms on the slow link


@pytest.fixture
def slow(three: Cluster) -> Iterator[Cluster]:
    with set_links(three, LATENCY, BANDWIDTH):
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
        works = [dist.isend(x, 1), dist.isend(x, 2)]
        for work in works:
            work.wait()
    elif dist.get_rank() == 1:
        dist.recv(inbox, 2)
        dist.recv(inbox, 0)
    else:
        dist.recv(inbox, 0)
        dist.send(inbox, 1)
    return inbox.tolist()


def seconds(cluster: Cluster, function: object, *arguments: object) -> float:
    """The median over five runs of the slowest rank."""
    return statistics.median(max(cluster.record(function, *arguments).results) for _ in range(5))


@pytest.mark.parametrize(
    ("function", "model"),
    [
        (one_message, network.message(BYTES, LATENCY, BANDWIDTH)),
        (to_both, LATENCY + 2 * BYTES / BANDWIDTH),  # one link out of rank 0: the second waits for the first
        (ring, network.ring_all_reduce(3, BYTES, LATENCY, BANDWIDTH)),
    ],
    ids=["message", "two at once", "ring"],
)
def test_nothing_arrives_before_the_model_says(slow: Cluster, function: object, model: float) -> None:
    """How long after it, at most, is measured by tests/benchmarks/bench_link.py: here others may use the processor."""
    assert (
        seconds(slow, function, BYTES) > 0.97 * model
    )  # ranks leave the barrier before it at slightly different times


def test_a_built_in_collective_takes_its_formula_and_keeps_its_values(slow: Cluster) -> None:
    results = slow.record(built_in, BYTES).results
    assert all(values == [6.0, 6.0] for _, values in results)
    assert max(time for time, _ in results) > 0.97 * network.ring_all_reduce(3, BYTES, LATENCY, BANDWIDTH)


def test_a_late_partner_holds_up_nobody_else(slow: Cluster) -> None:
    assert slow.record(late_partner).results == [[0.0], [1.0], [1.0]]
    session = slow.step(late_partner)
    session.finish()
    assert session.results == [[0.0], [1.0], [1.0]]


def test_only_what_crosses_from_node_to_node_is_slow(three: Cluster) -> None:
    with set_links(three, 0.5, between=[[0, 1], [2]]):
        inside = min(max(three.record(message_alone).results) for _ in range(3))
        across = max(three.record(to_both, 4).results)
    assert inside < 0.5 < across


def test_it_is_labelled_and_ends(three: Cluster) -> None:
    with set_links(three, 1e-3, 1e8) as setting:
        assert repr(setting) == "links throttled to 1 ms and 0.1 GB/s"
        assert three.record(one_message, 4).trace.meta.notes == ("links throttled to 1 ms and 0.1 GB/s",)
        assert three.step(one_message, 4).trace.meta.notes == ("links throttled to 1 ms and 0.1 GB/s",)
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
def test_what_cannot_be_says_what_can(three: Cluster, wishes: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        set_links(three, **wishes)  # type: ignore[arg-type]


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


def test_ddp_trains_the_same_on_slow_links(three: Cluster) -> None:
    fast = three.record(train, 3).results
    with set_links(three, 5e-3):
        slow = three.record(train, 3)
    assert slow.results == fast and fast[0] == fast[1]
