"""How a function is to be run, without ranks: what options hand on, what they say, what they refuse."""

from __future__ import annotations

from typing import Any

import pytest

import kit
from kit.run import current
from kit.run.call import Call
from kit.run.options import Options
from kit.run.results import Comparison, MemoryRecording, Recording
from kit.trace.trace import Trace
from tests.traces import example
from tests.unit.trace.test_memory import run as accounted_trace


class Traces:
    """In place of ranks: answers with traces made beforehand, and notes what it was asked."""

    def __init__(self, *traces: Trace) -> None:
        self.traces = list(traces)
        self.asked: list[tuple[Call, Options]] = []

    def run(self, call: Call, options: Options, quiet: bool = False) -> Recording:
        self.asked.append((call, options))
        return Recording.of(self.traces.pop(0), lambda: [1, 2], call, "A recording.")

    def record(self, function: Any, /, *args: Any, **kwargs: Any) -> Recording:
        return self.run(Call(function, args, kwargs), Options())


def train(bucket: int | None, steps: int) -> None:
    """Never called here."""


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch) -> Traces:
    traces = Traces(accounted_trace(), example.ring())
    monkeypatch.setattr(current, "runner", lambda: traces)
    return traces


def test_all_arguments_are_the_function_s(there: Traces) -> None:
    def anything(function: int, options: int, memory: int, ranks: int) -> None: ...

    kit.options(memory=True).record(anything, function=1, options=2, memory=3, ranks=4)
    kit.record(anything, function=1, options=2, memory=3, ranks=4)
    assert [call.kwargs for call, _ in there.asked] == [{"function": 1, "options": 2, "memory": 3, "ranks": 4}] * 2
    assert [options.memory for _, options in there.asked] == [True, False]


def test_memory_is_a_recording_with_holdings(there: Traces) -> None:
    found = kit.options(memory=True, kinds={"optimizer state": "m"}).record(train, None, steps=3)
    assert isinstance(found, MemoryRecording)
    assert found.results == [1, 2] and found.peak(0).nbytes == 400 and found.holdings == found.trace.holdings()
    first, second, third = repr(found).splitlines()
    assert first == "ring_all_reduce on 2 ranks, memory by live storages"
    assert second.startswith("rank 0: 400 bytes at most in step (parameters 100, gradients 100, optimizer state 200)")
    panel = found.plot({"16P": 400.0})
    assert panel.text().startswith("A recording.\n") and "16P = 400 B (1.00 x that was measured)" in panel.text()


def test_runs_side_by_side(there: Traces) -> None:
    run = kit.options(memory=True).record(train, None, 1)
    both = kit.compare({"a": run, "b": run})
    lines = both.plot({"a": 400.0}).text().splitlines()
    assert lines[0] == "A recording." and [line[:2] for line in lines[1:5]] == ["a,", "a,", "b,", "b,"]
    head, *rows = str(both).splitlines()
    assert head.split("  ")[0] == "run" and [row[0] for row in rows] == ["a", "b"] and "408 B" in rows[0]
    assert both["b"] is run and list(both) == ["a", "b"]
    with pytest.raises(KeyError, match="choose from a, b"):
        both["c"]


def test_runs_without_an_account_say_how_to_get_one(there: Traces) -> None:
    there.traces.pop(0)
    plain = kit.record(train, None, 1)
    assert type(plain) is Recording and "ring_all_reduce" in repr(plain)
    with pytest.raises(ValueError, match=r"plain has no account of memory: kit.options\(memory=True\)"):
        kit.compare({"plain": plain}).plot()
    with pytest.raises(ValueError, match="name at least one run"):
        Comparison({})


def test_time_can_be_drawn(there: Traces) -> None:
    there.traces.pop(0)
    assert "A recording." in kit.record(train, None, 1).plot().text()


def test_names_of_variables_by_kind() -> None:
    kinds = {"optimizer state": ["m", "v"], "gradients": "main"}
    assert Options(memory=True, kinds=kinds).variables() == {"optimizer state": ("m", "v"), "gradients": ("main",)}


@pytest.mark.parametrize(
    ("wishes", "words"),
    [
        ({"memory": True, "kinds": {"allocator": "x"}}, "no kind of memory 'allocator'"),
        ({"kinds": {"gradients": "x"}}, r"kit.options\(memory=True, kinds=...\)"),
        ({"threads": True, "memory": True}, "leave out threads, or memory and link"),
        ({"threads": True, "ranks": 0}, "ranks is a whole number from 1 to 128, not 0"),
        ({"threads": True, "ranks": 129}, "from 1 to 128"),
        ({"threads": True, "ranks": 2.0}, "from 1 to 128"),
        ({"threads": True, "ranks": True}, "from 1 to 128"),
        ({"threads": True, "patience": 0}, "patience is a time in seconds"),
    ],
)
def test_what_cannot_be_says_what_can(wishes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        kit.options(**wishes)


def test_a_session_steps_all_ranks_of_its_cluster() -> None:
    for wishes in ({"ranks": 2}, {"threads": True}, {"memory": True}):
        with pytest.raises(ValueError, match="options of a record"):
            kit.options(**wishes).step(train, None, 1)
