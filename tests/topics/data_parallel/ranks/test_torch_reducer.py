"""DDP's reducer waits in C++, on a future: being left, refused or failed must not take the rank with it."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from torch import nn

from kit.run.live import LiveRunner


def one_leaves() -> None:
    from torch.nn.parallel import DistributedDataParallel

    model = DistributedDataParallel(nn.Linear(4, 4))  # without a name the reducer would be gone before backward
    loss = model(torch.ones(2, 4)).sum()
    if dist.get_rank() == 1:
        raise ValueError("left")
    loss.backward()


def one_does_something_else() -> None:
    from torch.nn.parallel import DistributedDataParallel

    model = DistributedDataParallel(nn.Linear(4, 4))  # without a name the reducer would be gone before backward
    loss = model(torch.ones(2, 4)).sum()
    if dist.get_rank() == 1:
        dist.broadcast(torch.ones(3), 1)
    else:
        loss.backward()


def adds() -> float:
    x = torch.ones(1)
    dist.all_reduce(x)
    return float(x)


@pytest.mark.usefixtures("time_to_leave")
def test_a_rank_that_waits_in_backward_can_be_left(three: LiveRunner) -> None:
    session = three.step(one_leaves)
    before = three.pids
    state = session.finish()
    assert "ranks 0, 2 wait in all_reduce" in str(state.verdict)
    assert three.record(adds).results == [3.0] * 3
    assert not three.lost and three.pids == before


def test_a_mismatch_in_backward_is_said(three: LiveRunner) -> None:
    session = three.step(one_does_something_else)
    state = session.finish(timeout=60)  # the first DDP of a process takes its time
    said = "every rank of a group must call the same operation"
    assert all(s.error and said in s.error.message for s in state), state
    assert three.record(adds).results == [3.0] * 3
