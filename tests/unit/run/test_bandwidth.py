"""The sweep without ranks: what is asked for, in which order, what an interruption leaves, what is refused."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kit.cost.sweep import Row
from kit.run import bandwidth
from kit.run.runner import SweepPlan


def scheduler(size: int = 4, accelerators: tuple[Any, ...] = (), device: str = "cpu", backend: str = "gloo") -> Any:
    found = SimpleNamespace(accelerators=accelerators, build="torch 2.13.0")
    ranks = SimpleNamespace(size=size, devices=(device,) * size, backend=backend, found=found)
    return SimpleNamespace(cluster=ranks)


class Ranks:
    """Stands for the ranks: notes what they were asked for; a Ctrl-C comes before the call number `interrupted`."""

    def __init__(self, interrupted: int | None = None) -> None:
        self.asked: list[tuple[str, int, int, int, int]] = []
        self.interrupted = interrupted

    def __call__(self, scheduler: Any, name: str, world: int, nbytes: int, repeats: int, warm_up: int) -> Any:
        if len(self.asked) == self.interrupted:
            raise KeyboardInterrupt
        self.asked.append((name, world, nbytes, repeats, warm_up))
        return Row(name, world, nbytes, (1e-3,) * repeats, (1e-3,) * world), ("slow links",)


@pytest.fixture
def ranks(monkeypatch: pytest.MonkeyPatch) -> Ranks:
    stand_in = Ranks()
    monkeypatch.setattr(bandwidth, "_measure", stand_in)
    monkeypatch.setattr(bandwidth, "_free", lambda *_: {})
    return stand_in


def test_every_operation_over_every_size(ranks: Ranks) -> None:
    sweep = bandwidth.sweep(scheduler(), SweepPlan(sizes=[1600, 160_000], repeats=3, warm_up=1))
    assert [(name, size) for name, _, size, _, _ in ranks.asked] == [
        (name, size) for name in bandwidth.OPERATIONS for size in (1600, 160_000)
    ]
    assert set(ranks.asked[0][3:]) == {3, 1}
    assert (sweep.operations, sweep.ranks, sweep.repeats) == (bandwidth.OPERATIONS, 4, 3)
    assert sweep.notes.count("slow links") == 1  # what the runs say of themselves is kept, once


@pytest.mark.parametrize(("processors", "device", "said"), [(2, "cpu", True), (4, "cpu", False), (2, "cuda:0", False)])
def test_it_says_what_too_few_processors_do_to_times(
    ranks: Ranks, monkeypatch: pytest.MonkeyPatch, processors: int, device: str, said: bool
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(processors)))
    there = scheduler(
        4, () if device == "cpu" else ((device, "a GPU", 10**12),), device, "gloo" if device == "cpu" else "nccl"
    )
    sweep = bandwidth.sweep(there, SweepPlan("send", 240))
    assert any(note.startswith("4 ranks share 2 processors") for note in sweep.notes) is said


@pytest.mark.parametrize(("world", "expected"), [(2, [8, 104, 1000]), (3, [12, 108, 1008])])
def test_sizes_are_rounded_up_to_what_ranks_can_share_and_asked_once(ranks: Ranks, world: int, expected: list) -> None:
    bandwidth.sweep(scheduler(world), SweepPlan("all_gather", sizes=[1, 4, 100, 1000]))
    assert [size for _, _, size, _, _ in ranks.asked] == expected


def test_one_name_one_size_fewer_ranks(ranks: Ranks) -> None:
    sweep = bandwidth.sweep(scheduler(4), SweepPlan("all_reduce", 240, ranks=3))
    assert ranks.asked == [("all_reduce", 3, 240, 7, 2)]
    assert len(sweep.devices) == sweep.ranks == 3


def test_an_interruption_keeps_what_was_measured(ranks: Ranks) -> None:
    ranks.interrupted = 4
    sweep = bandwidth.sweep(scheduler(), SweepPlan(["send", "all_reduce"], sizes=[1600, 3200, 6400]))
    assert [(row.operation, row.nbytes) for row in sweep.rows] == [
        ("send", 1600), ("send", 3200), ("send", 6400), ("all_reduce", 1600),
    ]  # fmt: skip
    assert sweep.notes[0] == "Interrupted: 4 of 6 measurements are here."
    assert "Interrupted" in str(sweep) and sweep.fit("send").ranks == 4


def test_an_interruption_before_anything_was_measured_goes_on_up(ranks: Ranks) -> None:
    ranks.interrupted = 0
    with pytest.raises(KeyboardInterrupt):
        bandwidth.sweep(scheduler(), SweepPlan())


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"operations": "allreduce"}, "'allreduce' cannot be swept: choose from send, broadcast"),
        ({"operations": ["all_reduce", "barrier"]}, "'barrier' cannot be swept"),
        ({"operations": []}, "at least one operation"),
        ({"operations": [3]}, "3 cannot be swept"),
        ({"operations": 3}, "3 cannot be swept"),
        ({"sizes": "1000"}, "'1000' is no size"),
        ({"sizes": []}, "at least one size"),
        ({"sizes": [0]}, "0 is no size"),
        ({"sizes": [-4]}, "-4 is no size"),
        ({"sizes": [1.5]}, "1.5 is no size"),
        ({"sizes": ["1 MB"]}, "'1 MB' is no size"),
        ({"sizes": True}, "True is no size"),
        ({"sizes": 2.0}, "2.0 is no size"),
        ({"repeats": 0}, "repeats is a whole number, 1 or more"),
        ({"repeats": 1.5}, "repeats is a whole number"),
        ({"warm_up": -1}, "warm_up is a whole number, 0 or more"),
        ({"ranks": 1}, "from 2 to 4"),
        ({"ranks": 5}, "from 2 to 4"),
        ({"ranks": "all"}, "from 2 to 4"),
    ],
)
def test_nonsense_is_refused_before_any_rank_moves(ranks: Ranks, asked: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        bandwidth.sweep(scheduler(), SweepPlan(**asked))
    assert ranks.asked == []


def test_one_rank_alone_has_nothing_to_measure(ranks: Ranks) -> None:
    with pytest.raises(ValueError, match="at least 2 ranks"):
        bandwidth.sweep(scheduler(1), SweepPlan())


def test_buffers_that_would_fill_the_memory_are_refused(ranks: Ranks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bandwidth, "memory", lambda: (2_000_000_000, 1_600_000_000))
    with pytest.raises(ValueError, match="sizes up to 50 MB fit, or use fewer ranks"):
        bandwidth.sweep(scheduler(), SweepPlan(sizes=[1000, 64_000_000]))
    assert ranks.asked == []
    bandwidth.sweep(scheduler(), SweepPlan("send", sizes=[49_999_984]))
    assert len(ranks.asked) == 1
    bandwidth.sweep(scheduler(), SweepPlan("send"))  # the usual sizes fit on a machine of 2 GB


def test_a_gpus_own_memory_is_what_counts_where_nccl_moves_the_data(ranks: Ranks, monkeypatch: Any) -> None:
    monkeypatch.setattr(bandwidth, "memory", lambda: (2_000_000_000, 100))
    gpus = (("cuda:0", "a GPU", 16_000_000_000),)
    monkeypatch.setattr(bandwidth, "_free", lambda *_: {"cuda:0": 8_000_000_000})
    with pytest.raises(ValueError, match="sizes up to 500 MB fit"):
        bandwidth.sweep(scheduler(2, gpus, "cuda:0", "nccl"), SweepPlan(sizes=[600_000_000]))
    bandwidth.sweep(scheduler(2, gpus, "cuda:0", "nccl"), SweepPlan("send", sizes=[400_000_000]))
    assert len(ranks.asked) == 1
    usual = bandwidth.sweep(scheduler(2, gpus, "cuda:0", "nccl"), SweepPlan("send"))
    assert usual.rows[-1].nbytes == 256_000_000, "of the large sizes those that fit what is free"
    assert "events of the device" in usual.notes[0]
