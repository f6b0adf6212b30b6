"""Ranks as threads, without any: what stands in for them, what is kept, and what a process that goes silent leaves."""

from __future__ import annotations

import socket
from types import SimpleNamespace
from typing import Any

import pytest

from kit.probe.wire import Channel
from kit.session import recorded, threads
from kit.session.threads import _Run, threads_on


def function(x: int) -> int:
    return x


def test_where_recordings_stand_in_they_answer_for_so_many_ranks() -> None:
    asked: list[Any] = []
    cluster: Any = SimpleNamespace(live=False, record_on=lambda *call, **named: asked.append((call, named)))
    threads_on(cluster, 16, 60.0).record(function, 1, y=2)
    assert asked == [((16, function, 1), {"y": 2})]


def test_what_a_lab_runs_on_them_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster: Any = SimpleNamespace(live=True)
    kept: list[Any] = []

    def keep(*call: Any) -> str:
        kept.append(call)
        return "kept"

    monkeypatch.setattr(recorded, "keeper", lambda: SimpleNamespace(record=keep))
    found: Any = threads_on(cluster, 16, 60.0).record(function, 1)
    assert found == "kept"
    ((where, call, _run),) = kept
    assert where is cluster and call == (function, (1,), {})


def test_it_says_what_it_is() -> None:
    cluster: Any = SimpleNamespace()
    assert repr(threads_on(cluster, 16, 60.0)) == "16 ranks, threads of one process: .record(function, ...)"


def test_a_process_that_says_nothing_any_more_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "SILENCE", 0.01)
    here, there = socket.socketpair()
    here.settimeout(threads.SILENCE)
    going = _Run(SimpleNamespace(hear=lambda message: None), 2)  # type: ignore[arg-type]
    with here, there:
        Channel(there).send({"kind": "alive"})
        going.hear(Channel(here))
    position = going.position()
    assert position.verdict == "the process whose threads the ranks were gave no sign of life for 0.01 s."
    assert [state.phase for state in position.states] == ["dead", "dead"]
