"""Ranks on a device of their own (`tests.manners.cuda` plays it): every thread of theirs stands on it."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import kit
from kit.clusters.request import checked
from kit.run.live import LiveRunner
from tests.manners.cuda import on_cuda


@pytest.fixture(scope="module")
def on_devices() -> Iterator[LiveRunner]:
    with on_cuda(), LiveRunner(checked(2)) as started:
        yield started


def where_its_threads_stand() -> dict[str, int]:
    """While a future's callback runs, in whichever thread that is: that one, and those that were there before."""
    from tests.manners.cuda import standing

    before = {"launches", *standing()}

    def look(_: object) -> None:
        known = {*before, threading.current_thread().name}  # others may have begun just now
        seen.update({name: device for name, device in standing().items() if name in known})

    x, seen, other = torch.ones(2), {}, 1 - dist.get_rank()
    message = dist.irecv(torch.empty(2), other)
    assert message is not None
    called = message.get_future().then(look)
    dist.barrier()  # nobody's message comes before both have said what is to be done then
    sent = dist.isend(x, other)
    called.wait()
    assert sent is not None
    sent.wait()
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
        for threads, more in ((recorded, 1), (session.results, 2), (slow, 1)):
            assert len(threads[rank].keys() - always) >= more, "staging, launching, completing a future, being late"
            assert set(threads[rank].values()) == {rank}, threads[rank]


def trained() -> float:
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(4, 1))
    model(torch.ones(2, 4) * dist.get_rank()).sum().backward()
    x = torch.full((2,), float(dist.get_rank()))
    dist.broadcast(x, 1)
    dist.barrier()
    if dist.get_rank() == 0:
        dist.send(x, 1)
    else:
        dist.recv(x)
    gradient = model.module.weight.grad
    assert gradient is not None
    return float(gradient.sum() + x.sum())


def test_messages_that_are_staged_are_recorded_stepped_and_accounted_for(on_devices: LiveRunner) -> None:
    """gloo on a GPU: here of CPU tensors, which are copied as the GPU's are."""
    recording = kit.options(memory=True, cluster=on_devices).record(trained)
    session = on_devices.step(trained)
    session.finish()
    assert recording.results == session.results == [6.0, 6.0]
    for trace in (recording.trace, session.trace):
        names = [operation.name for operation in trace.ranks[1].operations]
        assert names[-3:] == ["broadcast", "barrier", "recv"] and "all_reduce" in names
        assert all(one.ended is not None for rank in trace.ranks for one in rank.operations)
        assert trace.ranks[1].operations[-1].peer == 0
