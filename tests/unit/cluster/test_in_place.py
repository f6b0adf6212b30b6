"""Where a cluster cannot be had and a lab is named, its recordings stand in; what a person can put right is raised."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import kit
from kit.cluster import mine
from kit.cluster.errors import ClusterError, Unavailable
from kit.cluster.folder import RunFolder
from kit.cluster.request import checked


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    yield
    mine._stand_in = None


def failing(monkeypatch: pytest.MonkeyPatch, problem: Exception) -> None:
    def start(*wishes: Any, **more: Any) -> Any:
        raise problem

    monkeypatch.setattr(mine, "Cluster", start)


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
    assert not cluster.live and cluster.size == 4
    assert str(problem).rstrip(".") in str(cluster.report())
    assert kit.cluster.at_hand() is cluster  # type: ignore[attr-defined]
    assert kit.reset() is cluster


@pytest.mark.parametrize("wishes", [{"ranks": "four"}, {"ranks": 0}, {"device": "gpu"}, {"folder": "/no/such"}])
def test_a_wish_that_makes_no_sense_is_told(wishes: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        kit.cluster(replay="00_ranks", **wishes)
    assert mine._stand_in is None


def test_a_cluster_that_can_be_had_takes_its_place_back(monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, Unavailable("not yet"))
    kit.cluster(replay="00_ranks")
    real: Any = object()
    monkeypatch.setattr(mine, "_start_or_join", lambda *wishes: real)
    assert kit.cluster(replay="00_ranks") is real
    assert kit.cluster.at_hand() is real  # type: ignore[attr-defined]


def test_a_lab_without_recordings_says_why_there_is_no_cluster_too(monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, Unavailable("ports are denied"))
    with pytest.raises(ValueError, match="ports are denied; nor can recordings stand in: .*`lockstep record 77`"):
        kit.cluster(replay="77_nothing")


def test_what_a_machine_cannot_give_is_unavailable(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setattr("sys.platform", "darwin")
    with pytest.raises(Unavailable, match="a cluster needs Linux"):
        checked()
    monkeypatch.undo()
    monkeypatch.setattr("kit.cluster.request.memory", lambda: (1_000_000, 1_000_000))
    with pytest.raises(Unavailable, match="4 ranks need about"):
        checked()
    with pytest.raises(Unavailable, match="too long a name"):
        RunFolder(str(_deep(tmp_path)))


def _deep(folder: Any) -> Any:
    deep = folder / ("a-long-name-" * 8)
    deep.mkdir()
    return deep


def test_a_check_needs_ranks(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    from kit.instructor.notebooks import Notebook
    from kit.instructor.outcome import no_ranks, read_verdicts

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
    lab = Notebook("00_ranks", tmp_path, shipped=True, exercises=("who-am-i",))
    assert [found.outcome for found in read_verdicts(lab, ledger)] == ["not attempted"]
    assert no_ranks(ledger) == "no check could run, because there is no cluster here: ports are denied: ask for one"
    ledger.write_text('{"exercise": "x", "outcome": "passed"}\n{"cut sh')
    assert no_ranks(ledger) is None and no_ranks(tmp_path / "none") is None
