"""Text, tokens and batches: nothing is lost, nothing is read twice, and no network is needed."""

from __future__ import annotations

import os
import pickle
import socket
from collections import Counter
from hashlib import sha256
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch

from kit.gpt import data as texts
from kit.gpt.data import Characters, batches, corpus, random_batches, split, windows
from kit.gpt.shards import Shards, open_shards, write_shards

ROW = torch.arange(1003)  # tokens that tell where they stood


def test_the_text_every_python_carries_needs_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a network was used")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    text = corpus()
    assert 300_000 < len(text) < 900_000  # 0.46 million in Python 3.11; it grows from version to version
    assert 'The "assert" statement' in text and "assert_stmt" in text
    assert corpus("python") == text
    assert len(Characters.of(text).encode(text)) == len(text)


def shakespeare_like() -> str:
    """As long as Shakespeare, with as many distinct characters."""
    letters = "".join(chr(ord("0") + i) for i in range(65))
    return (letters * (texts.CHARACTERS // 65 + 1))[: texts.CHARACTERS]


def test_shakespeare_is_downloaded_once_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a bar that shows how much of it has come."""
    page = tmp_path / "input.txt"
    page.write_text(shakespeare_like())
    monkeypatch.setattr(texts, "SHAKESPEARE", page.as_uri())
    monkeypatch.setattr(texts, "SHA256", sha256(page.read_bytes()).hexdigest())
    for _ in range(2):
        text = corpus("shakespeare", tmp_path / "kept")
        train, validation = split(Characters.of(text).encode(text))
        assert (len(text), len(train), len(validation)) == (1_115_394, 1_003_854, 111_540)
        page.unlink(missing_ok=True)
    assert [path.name for path in (tmp_path / "kept").iterdir()] == ["shakespeare.txt"]
    bars = capsys.readouterr().err.strip().split("\r")
    assert len(bars) == -(-texts.CHARACTERS // texts.CHUNK)
    assert "[#         " in bars[0] and bars[-1].endswith("[####################] 100%")


@pytest.mark.skipif("LOCKSTEP_SHAKESPEARE" not in os.environ, reason="LOCKSTEP_SHAKESPEARE names no file")
def test_shakespeare_itself_has_the_counts_that_are_known(tmp_path: Path) -> None:
    """By its path, and where it was kept by hand. The counts are those of wordplay's log (S0)."""
    path = Path(os.environ["LOCKSTEP_SHAKESPEARE"])
    (tmp_path / "shakespeare.txt").write_bytes(path.read_bytes())
    text = corpus(path)
    assert text == corpus("shakespeare", tmp_path)
    train, validation = split(Characters.of(text).encode(text))
    assert (len(text), len(set(text)), len(train), len(validation)) == (1_115_394, 65, 1_003_854, 111_540)


def test_a_shakespeare_that_is_not_whole_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "_download", lambda address: "<html>please log in</html>")
    with pytest.raises(ValueError, match="26 characters.*1,115,394 and 65"):
        corpus("shakespeare", tmp_path)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "shakespeare.txt").write_text("cut short")
    with pytest.raises(ValueError, match="delete it"):
        corpus("shakespeare", tmp_path)


def test_without_a_network_the_way_out_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*_: object, **__: object) -> None:
        raise OSError("Name or service not known")

    monkeypatch.setattr(socket, "create_connection", unreachable)
    with pytest.raises(ConnectionError, match=r"could not be downloaded.*corpus\('python'\) needs no network"):
        corpus("shakespeare", tmp_path)


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "own.txt"
    path.write_bytes("näher\r\nda".encode())
    assert corpus(path) == corpus(str(path)) == "näher\r\nda"
    path.write_bytes(b"")
    with pytest.raises(ValueError, match="is empty"):
        corpus(path)
    path.write_bytes(b"ok \xff\xfe")
    with pytest.raises(ValueError, match="not UTF-8 text.*byte 3"):
        corpus(path)
    with pytest.raises(ValueError, match="no file 'shakespear'.*'python', 'shakespeare' or a path"):
        corpus("shakespear")


def test_characters_there_and_back() -> None:
    characters = Characters.of("hello, world")
    assert characters.vocabulary == " ,dehlorw" and characters.size == 9
    tokens = characters.encode("hello")
    assert tokens.dtype == torch.int64 and tokens.tolist() == [4, 3, 5, 5, 6]
    assert characters.decode(tokens) == characters.decode([4, 3, 5, 5, 6]) == "hello"
    assert characters.encode("").shape == (0,)


