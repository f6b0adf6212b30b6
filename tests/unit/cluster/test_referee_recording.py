"""The referee of a recorded run, without processes: long waits, questions to the ranks, answers, verdicts."""

from __future__ import annotations

from typing import Any

import pytest

from kit.cluster.referee import Referee
from kit.probe import blackbox
from kit.trace.facts import Memory, Operation, Stop
from tests.unit.cluster.test_referee import at, operation


class Recording:
    """A referee of three ranks that run one recorded function."""

    def __init__(self) -> None:
        self.memory = blackbox.create(3)
        self.referee = Referee(3, self.memory)
        order = {"kind": "run", "run": 1, "mode": "record", "size": 3, "arguments": [b""] * 3}
        self.referee.from_kernel(order)

    def report(self, rank: int, *issued: Operation, waiting: int | None, answer: bool = False) -> list[Any]:
        facts = {"operations": issued, "waiting": waiting, "place": at(6), "answer": answer}
        return self.referee.from_rank(rank, {"kind": "report", "run": 1, **facts})

    def end(self, rank: int, *issued: Operation) -> list[Any]:
        out = self.referee.from_rank(rank, {"kind": "operations", "run": 1, "operations": issued})
        stop = Stop(rank, 0, 7, (), Memory(0, 0, ""))
        return out + self.referee.from_rank(rank, {"kind": "stop", "run": 1, "phase": "finished", "stop": stop})


def begins(referee: Referee, size: int = 3) -> list[Any]:
    order = {"kind": "run", "run": 2, "mode": "record", "size": size, "arguments": [b""] * 3}
    return referee.from_kernel(order)


def verdicts(deliveries: list[Any]) -> list[str]:
    return [content["sentence"] for to, content in deliveries if to == "kernel" and content["kind"] == "verdict"]


def test_a_long_wait_asks_the_others_before_it_is_judged() -> None:
    game = Recording()
    game.end(1)
    out = game.report(0, operation(0), waiting=0)
    assert [to for to, content in out if content["kind"] == "report"] == [2]
    assert verdicts(out) == []
    assert verdicts(game.report(2, operation(2), waiting=0)) == [
        "Deadlock: ranks 0, 2 wait in all_reduce (line 6); rank 1 finished without it."
    ]


def test_a_rank_that_cannot_answer_does_not_hold_the_verdict_for_ever() -> None:
    game = Recording()
    game.end(1)
    game.report(0, operation(0), waiting=0)
    assert verdicts(game.report(0, operation(0), waiting=0)) == [
        "Deadlock: rank 0 waits in all_reduce (line 6); rank 1 finished without it."
    ]


def test_an_answer_is_no_second_complaint() -> None:
    game = Recording()
    game.report(0, operation(0), waiting=0)
    game.report(2, operation(2, name="broadcast"), waiting=0)
    out = game.report(0, operation(0), waiting=0, answer=True)
    assert verdicts(out) == [], "rank 1 was asked and has not answered yet"
    (sentence,) = verdicts(game.report(1, operation(1), waiting=0, answer=True))
    assert "ranks 0, 1 call all_reduce" in sentence and "rank 2 calls broadcast" in sentence


def test_a_disagreement_is_said_of_a_rank_that_still_runs_too_unless_it_takes_its_time() -> None:
    game = Recording()
    game.report(0, operation(0), waiting=0)
    game.report(2, operation(2, name="broadcast"), waiting=0, answer=True)
    assert verdicts(game.report(1, waiting=None, answer=True)) == [], "rank 1 has not got there yet"
    (early,) = verdicts(game.report(0, operation(0), waiting=0))
    assert "rank 0 calls all_reduce" in early and "rank 1" not in early


def test_a_slow_rank_is_no_deadlock() -> None:
    game = Recording()
    game.report(0, operation(0), waiting=0)
    game.report(1, operation(1), waiting=0)
    assert verdicts(game.report(2, waiting=None)) == []


def test_a_wait_that_has_ended_after_all_is_forgotten() -> None:
    game = Recording()
    game.report(2, operation(2), waiting=0)
    game.report(0, waiting=None)
    game.report(1, waiting=None)
    assert verdicts(game.end(2, operation(2))) == []
    assert verdicts(game.end(0, operation(0))) == []


def noted(box: blackbox.Blackbox, op: Operation) -> None:
    (first, *_) = op.regions
    assert op.place is not None
    note = (op.name, op.match, op.ranks, (first.role, first.shape, first.dtype), op.peer, op.tag, op.root)
    box.in_operation(op.place.line, op.index, note)


def test_a_dead_rank_is_laid_beside_its_partners() -> None:
    game = Recording()
    for rank, count in ((0, 4), (1, 8)):
        box = blackbox.Blackbox(game.memory, rank)
        noted(box, operation(rank, count=count))
    (sentence,) = verdicts(game.referee.lost(0, "killed by SIGABRT"))
    assert "rank 0 calls all_reduce of 4 x float32" in sentence and "rank 1 calls all_reduce of 8 x float32" in sentence
    assert "rank 0 died in all_reduce (line 6): killed by SIGABRT" in sentence


@pytest.mark.parametrize("ended", [True, False], ids=["after a run", "before any"])
def test_a_recorded_run_is_judged_at_once_when_a_rank_of_it_is_stopped(ended: bool) -> None:
    game = Recording()
    if ended:
        for rank in range(3):
            game.end(rank)
    else:
        game.referee = Referee(3, game.memory)
    assert verdicts(game.referee.stopped(2, "stopped by SIGSTOP")) == []
    assert verdicts(begins(game.referee)) == ["rank 2 is stopped by SIGSTOP: continue it, or run cluster.reset()."]
    assert verdicts(begins(game.referee, size=2)) == [], "it takes no part"
    game.referee.continued(2)
    assert verdicts(begins(game.referee)) == []


def test_a_recorded_run_is_judged_at_once_when_a_rank_of_it_is_gone() -> None:
    game = Recording()
    for rank in range(3):
        game.end(rank)
    assert verdicts(game.referee.lost(1, "killed by SIGKILL")) == []
    assert verdicts(begins(game.referee)) == [
        "rank 1 died: killed by SIGKILL. Run cluster.reset() to have all ranks again."
    ]
