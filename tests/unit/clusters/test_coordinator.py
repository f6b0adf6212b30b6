"""The coordinator, alone: messages in, orders and conclusions out."""

from __future__ import annotations

import socket
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

from kit.clusters.coordinator.coordinator import Coordinator
from kit.clusters.coordinator.run import Delivery, ForKernel, ForRank
from kit.protocol.messages import (
    AtStop,
    Changed,
    CutOff,
    Go,
    How,
    Launch,
    Move,
    Operated,
    PartFailed,
    Posted,
    RankLost,
    RankResumed,
    RankSuspended,
    Refuse,
    Run,
    Settled,
    Task,
    ToCoordinator,
    Waits,
)
from kit.protocol.parcels import Parcel
from kit.protocol.wire import Channel
from kit.trace.facts import Frame, Memory, Operation, Phase, Place, Region, Stop

FOREVER = 10**18
NOW = 100


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


def task(run: int = 1, mode: Any = "step", size: int = 3) -> Task:
    return Task(run, mode, size, None, Parcel(), (), {}, "cell", 0)


class Seen:
    """What the black boxes of ranks would show."""

    def __init__(self) -> None:
        self.lines: dict[int, int] = {}
        self.operations: dict[int, Operation] = {}

    def last_line(self, rank: int) -> int:
        return self.lines.get(rank, 0)

    def last_operations(self, rank: int) -> tuple[Operation, ...]:
        return (self.operations[rank],) if rank in self.operations else ()


class Game:
    """A coordinator of three ranks that run one stepped function."""

    def __init__(self, coordinator: Coordinator | None = None) -> None:
        self.sight = Seen()
        self.coordinator = coordinator or Coordinator(3, self.sight)
        self.stops = [0, 0, 0]
        self.told = [0, 0, 0]  # to go, by rank
        self.to_kernel: list[Any] = []
        self.to_ranks: list[tuple[int, Any]] = []
        self.tell(Run(task(), (b"",) * 3, patience=FOREVER))
        self.to_ranks.clear()

    def tell(self, message: ToCoordinator, now: int = NOW) -> None:
        self.take(self.coordinator.hear(message, now))

    def take(self, deliveries: list[Delivery]) -> None:
        for delivery in deliveries:
            match delivery:
                case ForKernel(message):
                    self.to_kernel.append(message)
                case ForRank(rank, order):
                    self.to_ranks.append((rank, order))
                    self.told[rank] += isinstance(order, Go)

    def stop(self, rank: int, line: int = 3, phase: Phase = "paused", missed: int = 0) -> None:
        """missed: orders to go that were on their way as it came to a stop."""
        stop = Stop(rank, self.stops[rank], 7, (Frame(at(line), (), ()),), Memory(0, 0, ""))
        self.stops[rank] += 1
        self.tell(AtStop(1, rank, phase, stop, {}, (0, 7), obeyed=self.told[rank] - missed))

    def move(self, *ranks: int, how: How = "step") -> None:
        self.tell(Move(1, 1, ranks, how, FOREVER))

    def post(self, posted: Operation, wait: bool = True) -> None:
        self.tell(Posted(1, posted.rank, posted))
        if wait:
            self.tell(Waits(1, posted.rank, posted.index, 9))

    def settled(self) -> Settled:
        assert self.is_settled()
        found: Settled = [m for m in self.to_kernel if isinstance(m, Settled)][-1]
        return found

    def is_settled(self) -> bool:
        return any(isinstance(m, Settled) for m in self.to_kernel)

    def orders(self, kind: type) -> list[int]:
        return [rank for rank, order in self.to_ranks if isinstance(order, kind)]


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
    assert not game.is_settled()
    game.stop(2)
    settled = game.settled()
    assert [s.phase for s in settled.states] == ["paused"] * 3


