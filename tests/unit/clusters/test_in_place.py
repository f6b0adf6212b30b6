"""Where a cluster cannot be had and a lab is named, its recordings stand in; what a person can put right is raised."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Self

import pytest

import kit
from kit.clusters.errors import ClusterError, Unavailable
from kit.clusters.folder import RunFolder
from kit.clusters.request import checked
from kit.run import current
from kit.run.live import LiveRunner


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    yield
    current._held = None


def failing(monkeypatch: pytest.MonkeyPatch, problem: Exception) -> None:
    class Refused(LiveRunner):
        def __init__(self, *wishes: Any, **more: Any) -> None:
            raise problem

    monkeypatch.setattr(current, "LiveRunner", Refused)


@pytest.mark.parametrize(
    "problem",
    [
        Unavailable("no private folder can be made"),
        ClusterError("the host agent ended"),
        PermissionError(13, "Permission denied"),
        BlockingIOError(11, "Resource temporarily unavailable"),
        TimeoutError("the controller did not start"),
        ModuleNotFoundError("No module named 'ipyparallel'"),
    ],
    ids=lambda problem: type(problem).__name__,
)
def test_recordings_stand_in_when_they_are_named(monkeypatch: pytest.MonkeyPatch, problem: Exception) -> None:
    failing(monkeypatch, problem)
    with pytest.raises(type(problem)):
        kit.cluster(ranks=4)
    cluster = kit.cluster(ranks=2, replay="00_ranks")
    assert cluster.no_ranks_because and cluster.size == 4
    assert str(problem).rstrip(".") in str(cluster.report())
    assert current.runner() is cluster
    assert current.runner().reset() is cluster


@pytest.mark.parametrize(
    ("wishes", "remedy"),
    [
        ({"ranks": "four"}, "write ranks=4"),
        ({"ranks": 0}, "write ranks=4"),
        ({"device": "gpu"}, "write device='cuda'"),
        ({"folder": "/no/such"}, "leave folder out"),
    ],
)
def test_a_wish_that_makes_no_sense_is_told(wishes: dict[str, Any], remedy: str) -> None:
    with pytest.raises(ValueError, match=remedy):
        kit.cluster(replay="00_ranks", **wishes)
    assert current.held() is None


def test_a_cluster_that_can_be_had_takes_its_place_back(monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, Unavailable("not yet"))
    kit.cluster(replay="00_ranks")

    class Had(LiveRunner):
        def __init__(self, *wishes: Any, **more: Any) -> None: ...
        def stop_when_idle(self, minutes: float | None) -> Self:
            return self

    monkeypatch.setattr(current, "LiveRunner", Had)
    real = kit.cluster(replay="00_ranks")
    assert isinstance(real, Had) and current.runner() is real


def test_a_lab_without_recordings_says_why_there_is_no_cluster_too(monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, Unavailable("ports are denied"))
    with pytest.raises(ValueError, match="ports are denied; nor can recordings stand in: .*`lockstep record 77`"):
        kit.cluster(replay="77_nothing")


def test_what_a_machine_cannot_give_is_unavailable(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setattr("sys.platform", "darwin")
    with pytest.raises(Unavailable, match="a cluster needs Linux"):
        checked()
    monkeypatch.undo()
    monkeypatch.setattr("kit.clusters.request.memory", lambda: (1_000_000, 1_000_000))
    with pytest.raises(Unavailable, match="4 ranks need about"):
        checked()
    with pytest.raises(Unavailable, match="too long a name"):
        RunFolder(str(_deep(tmp_path)))


def _deep(folder: Any) -> Any:
    deep = folder / ("a-long-name-" * 8)
    deep.mkdir()
    return deep


def test_a_check_needs_ranks(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    from kit.grade.marks import collect, without_ranks

    ledger = tmp_path / "verdicts.jsonl"
    monkeypatch.setenv("LOCKSTEP_VERDICTS", str(ledger))
    failing(monkeypatch, Unavailable("ports are denied: ask for one"))
    kit.cluster(replay="00_ranks")

    @kit.exercise("who-am-i")
    def my_share(total: int) -> tuple[int, int]:
        raise AssertionError("nobody calls it")

    verdict = kit.check(my_share)
    assert verdict.status == "not attempted" and not verdict.passed and not verdict.attempted
    sentence = "A check needs ranks, and there is no cluster here: ports are denied: ask for one."
    assert sentence in str(verdict) and sentence in verdict._repr_html_()
    marks = collect(ledger, ("who-am-i",))
    assert [mark.outcome for mark in marks] == ["not attempted"]
    assert without_ranks(marks) == "no check could run, because there is no cluster here: ports are denied: ask for one"
    ledger.write_text('{"exercise": "x", "outcome": "passed"}\n{"cut sh')
    assert without_ranks(collect(ledger)) is None and without_ranks(collect(tmp_path / "none")) is None
