"""Overlap under several settings, without ranks: what is recorded, what is said of it, what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kit.run.call import Call
from kit.run.options import Options
from kit.run.results import Recording
from kit.topics.data_parallel import measure_overlap, plot_overlap
from kit.topics.data_parallel.overlap import named_by
from kit.trace.trace import Trace
from tests.unit.trace.test_overlap import backward


class Traces:
    """In place of ranks: answers with traces made beforehand, and notes what it was asked."""

    def __init__(self, *traces: Trace) -> None:
        self.traces = list(traces)
        self.asked: list[tuple[Any, ...]] = []

    def run(self, call: Call, options: Options, quiet: bool = False) -> Recording:
        self.asked.append(call.args)
        return Recording.of(self.traces.pop(0), lambda: [1, 2], call, "A recording.")


def train(bucket: int | None, steps: int) -> None:
    """Never called here."""


def on(there: Traces) -> Options:
    return Options(cluster=there)  # type: ignore[arg-type]


def test_each_setting_is_recorded_in_turn() -> None:
    there = Traces(backward(4, 100, 60), backward(1, 400, 240), backward(4, 100, 60, asynchronous=False))
    found = measure_overlap(train, [25_000, 1_000_000, None], (3,), options=on(there))
    assert there.asked == [(25_000, 3), (1_000_000, 3), (None, 3)]
    assert list(found) == ["buckets of 25 kB", "buckets of 1 MB", "no overlap"]
    assert found["buckets of 25 kB"].worst.exposed_share == pytest.approx(0.25)
    assert found["no overlap"].worst.exposed_share == 1.0
    lines = repr(found).splitlines()
    assert "0.06 ms of     0.24 ms exposed ( 25 %), step     0.46 ms" in lines[0] and "throttled" in lines[-1]
    panel = found.plot()
    assert panel.text().startswith("A recording.\nbuckets of 25 kB: a step of 460 µs.")
    assert plot_overlap(found.runs).text() in panel.text()
    with pytest.raises(KeyError, match="choose from buckets of 25 kB"):
        found["none"]


def test_settings_of_ones_own_names() -> None:
    there = Traces(backward(2, 100, 60))
    assert list(measure_overlap(train, {"mine": (1, "x")}, options=on(there))) == ["mine"]
    assert there.asked == [((1, "x"),)]
    assert [named_by(one) for one in (None, 1000, True, "ring")] == ["no overlap", "buckets of 1 kB", "True", "ring"]
    with pytest.raises(ValueError, match="name at least one setting"):
        measure_overlap(train, [], options=on(there))


def test_what_was_measured_over_different_links_is_not_compared() -> None:
    slow = backward(2, 100, 60)
    fast = replace(slow, meta=replace(slow.meta, notes=()))
    with pytest.raises(ValueError, match="different links"):
        plot_overlap({"slow": slow, "fast": fast})
