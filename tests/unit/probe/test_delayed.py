"""A Work that is held back is over at the later of two moments: when it has come, and when it is due."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist

from kit.probe.accelerator import CPU
from kit.probe.links import delayed as module
from kit.probe.links.board import Board, Transfer
from kit.probe.links.delayed import FOLLOWS, LATE, DelayedWork, Pace

SOON = 0.02  # s
TURN = 1e-5  # s that a thread is away when it lets others pass


class Clock:
    """Goes on while somebody sleeps, and wakes them early, as a system may."""

    def __init__(self) -> None:
        self.now = 100.0
        self._coming: list[tuple[float, Callable[[], object]]] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += max(0.9 * seconds, TURN)
        for moment, call in self._coming:
            if self.now >= moment:
                call()
        self._coming = [(moment, call) for moment, call in self._coming if self.now < moment]

    def at(self, moment: float, call: Callable[[], object]) -> None:
        self._coming.append((moment, call))

    def says(self, moment: float) -> bool:
        """Whether it is that moment, and not earlier."""
        return moment <= self.now < moment + 2 * TURN


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


class Real(dist.Work):
    """What the library would give: over after `lasts` and once `comes` is set, and waited for once at most."""

    def __init__(self, lasts: Callable[[], object] = lambda: None, error: Exception | None = None) -> None:
        super().__init__()
        self._lasts = lasts
        self._error = error
        self.comes = threading.Event()
        self.comes.set()
        self.waits = 0

    def wait(self, timeout: object = None) -> bool:
        self.waits += 1
        self.comes.wait()
        self._lasts()
        if self._error is not None:
            raise self._error
        return True


def delayed(work: Real, due: float | None, pace: Pace | None = None, asked: float = 0.0) -> DelayedWork:
    transfer = Transfer("a", (0,), (1,), 0.0, SOON, asked)
    return DelayedWork(work, [torch.ones(1)], CPU, Board(), transfer, 4, due, pace)


def test_it_is_over_when_it_is_due_and_not_before(clock: Clock) -> None:
    due = clock.now + SOON
    work = delayed(Real(), due)
    assert not work.done.is_set()
    over: list[bool] = []
    clock.at(due - 2 * TURN, lambda: over.append(work.is_success()))
    assert work.wait() and clock.says(due) and over == [False]
    assert work.is_completed() and work.is_success()


def test_what_really_comes_later_is_not_there_earlier(clock: Clock) -> None:
    begin = clock.now
    delayed(Real(lambda: setattr(clock, "now", begin + 2 * SOON)), begin + SOON).wait()
    assert clock.says(begin + 2 * SOON)


def test_where_nobody_wrote_down_its_end_the_model_counts_from_the_real_one(clock: Clock) -> None:
    ended = clock.now + 5 * SOON
    delayed(Real(lambda: setattr(clock, "now", ended)), None, asked=clock.now).wait()
    began = ended - module.REAL[0] - 4 / module.REAL[1]
    assert clock.says(began + SOON)


def collective(board: Board, asked: float) -> Transfer:
    transfer = Transfer("c", (0, 1), (0, 1), 0.0, SOON, asked)
    board.ask(transfer)
    return transfer


def test_whose_part_of_a_collective_is_done_waits_until_all_have_called(clock: Clock) -> None:
    board = Board()
    for rank in range(2):
        board.come(rank)
    begin = clock.now
    work = DelayedWork(Real(), [], CPU, board, collective(board, begin), 4, None, None)
    clock.at(begin + 2 * SOON, lambda: collective(board, begin + 2 * SOON))
    work.wait()
    assert clock.says(begin + 3 * SOON)


def test_it_does_not_wait_for_those_of_another_host_nor_when_the_run_is_over(clock: Clock) -> None:
    board = Board()
    board.come(0)
    begin = clock.now
    DelayedWork(Real(), [], CPU, board, collective(board, begin), 4, None, None).wait()
    assert clock.says(begin + SOON)
    board.come(1)
    board.closed = True
    DelayedWork(Real(), [], CPU, board, Transfer("d", (0, 1), (0, 1), 0.0, 0.0, begin), 4, None, None).wait()


def test_a_future_and_a_question_need_nobody_who_waits(clock: Clock) -> None:
    due = clock.now + SOON
    real = Real()
    real.comes.clear()
    promised, asked = delayed(Real(), due), delayed(real, due)
    assert not asked.is_completed()
    promised.get_future().wait()
    assert clock.says(due) and not asked.is_completed()
    real.comes.set()
    assert asked.done.wait(10) and asked.is_completed()


def test_however_many_wait_the_real_one_is_waited_for_once(clock: Clock) -> None:
    real = Real()
    work = delayed(real, clock.now + SOON)
    work.get_future()
    others = [threading.Thread(target=work.wait) for _ in range(3)]
    for thread in others:
        thread.start()
    work.wait()
    for thread in others:
        thread.join()
    assert real.waits == 1


def test_what_the_library_raises_reaches_who_waits(clock: Clock) -> None:
    work = delayed(Real(error=RuntimeError("connection closed")), clock.now + 1000)
    with pytest.raises(RuntimeError, match="connection closed"):
        work.wait()
    assert not work.is_success() and isinstance(work.exception(), RuntimeError)
    with pytest.raises(RuntimeError, match="connection closed"):
        work.wait()


def test_a_message_that_follows_another_counts_from_its_arrival(clock: Clock) -> None:
    pace = Pace(threading.get_ident())
    now = clock.now
    assert pace.asked(now) == now
    pace.goes_on(now + LATE / 2, came=now)  # woken late
    assert pace.asked(now + LATE / 2 + FOLLOWS / 2) == now
    pace.goes_on(now + 5, came=now)  # so late that it is another matter
    assert pace.asked(now + 5) == now + 5 - LATE
    assert pace.asked(now - 1) == now - 1  # never later than it was asked for


def test_a_wait_that_is_over_sets_the_pace(clock: Clock) -> None:
    pace = Pace(threading.get_ident())
    due = clock.now + SOON
    delayed(Real(), due, pace).wait()
    assert pace.asked(clock.now + FOLLOWS / 2) == due


def test_after_a_computation_it_counts_from_its_own_call(clock: Clock) -> None:
    pace = Pace(threading.get_ident())
    now = clock.now
    pace.goes_on(now, came=now)
    later = now + 2 * FOLLOWS
    assert pace.asked(later) == later
    pace.goes_on(later)
    assert pace.asked(later) == later  # and so do those that are asked for with it


def test_after_a_collective_and_in_another_thread_too(clock: Clock) -> None:
    pace = Pace(threading.get_ident())
    now = clock.now
    pace.goes_on(now, came=now)
    elsewhere: list[float] = []
    thread = threading.Thread(target=lambda: elsewhere.append(pace.asked(now + FOLLOWS / 2)))
    thread.start()
    thread.join()
    assert elsewhere == [now + FOLLOWS / 2]
    pace.breaks_off(now)
    assert pace.asked(now + FOLLOWS / 2) == now + FOLLOWS / 2
