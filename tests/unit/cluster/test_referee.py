"""The referee without processes: events in, orders and conclusions out."""

from __future__ import annotations

from typing import Any

import pytest

from kit.cluster.referee import Referee
from kit.probe import blackbox
from kit.trace.facts import Frame, Memory, Operation, Place, Region, Stop

FOREVER = 10**18


def at(line: int) -> Place:
    return Place("cell", line, "f")


def operation(rank: int, index: int = 0, name: str = "all_reduce", count: int = 4, **facts: Any) -> Operation:
    regions = (Region("inout", 1, 0, (count,), "float32"),)
    match = facts.pop("match", "0/c/0")
    return Operation(rank, index, name, "0", (0, 1, 2), match, at(6), regions, 4 * count, 5, **facts)


def message(rank: int, name: str, peer: int, count: int = 4, tag: int = 0) -> Operation:
    pair = f"{rank}>{peer}" if name == "send" else f"{peer}>{rank}"
    role = "in" if name == "send" else "out"
    regions = (Region(role, 1, 0, (count,), "float32"),)  # type: ignore[arg-type]
    return Operation(
        rank, 0, name, "0", (0, 1, 2), f"0/p/{pair}/{tag}/0", at(4), regions, 4 * count, 5, peer=peer, tag=tag
    )


class Game:
    """A referee of three ranks that runs one stepped function."""

    def __init__(self) -> None:
        self.memory = blackbox.create(3)
        self.referee = Referee(3, self.memory)
        self.stops = [0, 0, 0]
        self.to_kernel: list[dict[str, Any]] = []
        self.to_ranks: list[tuple[int, dict[str, Any]]] = []
        order = {"kind": "run", "run": 1, "mode": "step", "size": 3, "motion": 0, "patience": FOREVER}
        self.take(self.referee.from_kernel({**order, "arguments": [b""] * 3}))
        self.to_ranks.clear()

    def take(self, deliveries: list[Any]) -> None:
        for destination, content in deliveries:
            if destination == "kernel":
                self.to_kernel.append(content)
            else:
                self.to_ranks.append((destination, content))

    def stop(self, rank: int, line: int = 3, phase: str = "paused") -> None:
        stop = Stop(rank, self.stops[rank], 7, (Frame(at(line), (), ()),), Memory(0, 0, ""))
        self.stops[rank] += 1
        self.take(self.referee.from_rank(rank, {"kind": "stop", "run": 1, "phase": phase, "stop": stop}))

    def move(self, *ranks: int, how: str = "step") -> None:
        order = {"kind": "move", "run": 1, "motion": 1, "how": how, "ranks": ranks, "patience": FOREVER}
        self.take(self.referee.from_kernel(order))

    def post(self, posted: Operation, wait: bool = True) -> None:
        rank = posted.rank
        self.take(self.referee.from_rank(rank, {"kind": "post", "run": 1, "operation": posted}))
        if wait:
            waiting = {"kind": "wait", "run": 1, "index": posted.index, "since": 9}
            self.take(self.referee.from_rank(rank, waiting))

    def settled(self) -> dict[str, Any] | None:
        found = [m for m in self.to_kernel if m["kind"] == "settled"]
        return found[-1] if found else None

    def orders(self, kind: str) -> list[int]:
        return [rank for rank, content in self.to_ranks if content["kind"] == kind]


@pytest.fixture
def game() -> Game:
    game = Game()
    for rank in range(3):
        game.stop(rank)
    game.to_kernel.clear()
    return game


def test_a_motion_is_over_when_the_last_rank_pauses(game: Game) -> None:
    game.move(0, 1, 2)
    game.stop(0)
    game.stop(1)
    assert game.settled() is None
    game.stop(2)
    settled = game.settled()
    assert settled is not None and [s.phase for s in settled["states"]] == ["paused"] * 3


def test_an_operation_is_launched_on_all_once_the_last_has_posted(game: Game) -> None:
    game.move(0, 1, 2)
    game.post(operation(0))
    game.post(operation(2))
    assert game.orders("launch") == []
    game.post(operation(1))
    assert sorted(game.orders("launch")) == [0, 1, 2]
    assert game.settled() is None, "the freed ranks still complete their line"


def test_a_wait_for_a_held_rank_ends_the_motion_without_a_verdict(game: Game) -> None:
    game.move(0, 2)
    game.post(operation(0))
    game.post(operation(2))
    settled = game.settled()
    assert settled is not None and settled["verdict"] is None
    assert [(s.phase, s.waiting_for) for s in settled["states"]] == [
        ("waiting", (1,)),
        ("paused", ()),
        ("waiting", (1,)),
    ]


