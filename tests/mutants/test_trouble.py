"""Solutions that raise, hang, end their process or loop for ever: a sentence, and a cluster that goes on."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist

import kit
from kit.grade import discovery
from kit.grade.answers import exercise, solution_of
from kit.grade.verdict import Verdict
from kit.run.live import LiveRunner


@exercise("broadcast")
def raises_on_one_rank(x: Any, source: int) -> Any:
    if dist.get_rank() == 1:
        return x / undefined_name  # type: ignore[name-defined]  # noqa: F821
    dist.recv(torch.empty_like(x), 1)
    return x


@exercise("broadcast")
def waits_for_nobody(x: Any, source: int) -> Any:
    inbox = torch.empty_like(x)
    dist.recv(inbox, source if dist.get_rank() != source else (source + 1) % dist.get_world_size())
    return inbox


@exercise("broadcast")
def ends_its_process(x: Any, source: int) -> Any:
    if dist.get_rank() == 0:
        os._exit(3)
    time.sleep(0.1)
    return x.clone()


@exercise("broadcast")
def sends_more_than_fits(x: Any, source: int) -> Any:
    if dist.get_rank() == source:
        for other in range(dist.get_world_size()):
            if other != source:
                dist.send(torch.cat([x, x]), other)
        return x.clone()
    inbox = torch.empty_like(x)
    dist.recv(inbox, source)
    return inbox


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (raises_on_one_rank, ("rank 1", "undefined_name")),
        (waits_for_nobody, ("recv",)),
        (ends_its_process, ("rank 0",)),
        (sends_more_than_fits, ("rank",)),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_trouble_on_a_rank_becomes_a_sentence(
    judged: Callable[..., Verdict], function: Callable[..., Any], words: tuple[str, ...]
) -> None:
    verdict = judged(function)
    assert (verdict.status, verdict.stage) == ("failed", "values")
    assert all(word in verdict.sentence for word in words), str(verdict)
    after = judged(exercise("broadcast")(solution_of(discovery.find("broadcast"))))
    assert after.passed, str(after)


@exercise("tree-broadcast")
def never_doubles(x: Any, source: int) -> Any:
    distance = 1
    while distance < dist.get_world_size():
        pass
    return x.clone()


def test_a_check_that_never_ends_says_who_ran(judged: Callable[..., Verdict], kernel_of_four: LiveRunner) -> None:
    verdict = kit.check(never_doubles, limit=3.0)
    assert re.search(r"given up after 3 s: ranks? 0\D.* been running for", verdict.sentence), str(verdict)
    assert judged(exercise("tree-broadcast")(solution_of(discovery.find("tree-broadcast")))).passed


def spoil(x: Any) -> None:
    dist.recv = lambda *arguments, **options: None  # type: ignore[assignment]


def test_what_an_earlier_run_left_on_the_ranks_does_not_decide(kernel_of_four: LiveRunner) -> None:
    kit.record(spoil, torch.ones(1))
    verdict = kit.check(exercise("broadcast")(solution_of(discovery.find("broadcast"))))
    assert verdict.passed, str(verdict)


def asks_until_it_came(x: Any) -> Any:
    """Waiting by asking is waiting."""
    work = dist.all_reduce(x, async_op=True)
    while not work.is_completed():  # type: ignore[union-attr]
        time.sleep(0)
    return x


def test_who_asks_until_an_operation_is_done_has_waited(kernel_of_four: LiveRunner) -> None:
    operations = [one for part in kit.record(asks_until_it_came, torch.ones(2)).trace.ranks for one in part.operations]
    assert operations and all(one.ended is not None for one in operations)
