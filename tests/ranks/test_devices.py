"""Ranks on a device of their own (`tests.manners.cuda` plays it): every thread of theirs stands on it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist

from kit.clusters.request import checked
from kit.run.live import LiveRunner
from tests.manners.cuda import on_cuda


@pytest.fixture(scope="module")
def on_devices() -> Iterator[LiveRunner]:
    with on_cuda(), LiveRunner(checked(2)) as started:
        yield started


def where_its_threads_stand() -> dict[str, int]:
    """While a future's callback runs, in whichever thread that is."""
    from tests.manners.cuda import standing

    x, seen = torch.ones(2), {}
    dist.all_reduce(x)
    dist.all_reduce(x, async_op=True).get_future().then(lambda _: seen.update(standing())).wait()
    return seen


def test_each_thread_of_a_rank_stands_on_its_device(on_devices: LiveRunner) -> None:
    """Recorded, stepped and on slow links: a thread that is new stands on the first, and must take its rank's."""
    recorded = on_devices.record(where_its_threads_stand).results
    session = on_devices.step(where_its_threads_stand)
    session.finish()
    with on_devices.link(latency=0.001):
        slow = on_devices.record(where_its_threads_stand).results
    always = {"MainThread", "control", "worker"}
    for rank in (0, 1):
        for threads, more in ((recorded, 0), (session.results, 2), (slow, 1)):
            assert always < threads[rank].keys() or not more, threads
            assert len(threads[rank].keys() - always) == more, "launching, completing a future, being late"
            assert set(threads[rank].values()) == {rank}, threads[rank]
