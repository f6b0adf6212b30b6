import asyncio
import threading

import pytest

from kit.panels.one_at_a_time import OneAtATime


class Log:
    def __init__(self):
        self.events = []
        self.runner = OneAtATime(lambda: self.events.append("paint"), lambda error: self.events.append(str(error)))


@pytest.fixture
def log():
    return Log()


def test_without_a_loop_a_press_runs_at_once(log):
    log.runner.soon(lambda: log.events.append("moved"))
    assert log.events == ["moved", "paint"]


def test_what_a_press_raises_is_shown_and_what_a_call_raises_is_raised(log):
    def wrong():
        raise ValueError("let one go")

    log.runner.soon(wrong)
    assert "let one go" in log.events
    with pytest.raises(ValueError, match="let one go"):
        log.runner.now(wrong)


def test_a_press_leaves_the_loop_free(log):
    async def scene():
        gate = threading.Event()
        log.runner.soon(gate.wait)
        await asyncio.sleep(0)
        log.events.append("loop is free")
        gate.set()
        await log.runner.settle()

    asyncio.run(scene())
    assert log.events == ["loop is free", "paint"]


def test_presses_during_a_motion_fold_into_the_last(log):
    async def scene():
        gate = threading.Event()
        log.runner.soon(gate.wait)
        for name in "abc":
            log.runner.soon(lambda name=name: log.events.append(name))
        gate.set()
        await log.runner.settle()

    asyncio.run(scene())
    assert [event for event in log.events if event != "paint"] == ["c"]


def test_a_long_motion_is_announced_once_and_then_over(log):
    async def scene():
        gate = threading.Event()
        log.runner.soon(gate.wait)
        while not log.events:
            await asyncio.sleep(0.01)
        assert log.runner.busy
        gate.set()
        await log.runner.settle()
        assert not log.runner.busy

    asyncio.run(scene())
    assert log.events == ["paint", "paint"]


def test_motions_of_calls_and_presses_never_overlap(log):
    inside, worst = [0], [0]

    def motion():
        inside[0] += 1
        worst[0] = max(worst[0], inside[0])
        threading.Event().wait(0.02)
        inside[0] -= 1

    async def scene():
        log.runner.soon(motion)
        await asyncio.sleep(0.005)
        log.runner.now(motion)
        await log.runner.settle()

    asyncio.run(scene())
    assert worst == [1]
