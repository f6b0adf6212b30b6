"""Waits for posted operations are all noted, whichever threads wait."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace

import pytest
import torch

from kit.probe import posted
from kit.probe.accelerator import CPU
from kit.probe.ledger import Entry
from kit.probe.operations import OperationCall
from kit.probe.posted import PostedWork

CALL = OperationCall("all_reduce", [torch.ones(2)], [torch.ones(2)])


class Posted(PostedWork):
    def stand(self, since: int) -> None:
        self.done.wait()


def test_a_wait_that_passes_another_in_a_second_thread_does_not_undo_it(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = Entry(0, 0, "all_reduce", "0", (0, 1), "0/c", 0, None, CALL.seen(), CALL.whole, 5, None, None, None, None)
    work = Posted(entry, CALL, CPU)
    work.finish()
    elsewhere = threading.Thread(target=work.wait)
    main = threading.get_ident()

    def clock() -> int:
        if threading.get_ident() == main:  # this wait is about to be noted: meanwhile the other is
            elsewhere.start()
            elsewhere.join()
        return time.monotonic_ns()

    monkeypatch.setattr(posted, "time", SimpleNamespace(monotonic_ns=clock))
    work.wait()
    first, second = entry.fact().waits
    assert first[0] >= second[0] and first[1] <= second[1], "the other lies within"
