"""Five ways to bring batches to ranks: who reads what, who sends what, and that nothing is lost or read twice."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from kit.gpt.data import Batch, batches
from kit.gpt.shards import open_shards, write_shards
from kit.run.errors import RankError
from kit.run.live import LiveRunner
from kit.topics.data_parallel.loading_strategies import (
    STRATEGIES,
    by_file,
    by_sampler,
    by_scatter,
    by_seed,
    measure_loading,
    own_files,
    preloaded,
    reader_groups,
)

ROW = torch.arange(2000)  # tokens that tell where they stood
BATCH, BLOCK, STEPS = 3, 16, 5
WINDOW = BATCH * (BLOCK + 1)  # tokens a rank takes in a step, last targets included


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_shards(ROW, tmp_path, 250)  # eight files
    return tmp_path


def taken(coming: Iterator[Batch]) -> list[list[list[int]]]:
    """The tokens (B, T) of each step."""
    found = []
    for x, y in islice(coming, STEPS):
        assert torch.equal(y, x + 1), "targets stand one place on"
        found.append(x.tolist())
    return found


def sampled(folder: str) -> list[list[list[int]]]:
    return taken(by_sampler(open_shards(folder), BATCH, BLOCK, 7, dist.get_rank(), dist.get_world_size()))


def scattered(folder: str, readers: int) -> list[list[list[int]]]:
    group = reader_groups(readers)
    tokens = open_shards(folder) if dist.get_rank(group) == 0 else []
    return taken(by_scatter(tokens, BATCH, BLOCK, 7, group))


def read_ahead(folder: str) -> list[list[list[int]]]:
    rank, n = dist.get_rank(), dist.get_world_size()
    return taken(preloaded(by_sampler(open_shards(folder), BATCH, BLOCK, 7, rank, n), ahead=2))


def from_files(folder: str) -> list[list[list[int]]]:
    return taken(by_file(own_files(folder, dist.get_rank(), dist.get_world_size()), BATCH, BLOCK, 7))


def seeded(folder: str) -> list[list[list[int]]]:
    return taken(by_seed(open_shards(folder), BATCH, BLOCK, 7, dist.get_rank()))


def every_token(results: list[list[list[list[int]]]]) -> list[int]:
    return [token for rank in results for step in rank for window in step for token in window]


def test_the_sampler_reads_nothing_twice_and_what_one_process_reads(ranks: LiveRunner, folder: Path) -> None:
    found = ranks.record(sampled, str(folder)).results
    tokens = every_token(found)
    assert len(tokens) == len(set(tokens)) == ranks.size * STEPS * BATCH * BLOCK
    alone = batches(ROW, BATCH * ranks.size, BLOCK, seed=7)
    for step, (x, _) in enumerate(islice(alone, STEPS)):
        assert x.tolist() == [window for rank in found for window in rank[step]]


def test_scattering_gives_what_the_sampler_gives(three: LiveRunner, folder: Path) -> None:
    expected = three.record(sampled, str(folder)).results
    for readers in (1, 2, 3):
        recording = three.record(scattered, str(folder), readers)
        assert recording.results == expected
        groups = {1: [(0, 1, 2)], 2: [(0, 1), (2,)], 3: [(0,), (1,), (2,)]}[readers]
        scatters = [op for rank in recording.trace.ranks for op in rank.operations if op.name == "scatter"]
        assert sorted({op.ranks for op in scatters}) == groups
        for op in scatters:
            assert op.root == op.ranks[0]


def test_bytes_that_readers_send(three: LiveRunner, folder: Path) -> None:
    trace = three.record(scattered, str(folder), 1).trace
    part = 4 * WINDOW * STEPS  # 32 bits
    assert [round(trace.bytes_sent(rank).algorithmic) for rank in range(3)] == [2 * part, 0, 0]
    trace = three.record(scattered, str(folder), 2).trace
    assert [round(trace.bytes_sent(rank).algorithmic) for rank in range(3)] == [part, 0, 0]


def test_reading_ahead_changes_no_batch_and_sends_nothing(three: LiveRunner, folder: Path) -> None:
    recording = three.record(read_ahead, str(folder))
    assert recording.results == three.record(sampled, str(folder)).results
    assert not [op for rank in recording.trace.ranks for op in rank.operations]


def test_files_of_ones_own(three: LiveRunner, folder: Path) -> None:
    """Eight files of 250 tokens: three ranks have three, three and two of them."""
    found = three.record(from_files, str(folder)).results
    for rank, (low, high) in enumerate(((0, 750), (750, 1500), (1500, 2000))):
        tokens = every_token([found[rank]])
        assert low <= min(tokens) and max(tokens) < high
        assert len(tokens) == len(set(tokens)) == STEPS * BATCH * BLOCK


def test_only_own_files_are_opened(folder: Path) -> None:
    assert [path.name for path in own_files(folder, 1, 3).paths] == [f"tokens_0000{i}.bin" for i in (3, 4, 5)]
    (folder / "tokens_00000.bin").write_bytes(b"odd")  # opening this one would raise
    assert own_files(folder, 1, 3)[:2].tolist() == [750, 751]


def test_seeds_differ_by_rank_and_windows_overlap(three: LiveRunner, folder: Path) -> None:
    found = three.record(seeded, str(folder)).results
    assert found[0] != found[1] != found[2] != found[0]
    tokens = every_token(found)
    assert len(set(tokens)) < len(tokens)


@pytest.mark.parametrize("world", [2, 3])  # more would come to the end of the text, one reads nothing twice
def test_all_strategies_beside_each_other(ranks: LiveRunner, folder: Path) -> None:
    n = ranks.size
    table = measure_loading(ranks, folder, BATCH, BLOCK, STEPS, seed=7)
    assert [row.strategy for row in table.rows] == list(STRATEGIES)
    each = 2 * WINDOW * STEPS  # 16 bits on disk
    assert table.of("sampler").bytes_read == table.of("seeds").bytes_read == table.of("files").bytes_read == (each,) * n
    assert table.of("preload").bytes_read == (each + 2 * WINDOW,) * n, "one batch ahead"
    assert table.of("scatter").bytes_read == (n * each,) + (0,) * (n - 1)
    assert table.of("scatter").bytes_sent == ((n - 1) * 4 * WINDOW * STEPS,) + (0,) * (n - 1)
    for name in ("seeds", "sampler", "files", "preload"):
        assert table.of(name).bytes_sent == (0,) * n
    repeated = {row.strategy: row.repeated for row in table.rows}
    assert repeated.pop("seeds") > 0 and set(repeated.values()) == {0.0}
    assert all(len(row.waited) == n and min(row.waited) >= 0 for row in table.rows)


def test_repeated_tokens_are_counted_right(three: LiveRunner, folder: Path) -> None:
    tokens = every_token(three.record(seeded, str(folder)).results)
    row = measure_loading(three, folder, BATCH, BLOCK, STEPS, seed=7, strategies=["seeds"]).rows[0]
    assert row.repeated == pytest.approx(1 - len(set(tokens)) / len(tokens), abs=1e-12)


def test_words_say_what_was_found_and_what_is_played(three: LiveRunner, folder: Path) -> None:
    told = str(
        measure_loading(three, folder, BATCH, BLOCK, 2, work=0.001, delay=0.0005, strategies=["scatter", "sampler"])
    )
    lines = told.splitlines()
    assert lines[0].startswith("3 ranks, 2 steps")
    assert lines[2].split("  ")[0] == "scatter" and "rank 0: 612 B" in lines[2] and "rank 0: 816 B" in lines[2]
    assert "0.0%" in lines[2]
    assert lines[3].split("  ")[0] == "sampler" and "204 B" in lines[3] and " ms" in lines[3]
    assert "scatter: some ranks read, and scatter to the others." in told
    assert "pause of 1 ms in each step" in told and "pause of 0.5 ms for each window" in told


def test_what_cannot_be_is_refused(three: LiveRunner, folder: Path) -> None:
    with pytest.raises(ValueError, match="no strategy is called 'magic': choose from seeds, "):
        measure_loading(three, folder, BATCH, BLOCK, strategies=["magic"])
    with pytest.raises(ValueError, match="nothing to compare: choose from seeds, "):
        measure_loading(three, folder, BATCH, BLOCK, strategies=[])
    with pytest.raises(RankError, match="of 3 ranks 1 to 3 can read, not 4"):
        three.record(scattered, str(folder), 4)
    with pytest.raises(ValueError, match="rank 2 is not one of 2 ranks"):
        own_files(folder, 2, 2)
    with pytest.raises(ValueError, match="8 files in .* are too few for 9 ranks"):
        own_files(folder, 0, 9)
    with pytest.raises(ValueError, match="at least one batch ahead, not 0"):
        preloaded(iter([]), 0)


def test_a_reader_thread_hands_on_its_error_and_ends() -> None:
    def failing() -> Iterator[Batch]:
        yield ROW[:2], ROW[1:3]
        raise OSError("the disk is gone")

    before = threading.active_count()
    coming = preloaded(failing())
    next(coming)
    with pytest.raises(OSError, match="the disk is gone"):
        next(coming)
    assert threading.active_count() == before
    assert [int(x[0]) for x, _ in preloaded(iter([(ROW, ROW)] * 3), ahead=2)] == [0, 0, 0], "an end is an end"
