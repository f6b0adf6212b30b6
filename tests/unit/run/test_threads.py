"""Ranks as threads, without any: what they refuse, and what a process that goes silent leaves."""

from __future__ import annotations

import socket
from types import SimpleNamespace
from typing import Any

import pytest

from kit.protocol.messages import Alive
from kit.protocol.wire import Channel
from kit.run import threads
from kit.run.call import Call
from kit.run.options import Options
from kit.run.threads import ThreadRunner, _InThreads


def test_they_are_recorded_not_stepped_and_not_timed() -> None:
    host: Any = SimpleNamespace()
    runner = ThreadRunner(host, 16, 60.0)
    assert repr(runner) == "16 ranks, threads of one process" and runner.devices == ("cpu",) * 16
    with pytest.raises(ValueError, match="recorded, not stepped"):
        runner.open_session(Call(print), Options())
    with pytest.raises(ValueError, match=r"kit.options\(...\).record"):
        Options(ranks=16, threads=True, cluster=runner).step(print)


def test_a_process_that_says_nothing_any_more_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "SILENCE", 0.01)
    here, there = socket.socketpair()
    here.settimeout(threads.SILENCE)
    going = _InThreads(SimpleNamespace(hear=lambda message: None), 2)  # type: ignore[arg-type]
    with here, there:
        Channel[Any, Alive](there).send(Alive())
        going.hear(Channel(here))
    position = going.position()
    assert position.verdict == "the process that ran all ranks as threads gave no sign of life for 0.01 s."
    assert [state.phase for state in position.states] == ["dead", "dead"]
