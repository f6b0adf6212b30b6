"""A recorded run that takes its time says who runs and who waits, and one that is given up ends in the same words."""

from __future__ import annotations

import re
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist

from kit.clusters.progress import Progress
from kit.run import patience
from kit.run.errors import RankError
from kit.run.live import LiveRunner
from kit.run.options import Options
from tests.ranks import faults

LIMIT = 1000.0


def stands_in_its_own_threads(x: torch.Tensor) -> None:
    if dist.get_rank() == 1:
        first, second = threading.Lock(), threading.Lock()
        met = threading.Barrier(2)

        def take(one: threading.Lock, other: threading.Lock) -> None:
            with one:
                met.wait()
                other.acquire()

        threads = [threading.Thread(target=take, args=pair) for pair in ((first, second), (second, first))]
        for thread in threads:
            thread.start()
        threads[0].join()
    dist.all_reduce(x)


def for_ever_in_c(x: torch.Tensor) -> None:
    dist.barrier()
    if dist.get_rank() == 1:
        sum(range(10**15))  # holds the interpreter's lock
    dist.all_reduce(x)


def line(function: Callable[..., Any], offset: int) -> int:
    return function.__code__.co_firstlineno + offset


class Clock:
    """Goes on by a second whenever it is read, and jumps beyond the limit once enough was said."""

    def __init__(self, enough: str) -> None:
        self.said: list[str] = []
        self._enough = enough
        self._now = 0.0

    def monotonic(self) -> float:
        self._now += 1 if self._now < LIMIT / 2 else 0
        return self._now

    def say(self, progress: Progress, text: str) -> None:
        self.said.append(text)
        if re.search(self._enough, text):
            self._now = 2 * LIMIT


CASES = {
    faults.endless: r"; rank 1 has been running for .* s, last seen at line "
    rf"({line(faults.endless, 3)}|{line(faults.endless, 4)})$",
    for_ever_in_c: r"; rank 1 has been running for .* s, last seen at line "
    rf"{line(for_ever_in_c, 1)} \(it does not answer, as in",
    stands_in_its_own_threads: r"; rank 1 has been running for .* s, last seen at line "
    rf"{line(stands_in_its_own_threads, 13)} \(it stands still, and in no operation: it sleeps, or waits for a thread",
}


@pytest.mark.parametrize("function", CASES, ids=lambda function: function.__name__)
def test_who_runs_and_who_waits_is_said_until_it_is_given_up(
    three: LiveRunner, monkeypatch: pytest.MonkeyPatch, function: Callable[..., Any]
) -> None:
    words = "ranks 0, 2 wait in all_reduce for rank 1 .*" + CASES[function]
    clock = Clock(words)
    monkeypatch.setattr(patience, "time", clock)
    monkeypatch.setattr(Progress, "say", lambda progress, text: clock.say(progress, text))
    with pytest.raises(RankError) as caught:
        Options(cluster=three, limit=LIMIT).record(function, torch.ones(2))
    sentence = str(caught.value)
    assert sentence.startswith("The run was given up after 1000 s: ") and len(sentence.splitlines()) == 1
    assert re.search(words.removesuffix("$"), sentence)
    assert [state.phase for state in caught.value.trace.positions[-1]] == ["waiting", "running", "waiting"]
    assert three.record(faults.fine, torch.ones(1)).results[0].tolist() == [3.0], "on whole ranks"


@pytest.mark.usefixtures("ctrl_c_is_heard")
def test_without_a_limit_only_a_person_ends_it(three: LiveRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "AFTER", 0.1)
    main = threading.main_thread().ident
    assert main is not None
    last: list[str] = []

    def say(progress: Progress, text: str) -> None:
        if "wait in all_reduce for rank 1" in text:
            signal.pthread_kill(main, signal.SIGINT)

    monkeypatch.setattr(Progress, "say", say)
    monkeypatch.setattr(Progress, "done", lambda progress, text: last.append(text))
    with pytest.raises(KeyboardInterrupt):
        three.record(faults.endless, torch.ones(2))
    assert "rank 1 has been running for" in last[0], "what was said last stays"
    assert three.record(faults.fine, torch.ones(1)).results[0].tolist() == [3.0]


def test_a_limit_is_a_time_and_one_for_records(three: LiveRunner) -> None:
    with pytest.raises(ValueError, match="limit is a time in seconds, more than 0, or None for no limit, not 0"):
        Options(limit=0)
    with pytest.raises(ValueError, match="threads have patience in the place of a limit"):
        Options(limit=3, threads=True)
    with pytest.raises(ValueError, match="limit are options of a record"):
        Options(cluster=three, limit=3).step(faults.fine, torch.ones(1))