def test_a_rank_that_came_to_a_stop_as_it_was_told_to_go_on_has_not_come_to_rest(game: Game) -> None:
    game.move(0, 1, 2)
    for rank in (0, 1):
        game.stop(rank)
    game.take(game.coordinator.tick(2 * FOREVER))
    assert game.settled().states[2].phase == "running", "the motion's time was over before rank 2 came to a stop"
    game.to_kernel.clear()
    game.move(0, 1, 2, how="finish")
    game.stop(2, missed=1)
    for rank in (0, 1):
        game.stop(rank, phase="finished")
    assert not game.is_settled()
    game.stop(2, phase="finished")
    assert [state.phase for state in game.settled().states] == ["finished"] * 3


def test_an_operation_is_launched_on_all_once_the_last_has_posted(game: Game) -> None:
    game.move(0, 1, 2)
    game.post(operation(0))
    game.post(operation(2))
    assert game.orders(Launch) == []
    game.post(operation(1))
    assert sorted(game.orders(Launch)) == [0, 1, 2]
    assert not game.is_settled(), "the freed ranks still complete their line"


def test_a_wait_for_a_held_rank_ends_the_motion_without_a_verdict(game: Game) -> None:
    game.move(0, 2)
    game.post(operation(0))
    game.post(operation(2))
    settled = game.settled()
    assert settled.verdict is None
    assert [(s.phase, s.waiting_for) for s in settled.states] == [
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
    assert settled.verdict == "Deadlock: ranks 0, 2 wait in all_reduce (line 6); rank 1 finished without it."


def test_a_misfit_is_refused_once_nobody_moves_any_more_and_names_all(game: Game) -> None:
    game.move(0, 1, 2)
    game.post(operation(0, count=6))
    game.post(operation(1))
    assert game.orders(Refuse) == [], "rank 2 may still come"
    game.post(operation(2))
    assert sorted(game.orders(Refuse)) == [0, 1, 2]
    sentences = {order.sentence for _, order in game.to_ranks if isinstance(order, Refuse)}
    (sentence,) = sentences
    assert "rank 0 calls all_reduce of 6 x float32" in sentence and "ranks 1, 2 call" in sentence


def test_a_misfit_is_refused_while_another_rank_is_held_and_it_is_told_later(game: Game) -> None:
    game.move(0, 1)
    game.post(operation(0, count=6))
    game.post(operation(1))
    assert sorted(game.orders(Refuse)) == [0, 1]
    game.stop(0, phase="failed")
    game.stop(1, phase="failed")
    game.move(2)
    game.post(operation(2))
    assert game.orders(Refuse).count(2) == 1


def test_who_is_still_at_their_part_is_told_when_another_s_failed(game: Game) -> None:
    game.move(0, 1, 2)
    for rank in range(3):
        game.post(operation(rank))
    game.tell(Operated(1, 2, replace(operation(2), began=10, ended=11)))
    game.tell(PartFailed(1, 0, 0, "RuntimeError: no. " + "More of it. " * 50))
    ((rank, order),) = [(rank, order) for rank, order in game.to_ranks if isinstance(order, CutOff)]
    assert rank == 1 and order.index == 0
    assert order.sentence.startswith("rank 0 could not do its part of all_reduce: RuntimeError: no. More")
    assert len(order.sentence) < 300
    assert not game.is_settled(), "it is told, and will say itself what became of it"
    game.tell(PartFailed(1, 1, 0, "PartnerFailed: told"))
    assert game.orders(CutOff) == [1], "nobody is told twice"


def test_messages_meet_in_order_and_only_their_own_ranks_are_launched(game: Game) -> None:
    game.move(0, 1)
    game.post(message(0, "send", 1))
    game.post(message(1, "recv", 0))
    assert sorted(game.orders(Launch)) == [0, 1]


def test_both_sending_first_is_a_circle(game: Game) -> None:
    game.move(0, 1)
    game.post(message(0, "send", 1))
    game.post(message(1, "send", 0))
    settled = game.settled()
    assert "each waits for the other" in settled.verdict


def test_a_receive_from_any_source_is_told_its_sender(game: Game) -> None:
    game.move(0, 2)
    game.post(message(0, "recv", -1))
    game.post(message(2, "send", 0))
    sources = {rank: order.source for rank, order in game.to_ranks if isinstance(order, Launch)}
    assert sources == {0: 2, 2: None}


def test_tags_keep_messages_apart(game: Game) -> None:
    game.move(0, 1)
    game.post(message(0, "send", 1, tag=1), wait=False)
    game.post(message(1, "recv", 0, tag=2))
    assert game.orders(Launch) == []


def test_stepping_a_waiting_rank_gives_no_order_but_finishing_it_does(game: Game) -> None:
    game.move(0)
    game.post(operation(0))
    game.to_ranks.clear()
    game.move(0)
    assert game.orders(Go) == []
    game.move(0, how="finish")
    assert game.orders(Go) == [0]


def test_a_motion_ends_at_its_time_with_the_line_the_black_box_saw(game: Game) -> None:
    game.move(0)
    game.sight.lines[0] = 42
    deadline = game.coordinator.next_deadline
    assert deadline is not None
    game.take(game.coordinator.tick(deadline - 1))
    assert not game.is_settled()
    game.take(game.coordinator.tick(deadline))
    settled = game.settled()
    assert settled.states[0].phase == "running"
    assert settled.states[0].place.line == 42
    game.stop(0)
    assert isinstance(game.to_kernel[-1], Changed), "what comes to rest later is told as well"


def test_death_and_stop_are_told_without_a_motion(game: Game) -> None:
    game.tell(RankLost(0, 1, "killed by SIGKILL"))
    assert str(game.to_kernel[-1].states[1]) == "rank 1 died: killed by SIGKILL"
    game.tell(RankSuspended(0, 0, "stopped by SIGSTOP"))
    assert game.to_kernel[-1].states[0].phase == "stopped"
    game.tell(RankResumed(0, 0))
    assert game.to_kernel[-1].states[0].phase == "paused"


def test_a_rank_stopped_before_the_run_is_stopped_in_it() -> None:
    game = Game()
    for rank in range(3):
        game.stop(rank, phase="finished")
    game.tell(RankSuspended(0, 1, "stopped by SIGSTOP"))
    game.tell(Run(task(run=2), (b"",) * 3, patience=FOREVER))
    assert [state.phase for state in game.coordinator.states(NOW)] == ["running", "stopped", "running"]
    game.tell(RankResumed(0, 1))
    assert [state.phase for state in game.coordinator.states(NOW)] == ["running"] * 3


def test_words_of_an_earlier_run_are_not_heard(game: Game) -> None:
    assert game.coordinator.hear(Posted(0, 0, operation(0)), NOW) == []


def test_what_a_dead_rank_had_asked_for_is_not_done_when_its_partners_come(game: Game) -> None:
    game.move(0, 1, 2)
    game.post(operation(0))
    game.tell(RankLost(0, 0, "killed by SIGKILL"))
    game.post(operation(1))
    game.post(operation(2))
    assert game.orders(Launch) == []
    settled = game.settled()
    assert [state.phase for state in settled.states] == ["dead", "waiting", "waiting"]
    assert settled.verdict == "Deadlock: ranks 1, 2 wait in all_reduce (line 6); rank 0 died."


def test_a_message_that_nobody_takes_is_said_once_all_have_ended(game: Game) -> None:
    game.move(0, 1, 2)
    game.post(message(0, "send", 1), wait=False)
    game.stop(0, phase="finished")
    game.stop(1)
    game.stop(2, phase="finished")
    assert game.settled().verdict is None, "rank 1 may still take it"
    game.move(1)
    game.stop(1, phase="finished")
    assert game.settled().verdict == "rank 0 calls send to rank 1 (line 4); rank 1 finished without it."


def test_each_caller_of_what_was_left_alone_is_seen_in_its_own_line(game: Game) -> None:
    game.move(0, 1, 2)
    game.post(operation(0), wait=False)
    game.post(replace(operation(2), place=at(9)), wait=False)
    for rank in range(3):
        game.stop(rank, phase="finished")
    assert game.settled().verdict == (
        "rank 0 calls all_reduce (line 6), rank 2 calls all_reduce (line 9); rank 1 finished without it."
    )


def test_messages_that_their_tags_alone_keep_apart(game: Game) -> None:
    game.move(0, 1, 2)
    game.post(message(0, "send", 1, tag=3))
    game.post(message(1, "recv", 0, tag=4))
    game.stop(2, phase="finished")
    assert game.settled().verdict == (
        "Deadlock: rank 0 waits in send to rank 1 (line 4), rank 1 waits in recv from rank 0 (line 4). Rank 0 sends to "
        "rank 1 with tag 3 (line 4), rank 1 receives with tag 4 (line 4): a message and its receive must have the same "
        "tag."
    )


def test_time_is_what_the_host_says(game: Game) -> None:
    game.tell(Move(1, 1, (0,), "step", patience=50), now=1000)
    assert game.coordinator.next_deadline == 1050
    assert game.coordinator.states(1020)[0].since == 1000


class Elsewhere(Coordinator):
    """A coordinator in another process, reached by messages alone."""

    script = (
        "import socket, sys\n"
        "from kit.clusters.coordinator.coordinator import Coordinator\n"
        "from kit.protocol.wire import Channel\n"
        "from tests.unit.clusters.test_coordinator import Seen\n"
        "channel, coordinator = Channel(socket.socket(fileno=int(sys.argv[1]))), Coordinator(3, Seen())\n"
        "while (told := channel.receive()) is not None:\n"
        "    channel.send(coordinator.hear(*told))\n"
    )

    def __init__(self, channel: Channel[list[Delivery], tuple[ToCoordinator, int]]) -> None:
        self._channel = channel

    def hear(self, message: ToCoordinator, now: int) -> list[Delivery]:
        self._channel.send((message, now))
        answer = self._channel.receive()
        assert answer is not None
        return answer


def test_it_can_stand_in_another_process() -> None:
    here, there = socket.socketpair()
    with (
        here,
        there,
        subprocess.Popen(
            [sys.executable, "-c", Elsewhere.script, str(there.fileno())], pass_fds=[there.fileno()]
        ) as process,
    ):
        there.close()
        game = Game(Elsewhere(Channel(here)))
        for rank in range(3):
            game.stop(rank)
        game.move(0, 1, 2)
        game.post(operation(0))
        game.stop(1, phase="finished")
        game.post(operation(2))
        here.close()
        assert process.wait(60) == 0
    verdict = game.settled().verdict
    assert verdict == "Deadlock: ranks 0, 2 wait in all_reduce (line 6); rank 1 finished without it."


def test_it_needs_no_clock_no_file_no_socket_and_no_torch() -> None:
    """Its modules name none of these, and importing them loads no more than numpy does."""
    script = (
        "import sys, numpy, dataclasses, typing, abc\n"
        "numpys = set(sys.modules)\n"
        "import kit.clusters.coordinator.coordinator\n"
        "ours = [m for n, m in sys.modules.items() if n.startswith('kit.clusters.coordinator.')]\n"
        "held = {x.__name__ for m in ours for x in vars(m).values() if type(x) is type(sys)}\n"
        "print(len(ours), sorted(held), sorted({'torch', 'mmap', 'socket', 'selectors', 'ipyparallel'}"
        " & (set(sys.modules) - numpys)))\n"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    count, rest = run.stdout.strip().split(" ", 1)
    assert int(count) >= 5 and rest == "[] []", run.stdout + run.stderr