def test_a_rank_that_finished_makes_it_a_deadlock(game: Game) -> None:
    game.move(0, 1, 2)
    game.post(operation(0))
    game.stop(1, phase="finished")
    game.post(operation(2))
    settled = game.settled()
    assert settled is not None
    assert settled["verdict"] == "Deadlock: ranks 0, 2 wait in all_reduce (line 6); rank 1 finished without it."


def test_a_misfit_is_refused_once_nobody_moves_any_more_and_names_all(game: Game) -> None:
    game.move(0, 1, 2)
    game.post(operation(0, count=6))
    game.post(operation(1))
    assert game.orders("refuse") == [], "rank 2 may still come"
    game.post(operation(2))
    assert sorted(game.orders("refuse")) == [0, 1, 2]
    sentences = {content["sentence"] for _, content in game.to_ranks if content["kind"] == "refuse"}
    (sentence,) = sentences
    assert "rank 0 calls all_reduce of 6 x float32" in sentence and "ranks 1, 2 call" in sentence


def test_a_misfit_is_refused_while_another_rank_is_held_and_it_is_told_later(game: Game) -> None:
    game.move(0, 1)
    game.post(operation(0, count=6))
    game.post(operation(1))
    assert sorted(game.orders("refuse")) == [0, 1]
    game.stop(0, phase="failed")
    game.stop(1, phase="failed")
    game.move(2)
    game.post(operation(2))
    assert game.orders("refuse").count(2) == 1


def test_messages_meet_in_order_and_only_their_own_ranks_are_launched(game: Game) -> None:
    game.move(0, 1)
    game.post(message(0, "send", 1))
    game.post(message(1, "recv", 0))
    assert sorted(game.orders("launch")) == [0, 1]


def test_both_sending_first_is_a_circle(game: Game) -> None:
    game.move(0, 1)
    game.post(message(0, "send", 1))
    game.post(message(1, "send", 0))
    settled = game.settled()
    assert settled is not None and "each waits for the other" in settled["verdict"]


def test_a_receive_from_any_source_is_told_its_sender(game: Game) -> None:
    game.move(0, 2)
    game.post(message(0, "recv", -1))
    game.post(message(2, "send", 0))
    launches = {rank: content for rank, content in game.to_ranks if content["kind"] == "launch"}
    assert launches[0]["source"] == 2 and "source" not in launches[2]


def test_tags_keep_messages_apart(game: Game) -> None:
    game.move(0, 1)
    game.post(message(0, "send", 1, tag=1), wait=False)
    game.post(message(1, "recv", 0, tag=2))
    assert game.orders("launch") == []


def test_stepping_a_waiting_rank_gives_no_order_but_finishing_it_does(game: Game) -> None:
    game.move(0)
    game.post(operation(0))
    game.to_ranks.clear()
    game.move(0)
    assert game.orders("move") == []
    game.move(0, how="finish")
    assert game.orders("move") == [0]


def test_a_motion_ends_at_its_time_with_the_line_the_black_box_saw(game: Game) -> None:
    game.move(0)
    blackbox.Blackbox(game.memory, 0).at_line(42)
    deadline = game.referee.next_deadline()
    assert deadline is not None
    game.take(game.referee.tick(deadline - 1))
    assert game.settled() is None
    game.take(game.referee.tick(deadline))
    settled = game.settled()
    assert settled is not None and settled["states"][0].phase == "running"
    assert settled["states"][0].place.line == 42
    game.stop(0)
    assert game.to_kernel[-1]["kind"] == "changed", "what comes to rest later is told as well"


def test_death_and_stop_are_told_without_a_motion(game: Game) -> None:
    game.take(game.referee.lost(1, "killed by SIGKILL"))
    assert str(game.to_kernel[-1]["states"][1]) == "rank 1 died: killed by SIGKILL"
    game.take(game.referee.stopped(0, "stopped by SIGSTOP"))
    assert game.to_kernel[-1]["states"][0].phase == "stopped"
    game.take(game.referee.continued(0))
    assert game.to_kernel[-1]["states"][0].phase == "paused"


def test_a_rank_stopped_before_the_run_is_stopped_in_it() -> None:
    game = Game()
    for rank in range(3):
        game.stop(rank, phase="finished")
    game.take(game.referee.stopped(1, "stopped by SIGSTOP"))
    order = {"kind": "run", "run": 2, "mode": "step", "size": 3, "motion": 0, "patience": FOREVER}
    game.take(game.referee.from_kernel({**order, "arguments": [b""] * 3}))
    assert [state.phase for state in game.referee.states()] == ["running", "stopped", "running"]
    game.take(game.referee.continued(1))
    assert [state.phase for state in game.referee.states()] == ["running"] * 3


def test_words_of_an_earlier_run_are_not_heard(game: Game) -> None:
    late = {"kind": "post", "run": 0, "operation": operation(0)}
    assert game.referee.from_rank(0, late) == []
