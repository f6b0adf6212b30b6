"""The coordinator of a recorded run, alone: long waits, questions to the ranks, answers, verdicts."""

from __future__ import annotations

import pytest

from kit.clusters.coordinator.coordinator import Coordinator
from kit.clusters.coordinator.run import Delivery, ForKernel, ForRank
from kit.protocol.messages import (
    AtStop,
    Operations,
    RankLost,
    RankResumed,
    RankSuspended,
    Report,
    ReportPlease,
    Run,
    Verdict,
)
from kit.trace.facts import Memory, Operation, Stop
from tests.unit.clusters.test_coordinator import NOW, Seen, at, operation, task


class Recording:
    """A coordinator of three ranks that run one recorded function."""

    def __init__(self) -> None:
        self.sight = Seen()
        self.coordinator = Coordinator(3, self.sight)
        self.coordinator.hear(Run(task(mode="record"), (b"",) * 3), NOW)

    def report(self, rank: int, *issued: Operation, waiting: int | None, answer: bool = False) -> list[Delivery]:
        return self.coordinator.hear(Report(1, rank, issued, waiting, at(6), answer), NOW)

    def end(self, rank: int, *issued: Operation) -> list[Delivery]:
        out = self.coordinator.hear(Operations(1, rank, issued), NOW)
        stop = Stop(rank, 0, 7, (), Memory(0, 0, ""))
        return out + self.coordinator.hear(AtStop(1, rank, "finished", stop, {}, (0, 7)), NOW)

    def lost(self, rank: int, detail: str) -> list[Delivery]:
        return self.coordinator.hear(RankLost(0, rank, detail), NOW)


def begins(coordinator: Coordinator, size: int = 3) -> list[Delivery]:
    return coordinator.hear(Run(task(2, "record", size), (b"",) * 3), NOW)


def verdicts(deliveries: list[Delivery]) -> list[str]:
    told = [delivery.message for delivery in deliveries if isinstance(delivery, ForKernel)]
    return [message.sentence for message in told if isinstance(message, Verdict)]


def test_a_long_wait_asks_the_others_before_it_is_judged() -> None:
    game = Recording()
    game.end(1)
    out = game.report(0, operation(0), waiting=0)
    assert [delivery for delivery in out if isinstance(delivery, ForRank)] == [ForRank(2, ReportPlease(1))]
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


def test_a_dead_rank_is_laid_beside_its_partners() -> None:
    game = Recording()
    for rank, count in ((0, 4), (1, 8)):
        game.sight.operations[rank] = operation(rank, count=count)
    (sentence,) = verdicts(game.lost(0, "killed by SIGABRT"))
    assert "rank 0 calls all_reduce of 4 x float32" in sentence and "rank 1 calls all_reduce of 8 x float32" in sentence
    assert "rank 0 died in all_reduce (line 6): killed by SIGABRT" in sentence


@pytest.mark.parametrize("ended", [True, False], ids=["after a run", "before any"])
def test_a_recorded_run_is_judged_at_once_when_a_rank_of_it_is_stopped(ended: bool) -> None:
    game = Recording()
    if ended:
        for rank in range(3):
            game.end(rank)
    else:
        game.coordinator = Coordinator(3, game.sight)
    assert verdicts(game.coordinator.hear(RankSuspended(0, 2, "stopped by SIGSTOP"), NOW)) == []
    assert verdicts(begins(game.coordinator)) == ["rank 2 is stopped by SIGSTOP: continue it, or run cluster.reset()."]
    assert verdicts(begins(game.coordinator, size=2)) == [], "it takes no part"
    game.coordinator.hear(RankResumed(0, 2), NOW)
    assert verdicts(begins(game.coordinator)) == []


def test_a_recorded_run_is_judged_at_once_when_a_rank_of_it_is_gone() -> None:
    game = Recording()
    for rank in range(3):
        game.end(rank)
    assert verdicts(game.lost(1, "killed by SIGKILL")) == []
    assert verdicts(begins(game.coordinator)) == [
        "rank 1 died: killed by SIGKILL. Run cluster.reset() to have all ranks again."
    ]
