"""Ranks that take turns: one at a time, each with what processes have for themselves."""

from __future__ import annotations

import os
import random
import sys
import threading
from collections.abc import Callable
from io import StringIO

import numpy as np
import pytest
import torch

from kit.probe.threads.turns import Turns


@pytest.fixture(autouse=True)
def as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "LOCAL_RANK"):
        monkeypatch.setenv(name, "none")


def play(size: int, life: Callable[[Turns, int], None]) -> Turns:
    """Runs `life(turns, rank)` in a thread for each rank, until nobody can go on."""
    streams, dtype = (sys.stdout, sys.stderr), torch.get_default_dtype()
    turns = Turns(size)

    def thread(rank: int) -> None:
        turns.enter(rank)
        life(turns, rank)
        turns.leave(rank)

    for rank in range(size):
        threading.Thread(target=thread, args=(rank,), daemon=True).start()
    turns.begin()
    assert turns.still.wait(60)
    sys.stdout, sys.stderr = streams
    torch.set_default_dtype(dtype)
    return turns


def test_they_work_one_after_the_other_in_the_order_of_ranks() -> None:
    heard: list[tuple[int, str]] = []

    def life(turns: Turns, rank: int) -> None:
        heard.append((rank, "begins"))
        turns.pass_on(rank)
        heard.append((rank, "ends"))

    play(3, life)
    assert heard == [(rank, what) for what in ("begins", "ends") for rank in range(3)]


def test_who_waits_goes_on_when_woken_and_not_before() -> None:
    heard: list[str] = []
    come = threading.Event()

    def life(turns: Turns, rank: int) -> None:
        if rank == 0:
            turns.sleep(0, come.is_set)
            heard.append("0 has it")
        elif rank == 1:
            turns.wake(0)  # too early
            turns.pass_on(1)
            heard.append("1 gives it")
            come.set()
            turns.wake(0)

    turns = play(3, life)
    assert heard == ["1 gives it", "0 has it"]
    assert turns.now is None


def test_when_all_wait_that_is_known_at_once() -> None:
    play(2, lambda turns, rank: turns.sleep(rank, lambda: False))


def test_each_has_its_own_numbers_streams_and_name() -> None:
    drawn: dict[int, list[object]] = {0: [], 1: []}
    written = {0: StringIO(), 1: StringIO()}

    def life(turns: Turns, rank: int) -> None:
        torch.manual_seed(5)
        np.random.seed(5)
        random.seed(5)
        sys.stdout = written[rank]
        torch.set_default_dtype(torch.float64 if rank else torch.float32)
        for _ in range(2):
            turns.pass_on(rank)
            drawn[rank] += [torch.rand(2, dtype=torch.float32).tolist(), np.random.rand(), random.random()]
            print(rank, os.environ["RANK"], os.environ["LOCAL_RANK"], torch.ones(1).dtype)

    play(2, life)
    assert drawn[0] == drawn[1]
    assert written[0].getvalue() == "0 0 0 torch.float32\n" * 2
    assert written[1].getvalue() == "1 1 1 torch.float64\n" * 2
