"""What a step means in code of every shape, and what a motion says of a rank whose other threads wait."""

from __future__ import annotations

import asyncio
import contextlib
import re
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist

from kit.run.errors import RankError
from kit.run.live import LiveRunner


def on_its_way() -> torch.Tensor:
    import torch.distributed._functional_collectives as functional

    y = functional.all_reduce(torch.ones(2), "sum", dist.group.WORLD)
    k = 1
    k += 1
    return y * k


def test_a_pending_result_in_scope_is_not_waited_for(three: LiveRunner) -> None:
    session = three.step(on_its_way)
    for _ in range(4):
        state = session.step(ranks=[0])
    assert state[0].phase == "paused", str(state)
    assert session.step(ranks=[0])[0].phase == "waiting", "the product needs it"
    session.finish()
    assert [r.tolist() for r in session.results] == [[6.0, 6.0]] * 3


def helper_waits() -> float:
    x = torch.ones(1)
    helper = threading.Thread(target=dist.all_reduce, args=(x,))
    helper.start()
    time.sleep(0.3)
    y = 1
    y += 1
    helper.join()
    return float(x) + y


def test_a_helper_thread_that_waits_does_not_make_its_rank_wait(three: LiveRunner) -> None:
    session = three.step(helper_waits)
    for _ in range(5):
        state = session.step(ranks=[0])
        assert state[0].phase == "paused" and state.verdict is None, str(state)
    session.finish()
    assert session.results == [5.0] * 3


def generates() -> list[float]:
    def totals(n: int) -> Iterator[torch.Tensor]:
        for i in range(n):
            t = torch.full((1,), float(i))
            dist.all_reduce(t)
            yield t

    unfinished = totals(2)
    next(unfinished)
    unfinished.close()
    return [float(t) for t in totals(3)]


def awaits() -> float:
    async def total(i: int) -> float:
        t = torch.full((1,), float(i))
        await asyncio.sleep(0)
        dist.all_reduce(t)
        return float(t)

    async def both() -> float:
        one = await total(1)
        two = await total(2)
        return one + two

    return asyncio.run(both())


def swallows() -> float:
    t = torch.ones(1)
    try:
        try:
            dist.all_reduce(t)
            raise KeyError("x")
        finally:
            dist.all_reduce(t)
    except KeyError:
        dist.all_reduce(t)
    return float(t)


def blocks() -> tuple[float, float]:
    @contextlib.contextmanager
    def summed_at_the_end() -> Iterator[torch.Tensor]:
        t = torch.ones(1)
        yield t
        dist.all_reduce(t)

    with summed_at_the_end() as t:
        match dist.get_rank():
            case 0:
                t += 1
            case 1 | 2:
                t += 2
    größe = t * 2
    works = [dist.all_reduce(x, async_op=True) for x in (t, größe)]
    [work.wait() for work in works]
    return float(größe), float(t)


def recurses(depth: int = 3) -> float:
    if depth == 0:
        return 0.0
    t = torch.ones(1)
    below = recurses(depth - 1)
    dist.all_reduce(t)
    return float(t) + below


def asks() -> str:
    try:
        return input("who? ")
    except EOFError:
        return "nobody answers on a rank"


SHAPES: dict[Any, Any] = {
    generates: [0.0, 3.0, 6.0],
    awaits: 9.0,
    swallows: 27.0,
    blocks: (48.0, 24.0),
    recurses: 9.0,
    asks: "nobody answers on a rank",
}


@pytest.mark.parametrize("function", SHAPES, ids=lambda f: f.__name__)
@pytest.mark.parametrize("how", ["step", "over", "into", "to_collective"])
def test_code_of_every_shape_comes_to_its_end(three: LiveRunner, function: Any, how: str) -> None:
    session = three.step(function)
    while session.live:
        state = getattr(session, how)()
        assert state.verdict is None and not any(s.phase == "running" for s in state), str(state)
    assert session.results == [SHAPES[function]] * 3


def promised() -> None:
    if dist.get_rank() != 2:
        dist.all_reduce(torch.ones(2), async_op=True).get_future().wait()


def test_a_future_that_never_comes_is_a_deadlock(three: LiveRunner) -> None:
    line = promised.__code__.co_firstlineno + 2
    sentence = f"Deadlock: ranks 0, 1 wait in all_reduce (line {line}); rank 2 finished without it."
    assert three.step(promised).finish().verdict == sentence
    with pytest.raises(RankError, match=re.escape(sentence)):
        three.record(promised)


def slow_partner() -> float:
    x = torch.ones(1)
    if dist.get_rank() == 2:
        time.sleep(1.5)
        dist.all_reduce(x)
        return float(x)
    future = dist.all_reduce(x, async_op=True).get_future()
    time.sleep(1.2)
    future.wait()
    return float(x)


def test_a_slow_partner_is_no_deadlock(three: LiveRunner) -> None:
    assert three.record(slow_partner).results == [3.0] * 3


def stubborn() -> None:
    while True:
        try:
            dist.all_reduce(torch.ones(1))
            time.sleep(0.01)
        except BaseException:  # noqa: B036 - as some learners write it
            time.sleep(0.01)


def test_code_that_catches_everything_does_not_keep_the_ranks(three: LiveRunner) -> None:
    session = three.step(stubborn)
    session.finish(timeout=0.3)
    assert three.record(recurses).results == [9.0] * 3


def chained(x: torch.Tensor) -> torch.Tensor:
    """As DDP's PowerSGD hook: what is chained to a future communicates, and waits."""
    y = x + 1

    def then(future: torch.futures.Future[Any]) -> torch.Tensor:
        dist.all_reduce(y)
        return y + future.value()[0]

    return dist.all_reduce(x, async_op=True).get_future().then(then).wait()


def test_what_is_chained_to_a_future_may_communicate(three: LiveRunner) -> None:
    session = three.step(chained, torch.ones(2))
    assert [s.phase for s in session.finish()] == ["finished"] * 3
    recorded = three.record(chained, torch.ones(2)).results
    assert [r.tolist() for r in session.results] == [r.tolist() for r in recorded] == [[9.0, 9.0]] * 3


def waits_for_some_time(milliseconds: int) -> str:
    x = torch.zeros(1)
    if dist.get_rank() == 1:
        try:
            dist.irecv(x, 0).wait(timedelta(milliseconds=milliseconds))
        except RuntimeError as error:
            return str(error).partition("Timed out")[2]
    if dist.get_rank() == 0:
        dist.isend(x, 1) if milliseconds > 100 else None
    return "came"


def test_a_wait_that_gives_up_by_itself_is_no_deadlock(three: LiveRunner) -> None:
    gave_up = " waiting 50ms for recv operation to complete"
    session = three.step(waits_for_some_time, 50)
    assert session.finish().verdict is None
    assert session.results == ["came", gave_up, "came"]
    assert three.record(waits_for_some_time, 50).results == ["came", gave_up, "came"]
    session = three.step(waits_for_some_time, 10**6)
    state = session.finish(ranks=[1, 2], timeout=0.5)
    assert (state[1].phase, state[1].waiting_for, state.verdict) == ("waiting", (0,), None)
    session.finish()
    assert session.results == ["came"] * 3, "and who comes in time is met"
