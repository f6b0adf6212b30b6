"""The class board: what is told, who hears it, in which order they stand, and what strangers can do: nothing."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import kit
from kit.classroom.board.mail import Folder, Server, mail_to
from kit.classroom.board.member import Member
from kit.classroom.board.news import LARGEST, News, opened, place_of, sealed
from kit.classroom.board.room import QUIET, Room
from kit.classroom.board.server import Board
from kit.grade.answers import exercise
from kit.grade.verdict import Verdict, remember

CODE = "R4IN-7Q2M-K8PC"
ADA = News("a" * 32, "ada", lab="00_ranks")
BEA = News("b" * 32, "bea", lab="00_ranks")


def failed(news: News, exercise: str = "who-am-i", sentence: str = "rank 1 returned 3, where 4 is right") -> News:
    return replace(news, exercise=exercise, status="failed", stage="values", sentence=sentence, tries=1)


def until(done: Callable[[], bool]) -> None:
    while not done():
        time.sleep(0.02)


# -- what is told


def test_news_comes_as_it_was_told() -> None:
    told = replace(failed(ADA), passed=("a", "b"), asks=True, code="def f():\n    return 1\n")
    assert opened(sealed(told, CODE), CODE) == told


def test_text_of_learners_is_one_short_line_without_what_no_reader_sees() -> None:
    news = News("a" * 32, "  a\u202ed\x1b[31ma\n\n<b> " + "x" * 100, sentence="one\ntwo\x00")
    assert news.name.startswith("ad[31ma <b> x") and len(news.name) == 60
    assert news.sentence == "one two"


@pytest.mark.parametrize(
    "change",
    [
        lambda body: body | {"more": 1},
        lambda body: {name: body[name] for name in body if name != "lab"},
        lambda body: body | {"tries": "3"},
        lambda body: body | {"asks": 1},
        lambda body: body | {"passed": [1]},
        lambda body: body | {"learner": "../../etc/passwd"},
        lambda body: body | {"status": "excellent"},
        lambda body: body | {"code": "x = 1"},
        lambda body: [body],
    ],
)
def test_what_is_no_news_is_refused(change: Callable[[dict[str, Any]], Any]) -> None:
    from kit.classroom.board import news

    body = json.dumps(change(json.loads(sealed(ADA, CODE).partition(b"\n")[2]))).encode()
    with pytest.raises(ValueError, match=r"."):
        opened(news._sign(body, CODE) + b"\n" + body, CODE)


@pytest.mark.parametrize("data", [b"", b"\n", b"{}", os.urandom(200), b"[" * 50_000, b"x" * (LARGEST + 1)])
def test_bytes_of_strangers_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="who knows the code"):
        opened(data, CODE)
    with pytest.raises(ValueError, match="who knows the code"):
        opened(sealed(ADA, "another"), CODE)


# -- who stands where


def test_who_asks_is_first_then_who_is_stuck_longest() -> None:
    room, cyd, dan = Room(), News("c" * 32, "cyd"), News("d" * 32, "dan")
    room.hear(dan, 0.0)
    room.hear(failed(BEA), 10.0)
    room.hear(failed(ADA), 20.0)
    room.hear(replace(failed(BEA), tries=2), 30.0)  # still stuck, since 10
    room.hear(replace(failed(cyd), asks=True, code="def f(): ..."), 40.0)
    state = room.state(100.0)
    assert [each["name"] for each in state["learners"]] == ["cyd", "bea", "ada", "dan"]
    assert [each["stuck"] for each in state["learners"]] == [60, 90, 80, None]
    assert (state["asking"], state["stuck"]) == (1, 3)
    room.hear(replace(BEA, exercise="who-am-i", status="passed", passed=("who-am-i",)), 110.0)
    room.hear(failed(ADA, "rank-zero-speaks"), 120.0)  # another exercise: stuck there from now on
    stuck = {each["name"]: each["stuck"] for each in room.state(130.0)["learners"]}
    assert stuck == {"cyd": 90, "ada": 10, "bea": None, "dan": None}


def test_the_commonest_sentence_is_told_whatever_its_numbers() -> None:
    room = Room()
    for k, sentence in enumerate(["rank 1 returned 3", "rank 2 returned 7", "it printed nothing"]):
        room.hear(failed(News(f"{k:032x}", f"n{k}"), sentence=sentence), 0.0)
    first, second = room.state(1.0)["commonest"]
    assert (first["count"], second["count"]) == (2, 1) and "returned" in first["sentence"]
    assert room.state(QUIET + 1.0)["commonest"] == []
    assert {each["quiet"] for each in room.state(QUIET + 1.0)["learners"]} == {601}


# -- how it gets there


@pytest.fixture
def board(tmp_path: Path) -> Board:
    return Board(CODE, tmp_path)


def names(board: Board) -> list[str]:
    board.gather()
    return [each["name"] for each in board.state()["learners"]]


def test_news_is_left_in_a_folder_that_nobody_else_can_list(board: Board, tmp_path: Path) -> None:
    mail = mail_to(tmp_path, CODE)
    assert isinstance(mail, Folder) and board.box.stat().st_mode & 0o7777 == 0o1733
    mail.send(ADA.learner, sealed(ADA, CODE))
    assert names(board) == ["ada"]
    mail.send(ADA.learner, sealed(replace(ADA, name="ada l."), CODE))
    assert names(board) == ["ada l."] and board.refused == 0
    assert len(list(board.box.iterdir())) == 1, "no draft is left"


def test_who_has_not_the_code_finds_no_board(board: Board, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no board of the code 'WRONG'"):
        mail_to(tmp_path, "WRONG")
    assert CODE not in str(board.box) and place_of(CODE) in str(board.box)


def test_a_folder_full_of_nonsense_costs_nobody_a_place(board: Board, tmp_path: Path) -> None:
    (board.box / f"{'e' * 32}.news").write_bytes(b"nonsense")
    (board.box / f"{'f' * 32}.news").symlink_to("/etc/passwd")
    (board.box / f"{'1' * 32}.news").mkdir()
    os.mkfifo(board.box / f"{'2' * 32}.news")
    (board.box / f"{'3' * 32}.news").write_bytes(sealed(ADA, CODE))  # in another's place
    (board.box / f"{'4' * 32}.news").write_bytes(b"x" * (2 * LARGEST))
    (board.box / "else.txt").write_text("else")
    mail_to(tmp_path, CODE).send(BEA.learner, sealed(BEA, CODE))
    assert names(board) == ["bea"] and names(board) == ["bea"]
    assert board.refused == 6, "each once"


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[dict[str, str]]:
    """`lockstep board` with its page and an address for news."""
    command = [sys.executable, "-m", "kit.cli", "board", "--folder", str(tmp_path), "--code", CODE, "--no-browser"]
    with subprocess.Popen([*command, "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = [process.stdout.readline() for _ in range(3)]
        try:
            yield {
                "url": said[1].split()[-1],
                "at": said[0].partition('at="')[2].partition('"')[0],
                "line": said[0].partition(":")[2].strip(),
            }
        finally:
            process.terminate()


def state(url: str) -> Any:
    with urllib.request.urlopen(f"{url}state") as answer:
        return json.loads(answer.read())


def test_the_command_shows_the_line_that_joins_and_hears_both_ways(serving: dict[str, str], tmp_path: Path) -> None:
    assert serving["line"] == f'kit.join("{CODE}", name="...", at="{serving["at"]}")'
    by_tcp = mail_to(serving["at"], CODE)
    assert isinstance(by_tcp, Server)
    by_tcp.send(ADA.learner, sealed(ADA, CODE))
    mail_to(tmp_path, CODE).send(BEA.learner, sealed(BEA, CODE))
    until(lambda: len(state(serving["url"])["learners"]) == 2)
    with pytest.raises(OSError, match="refused it: this is not news of its class"):
        by_tcp.send(ADA.learner, sealed(ADA, "another"))
    with pytest.raises(urllib.error.HTTPError, match="404"):
        state(serving["url"].rpartition("/")[0].rpartition("/")[0] + "/guessed/")
    with urllib.request.urlopen(serving["url"]) as page:
        assert "connect-src 'self'" in page.read().decode() and page.headers["Cache-Control"] == "no-store"


def test_strangers_who_are_silent_or_talk_nonsense_stop_nobody(serving: dict[str, str]) -> None:
    host, port = serving["at"].split(":")
    silent = [socket.create_connection((host, int(port))) for _ in range(100)]
    for k, stranger in enumerate(silent[:30]):
        stranger.sendall(os.urandom(50 * k) if k % 2 else b"POST /news HTTP/1.1\r\nContent-Length: 999999999\r\n\r\n")
    mail_to(serving["at"], CODE).send(ADA.learner, sealed(ADA, CODE))
    assert [each["name"] for each in state(serving["url"])["learners"]] == ["ada"]
    for stranger in silent:
        stranger.close()


# -- a learner


@pytest.fixture
def member(board: Board, tmp_path: Path) -> Iterator[Member]:
    made = kit.join(CODE, name="ada <b>", at=tmp_path)
    yield made
    made.leave()


def test_nothing_is_told_before_it_was_shown_and_wanted(member: Member, board: Board) -> None:
    remember(Verdict("who-am-i", "failed", "values", "rank 1 returned 3"), print)
    assert names(board) == [] and not member.joined
    assert "ada &lt;b&gt;" in member._shown.value and "would be told" in member._shown.value
    member.join()
    until(lambda: names(board) == ["ada <b>"])
    (seat,) = board.state()["learners"]
    assert seat["sentence"] == "" and seat["code"] == ""


def test_checks_are_told_and_code_only_with_a_cry_for_help(member: Member, board: Board) -> None:
    @exercise("who-am-i")
    def my_share(total):
        return 3

    def seat() -> Any:
        board.gather()
        return (board.state()["learners"] or [{}])[0]

    member.join()
    for tries in (1, 2):
        remember(Verdict("who-am-i", "failed", "values", "rank 1 returned 3"), my_share)
        until(lambda tries=tries: seat().get("tries") == tries)
    assert seat()["code"] == "" and seat()["sentence"] == "rank 1 returned 3"
    member.ask_for_help()  # shows it
    assert "return 3" in member._shown.value and not member.news.asks
    member.ask_for_help()
    until(lambda: seat()["asks"] is not None)
    assert "return 3" in seat()["code"]
    remember(Verdict("who-am-i", "passed"), my_share)
    until(lambda: seat()["status"] == "passed")
    assert (seat()["code"], seat()["asks"], seat()["passed"], seat()["tries"]) == ("", None, ["who-am-i"], 0)
    member.leave()
    remember(Verdict("who-am-i", "failed"), my_share)
    assert member.news.status == "passed", "who has left is not listened to"


def test_a_board_that_is_gone_holds_nobody_up_and_is_told_once(member: Member, board: Board) -> None:
    member.join()
    until(lambda: names(board) == ["ada <b>"])
    board.box.chmod(0o700)
    for file in board.box.iterdir():
        file.unlink()
    board.box.rmdir()
    remember(Verdict("who-am-i", "failed", "values", "rank 1 returned 3"), print)
    until(lambda: "cannot be reached" in member._said.value)


def test_a_name_is_wanted() -> None:
    with pytest.raises(ValueError, match="say by which name"):
        Member(CODE, " ", "localhost:1")


def test_who_does_not_join_has_nothing_of_it() -> None:
    program = "import kit, sys; kit.check; print([name for name in sys.modules if name.startswith('kit.classroom')])"
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[]"
