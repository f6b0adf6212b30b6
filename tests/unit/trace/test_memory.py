"""Questions about accounts of memory, on accounts written down by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kit.trace.facts import Account, MemorySample, Pass
from kit.trace.memory import KINDS, MODEL, thinned, total
from kit.trace.trace import Trace
from tests.traces import example

MOMENTS = (
    MemorySample(1_000_000_000, "begins", parameters=100),
    MemorySample(1_000_000_100, "addmm", parameters=100, activations=70),
    MemorySample(1_000_000_200, "mm", parameters=100, gradients=100, activations=30),
    MemorySample(1_000_000_300, "zeros_like", parameters=100, gradients=100, optimizer_state=200),
    MemorySample(1_000_000_400, "step ends", parameters=100, optimizer_state=200),
)
PASSES = (
    Pass("forward", 1_000_000_050, 1_000_000_150),
    Pass("backward", 1_000_000_160, 1_000_000_250),
    Pass("step", 1_000_000_260, 1_000_000_400),
)


def run() -> Trace:
    trace = example.ring(2)
    later = tuple(replace(held, time=held.time + 50, other=8) for held in MOMENTS)
    accounts = Account("live storages", MOMENTS), Account("live storages", later)
    ranks = tuple(
        replace(rank, account=account, passes=PASSES) for rank, account in zip(trace.ranks, accounts, strict=True)
    )
    return replace(trace, ranks=ranks)


def test_a_peak_says_when_where_and_of_what() -> None:
    holdings = run().holdings()
    peak = holdings.peak(0)
    assert (peak.nbytes, peak.label, peak.within) == (400, "zeros_like", "step")
    assert peak.parts == (("parameters", 100), ("gradients", 100), ("optimizer state", 200))
    assert peak.seconds == pytest.approx(300e-9)
    assert holdings.peak(1).nbytes == 408 and holdings.peak(1, MODEL).nbytes == 400
    forward = holdings.peak(0, ["activations"])
    assert (forward.nbytes, forward.within) == (70, "forward")


def test_each_kind_has_its_own_moment() -> None:
    holdings = run().holdings()
    assert holdings.most(0) == {
        "parameters": 100, "gradients": 100, "optimizer state": 200, "activations": 70, "other": 0,
    }  # fmt: skip
    assert holdings.kinds == ("parameters", "gradients", "optimizer state", "activations", "other")
    assert [held.other for held in holdings.of(1)] == [8] * 5 and holdings.began == 1_000_000_000


def test_every_field_of_a_moment_is_a_kind() -> None:
    fields = set(MemorySample.__dataclass_fields__) - {"time", "label"}
    assert set(KINDS.values()) == fields
    assert total(MemorySample(0, "", **dict.fromkeys(fields, 1))) == len(KINDS)


def test_what_there_is_not() -> None:
    with pytest.raises(ValueError, match=r"not accounted for in this run: record it with kit.options\(memory"):
        example.ring(2).holdings()
    holdings = run().holdings()
    with pytest.raises(ValueError, match="no account of rank 2: choose one of 0 to 1"):
        holdings.peak(2)
    with pytest.raises(ValueError, match="no kind of memory 'weights': choose from parameters"):
        holdings.peak(0, ["weights"])


def test_thinning_keeps_ends_peaks_and_bounds() -> None:
    long = [MemorySample(i, f"op{i}", other=(i * 7919) % 1000) for i in range(10_000)]
    kept = thinned(long, 100)
    assert len(kept) <= 100 and kept[0] == long[0] and kept[-1] == long[-1]
    assert max(held.other for held in kept) == max(held.other for held in long)
    still = [
        MemorySample(0, "begins"),
        MemorySample(1, "a"),
        MemorySample(2, "step begins"),
        MemorySample(3, "b"),
        MemorySample(4, "ends"),
    ]
    assert [held.label for held in thinned(still)] == ["begins", "step begins", "ends"]


def test_until_ends_an_account_too() -> None:
    trace = run()
    first = trace.until(0)
    moment = max(state.now or 0 for state in trace.positions[0])
    account = first.ranks[0].account
    assert account is not None and all(held.time <= moment for held in account.samples)
