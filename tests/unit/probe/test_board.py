"""When a transfer is over: the ranks of one host agree on it, and links are taken one transfer at a time."""

from __future__ import annotations

from pathlib import Path

import pytest

from kit.probe.links import board as boards_module
from kit.probe.links.board import WIDTH, Board, Transfer

BUSY, LATENCY = 2.0, 0.5


def message(name: str, source: int, destination: int, asked: float) -> Transfer:
    return Transfer(name, (source,), (destination,), BUSY, LATENCY, asked)


def everybody(name: str, ranks: tuple[int, ...], asked: float) -> Transfer:
    return Transfer(name, ranks, ranks, BUSY, LATENCY, asked)


@pytest.fixture
def boards(tmp_path: Path) -> list[Board]:
    """Of three ranks."""
    return [Board(str(tmp_path / "links"), run=1) for _ in range(3)]


def test_it_begins_when_the_last_has_asked_and_all_are_told_the_same(boards: list[Board]) -> None:
    first, second = message("a", 0, 1, 10.0), message("a", 0, 1, 11.0)
    assert boards[0].ask(first) is None
    assert boards[0].due(first) is None
    assert boards[1].ask(second) == 11.0 + BUSY + LATENCY
    assert boards[0].due(first) == 11.0 + BUSY + LATENCY


def test_a_link_is_taken_until_the_last_byte_has_left(boards: list[Board]) -> None:
    for name, destination in (("a", 1), ("b", 2)):
        boards[0].ask(message(name, 0, destination, 10.0))
    assert boards[1].ask(message("a", 0, 1, 10.0)) == 10.0 + BUSY + LATENCY
    assert boards[2].ask(message("b", 0, 2, 10.0)) == 10.0 + 2 * BUSY + LATENCY


def test_whose_partner_is_late_holds_up_nobody(boards: list[Board]) -> None:
    boards[0].ask(message("a", 0, 1, 10.0))
    boards[0].ask(message("b", 0, 2, 10.0))
    assert boards[2].ask(message("b", 0, 2, 10.0)) == 10.0 + BUSY + LATENCY
    assert boards[1].ask(message("a", 0, 1, 30.0)) == 30.0 + BUSY + LATENCY


def test_both_directions_work_at_the_same_time(boards: list[Board]) -> None:
    for name, (source, destination) in {"there": (0, 1), "back": (1, 0)}.items():
        boards[source].ask(message(name, source, destination, 10.0))
        assert boards[destination].ask(message(name, source, destination, 10.0)) == 10.0 + BUSY + LATENCY


def test_a_collective_waits_for_all_and_takes_all_links(boards: list[Board]) -> None:
    for rank, asked in enumerate((10.0, 12.0)):
        assert boards[rank].ask(everybody("c", (0, 1, 2), asked)) is None
    assert boards[2].ask(everybody("c", (0, 1, 2), 11.0)) == 12.0 + BUSY + LATENCY
    boards[0].ask(message("a", 0, 1, 11.0))
    assert boards[1].ask(message("a", 0, 1, 11.0)) == 12.0 + 2 * BUSY + LATENCY


def test_uneven_parts_take_as_long_as_the_largest(boards: list[Board]) -> None:
    boards[0].ask(Transfer("c", (0, 1), (0, 1), 5.0, LATENCY, 10.0))
    assert boards[1].ask(Transfer("c", (0, 1), (0, 1), 1.0, LATENCY, 10.0)) == 15.0 + LATENCY


def test_who_is_left_alone_settles_it_and_the_other_keeps_to_that(boards: list[Board]) -> None:
    boards[0].ask(message("a", 0, 1, 10.0))
    assert boards[0].settle(message("a", 0, 1, 10.0), 13.0) == 13.0 + BUSY + LATENCY
    assert boards[1].ask(message("a", 0, 1, 12.0)) == 13.0 + BUSY + LATENCY


def test_nothing_is_over_before_it_was_asked_for(boards: list[Board]) -> None:
    assert boards[0].settle(message("a", 0, 1, 10.0), 3.0) == 10.0 + BUSY + LATENCY


def test_runs_know_nothing_of_each_other(tmp_path: Path) -> None:
    before, after = (Board(str(tmp_path / "links"), run) for run in (1, 2))
    before.settle(message("a", 0, 1, 1000.0), 0.0)
    before.ask(message("b", 0, 1, 10.0))
    assert after.ask(message("b", 0, 1, 10.0)) is None
    assert after.ask(message("b", 0, 1, 10.0)) == 10.0 + BUSY + LATENCY


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Board:
    monkeypatch.setattr(boards_module, "BUCKETS", 2)
    return Board()


def test_places_are_given_back_when_all_have_been_told(small: Board) -> None:
    for number in range(4 * WIDTH):
        transfer = message(str(number), 0, 1, 0.0)
        small.ask(transfer)
        assert small.ask(transfer) == small.due(transfer)
        assert small.due(transfer) is None


def test_what_nobody_comes_back_for_is_forgotten_first(small: Board) -> None:
    for number in range(10 * WIDTH):
        small.ask(message(str(number), 0, 1, float(number)))
    assert small.ask(message(str(10 * WIDTH - 1), 0, 1, 0.0)) == 10 * WIDTH - 1 + BUSY + LATENCY
    assert small.ask(message("0", 0, 1, 0.0)) is None