def test_what_is_no_token_or_character_is_refused() -> None:
    characters = Characters.of("abc")
    with pytest.raises(ValueError, match="'d' is not among the 3 characters"):
        characters.encode("abd")
    for wrong in ([3], [-1]):
        with pytest.raises(ValueError, match="is not a token: this vocabulary has 0 to 2"):
            characters.decode(wrong)
    for vocabulary in ("", "aa"):
        with pytest.raises(ValueError, match="each once"):
            Characters(vocabulary)


def test_split_loses_nothing() -> None:
    train, validation = split(ROW, 0.75)
    assert torch.equal(torch.cat([train, validation]), ROW) and len(train) == 752
    for share in (0.0, 1.0, 0.0001):
        with pytest.raises(ValueError, match="choose between 0 and 1"):
            split(ROW, share)


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_targets_are_the_tokens_one_place_on(ranks: int) -> None:
    for draw in (batches(ROW, 4, 7, ranks=ranks, rank=ranks - 1), random_batches(ROW, 4, 7, rank=ranks - 1)):
        for x, y in islice(draw, 50):
            assert x.shape == y.shape == (4, 7) and x.dtype == torch.int64
            assert torch.equal(y, x + 1) and torch.equal(x, x[:, :1] + torch.arange(7))


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_no_two_ranks_see_the_same_token_within_a_pass(ranks: int) -> None:
    windows_in_a_pass = (len(ROW) - 8) // 8
    steps = windows_in_a_pass // (3 * ranks)
    seen: Counter[int] = Counter()
    for rank in range(ranks):
        for x, _ in islice(batches(ROW, 3, 8, seed=4, rank=rank, ranks=ranks), steps):
            seen.update(x.flatten().tolist())
    assert max(seen.values()) == 1
    assert len(seen) == steps * 3 * ranks * 8  # all but what fills no step


def test_many_ranks_see_together_what_one_sees() -> None:
    one = [x for x, _ in islice(batches(ROW, 12, 8, seed=2), 25)]  # more than two passes
    parts = [[x for x, _ in islice(batches(ROW, 4, 8, seed=2, rank=r, ranks=3), 25)] for r in range(3)]
    for step in range(25):
        assert torch.equal(one[step], torch.cat([parts[r][step] for r in range(3)]))
        assert not torch.equal(parts[0][step], parts[1][step])


