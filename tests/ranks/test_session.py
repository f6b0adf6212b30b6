"""A session asked for nonsense, interrupted, and moved by several hands at once."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from kit.clusters.request import checked
from kit.protocol.messages import AllReady
from kit.run.live import LiveRunner
from tests.ranks.living import once_there, until


def sums(x: torch.Tensor) -> torch.Tensor:
    y = x * 2

    # what follows is one statement over four lines

    dist.all_reduce(
        y,
        op=dist.ReduceOp.SUM,
    )
    z = y + 1
    return z


FIRST = sums.__code__.co_firstlineno


def spins(x: torch.Tensor) -> None:
    while True:
        x = x + 1


def waits_for_a_file(begun: str, enough: str) -> str:
    Path(begun).touch()
    while not Path(enough).exists():
        time.sleep(0.01)
    return "enough"


def lines(position: object) -> list[int]:
    return [state.place.line - FIRST for state in position]  # type: ignore[attr-defined]


@pytest.mark.parametrize(("asked", "reached"), [(2, 5), (3, 5), (5, 5), (7, 5), (9, 9)])
def test_a_line_without_code_stands_for_the_next_that_has_some(three: LiveRunner, asked: int, reached: int) -> None:
    session = three.step(sums, torch.ones(2))
    assert lines(session.to_line(FIRST + asked)) == [reached] * 3
    session.close()


@pytest.mark.parametrize("line", [0, -3, 100_000, "7"])
def test_a_line_that_does_not_exist(three: LiveRunner, line: Any) -> None:
    session = three.step(sums, torch.ones(2))
    with pytest.raises(ValueError, match="has lines 1 to"):
        session.to_line(line)
    assert len(session.trace.positions) == 1
    session.close()


def test_steps_from_two_threads_come_one_after_the_other(three: LiveRunner) -> None:
    session = three.step(sums, torch.ones(2))
    threads = [threading.Thread(target=session.step) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [lines(p)[0] for p in session.trace.positions] == [1, 5, 9, 10]
    session.close()


def test_reset_does_not_wait_for_a_motion_under_way(three: LiveRunner) -> None:
    session = three.step(spins, torch.ones(2))
    ended: list[Any] = []
    motion = threading.Thread(target=lambda: ended.append(session.finish()))
    motion.start()
    until(lambda: session._moving.locked())
    session.reset()
    motion.join()
    assert ended and ended[0].verdict == "the ranks were reset"
    assert session.live and len(session.trace.positions) == 1
    session.close()


def test_news_of_a_reset_that_come_late_do_not_end_what_has_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    beginning = threading.Event()
    beginning.set()
    with LiveRunner(checked(2, "cpu")) as cluster:
        cluster.connection.subscribe(lambda message: isinstance(message, AllReady) and beginning.wait(60))
        session = cluster.step(sums, torch.ones(2))
        scheduler = cluster.scheduler
        make_way = scheduler._make_way

        def slowly() -> None:
            beginning.set()
            time.sleep(0.3)
            make_way()

        monkeypatch.setattr(scheduler, "_make_way", slowly)
        beginning.clear()
        session.reset()
        assert session.live and lines(session.step()) == [5, 5]


@pytest.mark.usefixtures("time_to_leave")
def test_an_endless_loop_is_left_without_forking_anew(three: LiveRunner) -> None:
    session = three.step(spins, torch.ones(2))
    session.finish(timeout=0.3)
    before = three.pids
    assert three.record(sums, torch.ones(2)).results[0].tolist() == [7.0, 7.0]
    assert three.pids == before


@pytest.mark.usefixtures("ctrl_c_is_heard")
def test_an_interrupted_motion_is_recorded_when_it_comes_to_rest(three: LiveRunner, tmp_path: Path) -> None:
    begun, enough = tmp_path / "begun", tmp_path / "enough"
    session = three.step(waits_for_a_file, str(begun), str(enough))
    main = threading.main_thread().ident
    assert main is not None
    with once_there(begun, signal.pthread_kill, main, signal.SIGINT), pytest.raises(KeyboardInterrupt):
        session.finish()
    enough.touch()
    assert until(lambda: session.state[0].phase == "finished"), str(session.state)
    assert session.state.motion == "came to rest"
    assert session.results == ["enough"] * 3


def test_a_motion_interrupted_before_it_is_awaited_is_recorded_all_the_same(
    three: LiveRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, enough = tmp_path / "begun", tmp_path / "enough"
    session = three.step(waits_for_a_file, str(begun), str(enough))
    send = session._scheduler.send

    def interrupted(order: Any) -> None:
        send(order)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(session._scheduler, "send", interrupted)
        with pytest.raises(KeyboardInterrupt):
            session.finish()
    enough.touch()
    assert until(lambda: session.state[0].phase == "finished"), str(session.state)
    assert session.state.motion == "came to rest"


def test_a_session_outlives_its_cluster_as_a_record() -> None:
    cluster = LiveRunner(checked(2, "cpu"))
    session = cluster.step(sums, torch.ones(2))
    session.step()
    cluster.stop()
    assert session.ended == "the cluster was stopped" and not session.live
    with pytest.raises(RuntimeError, match="the cluster was stopped"):
        session.step()
    assert lines(session.back()) == [1, 1]
    session.close()
    session.close()


@pytest.mark.parametrize("victim", ["agent", "controller"])
def test_reset_after_the_loss_of_agent_or_controller(victim: str) -> None:
    cluster = LiveRunner(checked(2, "cpu"))
    try:
        session = cluster.step(sums, torch.ones(2))
        agent, controller = cluster.processes[:2]
        os.kill(agent if victim == "agent" else controller, signal.SIGKILL)
        assert until(lambda: session.ended)
        assert victim in session.ended  # type: ignore[operator]
        session.reset()
        session.finish()
        assert [r.tolist() for r in session.results] == [[5.0, 5.0]] * 2
    finally:
        cluster.stop()


def large() -> torch.Tensor:
    return torch.arange(5_000_000.0)


def test_large_results_come_home(three: LiveRunner) -> None:
    session = three.step(large)
    session.finish()
    for results in (session.results, session.results):
        assert [float(r[-1]) for r in results] == [4_999_999.0] * 3


def unpicklable() -> Any:
    return threading.Lock()


def test_a_result_that_cannot_travel(three: LiveRunner) -> None:
    state = three.step(unpicklable).finish()
    assert all("what the function returned cannot be sent back" in str(s) for s in state)
