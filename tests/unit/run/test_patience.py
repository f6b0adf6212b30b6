"""What is said of a run that takes its time."""

from __future__ import annotations

from kit.run.patience import in_one_line
from kit.trace.facts import Place, RankState

HERE = Place("train.py", 8, "train")


def test_who_runs_and_who_waits_and_since_when() -> None:
    runs = RankState(1, "running", place=HERE, since=0, now=6_000_000_000)
    waits = [
        RankState(rank, "waiting", place=HERE, operation="all_reduce", waiting_for=(1,), since=0, now=5_900_000_000)
        for rank in (0, 2)
    ]
    said = in_one_line([waits[0], runs, waits[1]])
    assert said == (
        "ranks 0, 2 wait in all_reduce for rank 1 (line 8), 5.9 s so far; "
        "rank 1 has been running for 6.0 s, last seen at line 8"
    )


def test_of_what_has_only_begun_no_time_is_said() -> None:
    began = RankState(3, "running", place=HERE, since=7, now=7)
    assert in_one_line([began]) == "rank 3 runs, last seen at line 8"
    assert str(began) == "rank 3 runs, last seen at line 8"