def test_a_pass_differs_from_the_next_and_a_seed_from_another() -> None:
    def first(seed: int, skip: int = 0) -> torch.Tensor:
        return next(islice(batches(ROW, 4, 8, seed=seed), skip, None))[0]

    assert torch.equal(first(0), first(0))
    assert not torch.equal(first(0), first(1))
    assert not torch.equal(first(0), first(0, skip=124 // 4))  # the first batch of the second pass


def test_random_batches_are_drawn_by_seed_and_rank() -> None:
    def drawn(seed: int, rank: int) -> list[int]:
        return [int(x[0, 0]) for x, _ in islice(random_batches(ROW, 1, 8, seed=seed, rank=rank), 20)]

    assert drawn(0, 0) == drawn(0, 0)
    everyone = [drawn(0, 0), drawn(0, 1), drawn(1, 0), drawn(1, 1)]
    assert len({tuple(row) for row in everyone}) == 4, "seed + rank would give two of them the same windows"
    short = torch.arange(9)
    assert next(random_batches(short, 2, 8))[0].tolist() == [list(range(8))] * 2, "the only window there is"


def test_texts_too_short_and_ranks_outside_are_refused_at_once() -> None:
    with pytest.raises(ValueError, match="20 tokens make 1 windows of 8.*take 6 in a step"):
        batches(torch.arange(20), 2, 8, ranks=3)
    with pytest.raises(ValueError, match="rank 3 is not one of 3 ranks"):
        batches(ROW, 2, 8, rank=3, ranks=3)
    with pytest.raises(ValueError, match="too few for a window of 8"):
        random_batches(torch.arange(8), 2, 8)
    with pytest.raises(ValueError, match="at least one window"):
        batches(ROW, 0, 8)


# 1,003 tokens: files of one size, a shorter last one, one larger than the row, one token a file
@pytest.mark.parametrize("size", [17, 500, 1003, 4000, 59])
def test_shards_are_the_tokens_again(tmp_path: Path, size: int) -> None:
    shards = write_shards(ROW, tmp_path / "s", size)
    files = sorted((tmp_path / "s").iterdir())
    assert [f.stat().st_size for f in files] == [2 * len(part) for part in ROW.split(size)]
    assert np.array_equal(np.concatenate([np.fromfile(f, dtype="<u2") for f in files]), ROW.numpy())
    assert len(shards) == 1003 and np.array_equal(shards[:], ROW.numpy())
    for start, stop in ((0, 1), (16, 18), (0, 17), (17, 34), (498, 700), (1002, 1003), (5, 5), (990, 5000), (-3, 1003)):
        assert np.array_equal(shards[start:stop], ROW.numpy()[start:stop]), (start, stop)
    assert len(open_shards(tmp_path / "s")) == 1003


def test_shards_are_memory_mapped_not_read(tmp_path: Path) -> None:
    shards = write_shards(ROW, tmp_path, 400)
    inside = shards[10:20]
    assert isinstance(inside.base if not isinstance(inside, np.memmap) else inside, np.memmap)
    assert len(pickle.dumps(shards)) < 1000
    assert np.array_equal(pickle.loads(pickle.dumps(shards))[395:405], ROW.numpy()[395:405])


@pytest.mark.parametrize("ranks", [1, 2, 3, 7])
def test_parts_of_ranks_are_disjoint_and_leave_nothing_out(tmp_path: Path, ranks: int) -> None:
    shards = write_shards(ROW, tmp_path, 100)
    parts = [shards.of_rank(rank, ranks) for rank in range(ranks)]
    assert np.array_equal(np.concatenate([part[:] for part in parts]), ROW.numpy())
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    for part in parts:
        assert np.array_equal(part[3:9], part[:][3:9])
        assert np.array_equal(np.concatenate([part.of_rank(0, 2)[:], part.of_rank(1, 2)[:]]), part[:])
        assert np.array_equal(pickle.loads(pickle.dumps(part))[:], part[:])


def test_batches_of_shards_are_those_of_the_row(tmp_path: Path) -> None:
    shards = write_shards(ROW, tmp_path, 100)
    for (x, y), (u, v) in islice(zip(batches(shards, 4, 8), batches(ROW, 4, 8), strict=True), 40):
        assert torch.equal(x, u) and torch.equal(y, v)
    x, y = windows(shards, [95], 8)
    assert x.tolist() == [list(range(95, 103))] and y[0, -1] == 103


def test_shards_refuse_what_they_cannot_hold(tmp_path: Path) -> None:
    for wrong in (torch.tensor([70_000]), torch.tensor([-1])):
        with pytest.raises(ValueError, match="16 bits hold 0 to 65535"):
            write_shards(wrong, tmp_path / "a", 10)
    assert write_shards(torch.tensor([0, 65_535]), tmp_path / "b", 10)[:].tolist() == [0, 65_535]
    with pytest.raises(ValueError, match="holds shards already"):
        write_shards(ROW, tmp_path / "b", 10)
    with pytest.raises(ValueError, match="at least one token"):
        write_shards(ROW[:0], tmp_path / "c", 10)
    with pytest.raises(ValueError, match="no files tokens_"):
        open_shards(tmp_path / "c")
    (tmp_path / "odd.bin").write_bytes(b"abc")
    with pytest.raises(ValueError, match="has 3 bytes"):
        Shards([tmp_path / "odd.bin"])
    shards = open_shards(tmp_path / "b")
    with pytest.raises(ValueError, match="rank 2 is not one of 2"):
        shards.of_rank(2, 2)
    with pytest.raises(ValueError, match="leave the step out"):
        shards[::2]


@pytest.mark.parametrize("start", [-3, 97])
def test_a_window_out_of_the_tokens_is_refused(start: int) -> None:
    with pytest.raises(ValueError, match=f"100 tokens hold no window of 4 from {start} on"):
        windows(torch.arange(100), [start], 4)


@pytest.mark.parametrize("tokens", [torch.arange(100) / 3, torch.arange(100).view(50, 2)], ids=["halves", "table"])
def test_tokens_that_are_no_row_of_whole_numbers_are_refused(tokens: torch.Tensor) -> None:
    with pytest.raises(ValueError, match="whole numbers in a row"):
        windows(tokens, [0], 4)
