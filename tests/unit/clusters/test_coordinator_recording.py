"""The coordinator of a recorded run, alone: long waits, questions to the ranks, answers, verdicts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kit.clusters.coordinator.coordinator import Coordinator
from kit.clusters.coordinator.run import Delivery, ForKernel, ForRank
from kit.protocol.messages import (
    AtStop,
    Look,
    Looked,
    Operations,
    RankLost,
    RankResumed,
    RankSuspended,
    Report,
    ReportPlease,
    Run,
    Verdict,
    Where,
    WherePlease,
)
from kit.trace.facts import Memory, Operation, RankState, Stop
from tests.unit.clusters.test_coordinator import NOW, Seen, at, operation, task

PATIENCE = 50


class Recording:
    """A coordinator of three ranks that run one recorded function."""

    def __init__(self) -> None:
        self.sight = Seen()
        self.coordinator = Coordinator(3, self.sight)
        self.coordinator.hear(Run(task(mode="record"), (b"",) * 3, PATIENCE), NOW)

    def report(
        self, rank: int, *issued: Operation, waiting: int | None, answer: bool = False, now: int = NOW
    ) -> list[Delivery]:
        return self.coordinator.hear(Report(1, rank, issued, waiting, at(6), answer), now)

    def end(self, rank: int, *issued: Operation) -> list[Delivery]:
        out = self.coordinator.hear(Operations(1, rank, issued), NOW)
        stop = Stop(rank, 0, 7, (), Memory(0, 0, ""))
        return out + self.coordinator.hear(AtStop(1, rank, "finished", stop, {}, (0, 7)), NOW)

    def loses_patience(self) -> list[Delivery]:
        deadline = self.coordinator.next_deadline
        assert deadline is not None
        assert verdicts(self.coordinator.tick(deadline - 1)) == []
        return self.coordinator.tick(deadline)

    def lost(self, rank: int, detail: str) -> list[Delivery]:
        return self.coordinator.hear(RankLost(0, rank, detail), NOW)


def asked(deliveries: list[Delivery]) -> list[int]:
    assert all(delivery.message == ReportPlease(1) for delivery in deliveries if isinstance(delivery, ForRank))
    return [delivery.rank for delivery in deliveries if isinstance(delivery, ForRank)]


def begins(coordinator: Coordinator, size: int = 3) -> list[Delivery]:
    return coordinator.hear(Run(task(2, "record", size), (b"",) * 3, PATIENCE), NOW)


def verdicts(deliveries: list[Delivery]) -> list[str]:
    told = [delivery.message for delivery in deliveries if isinstance(delivery, ForKernel)]
    return [message.sentence for message in told if isinstance(message, Verdict)]


def test_a_long_wait_asks_the_others_before_it_is_judged() -> None:
    game = Recording()
    game.end(1)
    out = game.report(0, operation(0), waiting=0)
    assert asked(out) == [2]
    assert verdicts(out) == []
    assert verdicts(game.report(2, operation(2), waiting=0)) == [
        "Deadlock: ranks 0, 2 wait in all_reduce (line 6); rank 1 finished without it."
    ]


def test_a_rank_that_cannot_answer_does_not_hold_the_verdict_for_ever() -> None:
    game = Recording()
    game.end(1)
    game.report(0, operation(0), waiting=0)
    assert verdicts(game.report(0, operation(0), waiting=0, now=NOW + PATIENCE - 1)) == []
    assert verdicts(game.loses_patience()) == [
        "Deadlock: rank 0 waits in all_reduce (line 6); rank 1 finished without it. Rank 2 still runs."
    ]
    assert game.coordinator.next_deadline is None


def test_a_disagreement_is_said_of_all_who_come_to_it() -> None:
    game = Recording()
    game.report(0, operation(0), waiting=0)
    game.report(2, operation(2, name="broadcast"), waiting=0)
    for now in range(NOW, NOW + PATIENCE, 10):  # however often the others complain meanwhile
        assert verdicts(game.report(1, waiting=None, answer=True, now=now)) == [], "rank 1 has not got there yet"
        assert verdicts(game.report(0, operation(0), waiting=0, now=now)) == []
    (sentence,) = verdicts(game.report(1, operation(1), waiting=0, answer=True))
    assert "ranks 0, 1 call all_reduce" in sentence and "rank 2 calls broadcast" in sentence
    assert game.coordinator.next_deadline is None, "it is said once"


def test_one_behind_a_disagreement_hangs_because_of_it() -> None:
    """All three stand in a barrier that all have come to; what they launched before it did not fit."""
    game = Recording()
    barrier = [operation(rank, 1, name="barrier", match="0/c/1") for rank in range(3)]
    game.report(0, operation(0), barrier[0], waiting=1)
    game.report(1, operation(1), barrier[1], waiting=1, answer=True)
    (sentence,) = verdicts(game.report(2, operation(2, name="broadcast"), barrier[2], waiting=1, answer=True))
    assert "ranks 0, 1 call all_reduce" in sentence and "rank 2 calls broadcast" in sentence


def test_one_behind_operations_that_fit_may_yet_end() -> None:
    game = Recording()
    barrier = [operation(rank, 1, name="barrier", match="0/c/1") for rank in range(3)]
    for rank in range(3):
        said = game.report(rank, operation(rank), barrier[rank], waiting=1, answer=rank > 0)
        assert verdicts(said) == [] and game.coordinator.next_deadline is None


def test_a_disagreement_is_said_without_a_rank_that_takes_its_time() -> None:
    game = Recording()
    game.report(0, operation(0), waiting=0)
    game.report(2, operation(2, name="broadcast"), waiting=0, answer=True)
    (early,) = verdicts(game.loses_patience())
    assert "rank 0 calls all_reduce" in early and early.endswith(" in the same order. Rank 1 still runs.")


def test_a_look_tells_where_all_ranks_are() -> None:
    game = Recording()
    game.sight.lines[2] = 9
    out = game.coordinator.hear(Look(1), NOW)
    assert [(d.rank, d.message) for d in out if isinstance(d, ForRank)] == [(rank, WherePlease(1)) for rank in range(3)]
    assert looked(game.coordinator.hear(Where(1, 0, at(6), operation(0), 2.0), NOW)) is None
    assert looked(game.coordinator.hear(Where(1, 1, at(4), None, 2.0), NOW)) is None
    deadline = game.coordinator.next_deadline
    assert deadline is not None
    states = looked(game.coordinator.tick(deadline))
    assert states is not None
    waiting, still, silent = states
    assert (waiting.phase, waiting.operation, waiting.place) == ("waiting", "all_reduce", at(6))
    assert (still.phase, still.place, still.detail[:15]) == ("running", at(4), "it stands still")
    assert silent.place is not None
    assert (silent.phase, silent.place.line, silent.detail[:18]) == ("running", 9, "it does not answer")
    assert game.coordinator.next_deadline is None, "it is said once"
    game.coordinator.hear(Look(1), NOW)
    for rank in range(2):
        assert looked(game.coordinator.hear(Where(1, rank, at(7), None), NOW)) is None
    states = looked(game.coordinator.hear(Where(1, 2, None, None, loads=True), NOW))
    assert states is not None and [(s.phase, s.detail[:14]) for s in states[:2]] == [("running", "")] * 2
    assert states[2].detail == "it still loads the function and what that imports"


def test_who_looks_again_and_again_is_told_as_soon_as_who_looks_once() -> None:
    game = Recording()
    game.coordinator.hear(Look(1), NOW)
    deadline = game.coordinator.next_deadline
    assert deadline is not None
    assert game.coordinator.hear(Look(1), deadline - 1) == [], "the ranks have been asked"
    assert game.coordinator.next_deadline == deadline
    assert looked(game.coordinator.tick(deadline)) is not None


def looked(deliveries: list[Delivery]) -> tuple[RankState, ...] | None:
    told = [delivery.message for delivery in deliveries if isinstance(delivery, ForKernel)]
    return next((message.states for message in told if isinstance(message, Looked)), None)


def test_a_rank_seen_in_a_wait_that_may_be_over_is_asked_again_and_waited_for() -> None:
    game = Recording()
    first, second = operation(1), operation(1, 1, match="0/c/1")
    game.report(1, first, waiting=0)
    game.report(0, operation(0), operation(0, 1, match="0/c/1"), waiting=1)
    clash = operation(2, 1, name="broadcast", match="0/c/1")
    out = game.report(2, operation(2), clash, waiting=1)
    assert asked(out) == [1] and verdicts(out) == [], "all have come to what rank 1 waited in"
    (sentence,) = verdicts(game.report(1, first, second, waiting=1, answer=True))
    assert "ranks 0, 1 call all_reduce" in sentence and "rank 2 calls broadcast" in sentence


def test_patience_begins_anew_when_what_was_to_be_said_has_not_come_true() -> None:
    game = Recording()
    game.end(1)
    game.report(0, operation(0), waiting=0)
    assert game.coordinator.next_deadline == NOW + PATIENCE
    game.report(0, operation(0), waiting=None, answer=True)
    assert game.coordinator.next_deadline is None


def test_what_a_rank_said_before_its_end_is_not_heard_after_it() -> None:
    game = Recording()
    game.end(1, operation(1))
    assert game.report(1, waiting=None) == []
    assert verdicts(game.report(0, operation(0), waiting=0)) == []
    assert verdicts(game.end(2, operation(2))) == []


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
    assert sentence.startswith("rank 0 died in all_reduce (line 6) or after it: killed by SIGABRT. rank 0 calls")


def test_what_is_not_known_of_a_dead_rank_is_not_held_against_it() -> None:
    game = Recording()
    game.sight.operations[0] = replace(operation(0), regions=(), reduce=None)  # of a list no tensor is noted
    for rank in (1, 2):
        game.sight.operations[rank] = operation(rank, reduce="SUM")
    (sentence,) = verdicts(game.lost(0, "killed by SIGKILL"))
    assert sentence == (
        "rank 0 died in all_reduce (line 6) or after it: killed by SIGKILL. "
        "Run cluster.reset() to have all ranks again."
    )


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
