"""`kit.memory` and `kit.overlap` without ranks: what they hand on, what they say, what they refuse."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

import kit
from kit import front
from kit.session.memory import Accounted, checked
from kit.session.overlap import compare, named_by
from kit.trace import Trace, example
from tests.unit.trace.test_holdings import run as accounted_trace
from tests.unit.trace.test_overlap import backward


class Recordings:
    """In the place of a cluster: answers with traces made beforehand, and notes what it was asked."""

    live = False

    def __init__(self, *traces: Trace) -> None:
        self.traces = list(traces)
        self.asked: list[tuple[Any, ...]] = []

    def record(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        self.asked.append((function, args, kwargs))
        return SimpleNamespace(trace=self.traces.pop(0), results=[1, 2], about="A recording.")


def train(bucket: int | None, steps: int) -> None:
    """Never called here."""


def test_memory_is_a_recording_with_holdings(monkeypatch: pytest.MonkeyPatch) -> None:
    there = Recordings(accounted_trace())
    monkeypatch.setattr(front, "at_hand", lambda: there)
    found = kit.memory(train, None, steps=3, kinds={"optimizer state": "m"})
    assert isinstance(found, Accounted) and there.asked == [(train, (None,), {"steps": 3})], (
        "kinds is not the function's"
    )
    assert found.results == [1, 2] and found.peak(0).nbytes == 400 and found.holdings == found.trace.holdings()
    first, second, third = repr(found).splitlines()
    assert first == "ring_all_reduce on 2 ranks, memory by live storages"
    assert second.startswith("rank 0: 400 bytes at most in step (parameters 100, gradients 100, optimizer state 200)")
    panel = found.plot({"16P": 400.0})
    assert panel.text().startswith("A recording.\n") and "16P = 400 B (1.00 x that was measured)" in panel.text()


def test_memory_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(front, "at_hand", lambda: Recordings(accounted_trace()))
    run = kit.memory(train, None, 1)
    panel = kit.plot_memory({"a": run, "b": run.trace, "c": run.holdings}, {"a": 400.0})
    assert panel.text().splitlines()[0] == "A recording."
    assert [line[:2] for line in panel.text().splitlines()[1:7]] == ["a,", "a,", "b,", "b,", "c,", "c,"]
    assert "400 B" in kit.plot_memory(run.holdings.step(), 400.0).text()


def test_a_run_without_an_account_says_how_to_get_one() -> None:
    with pytest.raises(ValueError, match=r"kit.memory\(function, ...\) records one"):
        Accounted(SimpleNamespace(trace=example.ring()))  # type: ignore[arg-type]


def test_names_of_variables_by_kind() -> None:
    assert checked({"optimizer state": ["m", "v"], "gradients": "main"}) == {
        "optimizer state": ("m", "v"), "gradients": ("main",),
    }  # fmt: skip
    with pytest.raises(ValueError, match="no kind of memory 'allocator'"):
        checked({"allocator": "x"})


def test_overlap_records_each_setting_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    there = Recordings(backward(4, 100, 60), backward(1, 400, 240), backward(4, 100, 60, asynchronous=False))
    monkeypatch.setattr(front, "at_hand", lambda: there)
    found = kit.overlap(train, [25_000, 1_000_000, None], 3)
    assert [args for _, args, _ in there.asked] == [(25_000, 3), (1_000_000, 3), (None, 3)]
    assert list(found) == ["buckets of 25 kB", "buckets of 1 MB", "no overlap"]
    assert found["buckets of 25 kB"].worst.exposed_share == pytest.approx(0.25)
    assert found["no overlap"].worst.exposed_share == 1.0
    lines = repr(found).splitlines()
    assert "0.06 ms of     0.24 ms exposed ( 25 %), step     0.46 ms" in lines[0] and "throttled" in lines[-1]
    panel = found.plot()
    assert panel.text().startswith("A recording.\nbuckets of 25 kB: a step of 460 µs.")
    assert kit.plot_overlap(found.runs).text() in panel.text()
    with pytest.raises(KeyError, match="choose from buckets of 25 kB"):
        found["none"]


def test_settings_of_ones_own_names() -> None:
    there = Recordings(backward(2, 100, 60))
    assert list(compare(there, train, {"mine": (1, "x")}, (), {})) == ["mine"] and there.asked[0][1] == ((1, "x"),)
    assert [named_by(one) for one in (None, 1000, True, "ring")] == ["no overlap", "buckets of 1 kB", "True", "ring"]
    with pytest.raises(ValueError, match="name at least one setting"):
        compare(there, train, [], (), {})


def test_what_was_measured_over_different_links_is_not_compared() -> None:
    slow = backward(2, 100, 60)
    fast = replace(slow, meta=replace(slow.meta, notes=()))
    with pytest.raises(ValueError, match="different links"):
        kit.plot_overlap({"slow": slow, "fast": fast})
