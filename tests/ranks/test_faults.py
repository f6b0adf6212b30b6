"""Every fault ends in a clear sentence, stepped and recorded, and leaves a cluster that works."""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from kit.run import record
from kit.run.errors import RankError
from kit.run.live import LiveRunner
from tests.ranks import culprits, faults
from tests.ranks.living import alive, once_there, until


def line(function: Callable[..., Any], offset: int) -> int:
    return function.__code__.co_firstlineno + offset


def works(cluster: LiveRunner) -> bool:
    return all(r.tolist() == [3.0] for r in cluster.record(faults.fine, torch.ones(1)).results)


ALIKE = [  # stepped and recorded runs end in the same sentence
    (
        faults.one_returns,
        f"Deadlock: ranks 0, 2 wait in all_reduce (line {line(faults.one_returns, 2)}); rank 1 finished without it.",
    ),
    (
        faults.shapes,
        f"rank 0 calls all_reduce of 6 x float32 (line {line(faults.shapes, 1)}), "
        f"ranks 1, 2 call all_reduce of 4 x float32 (line {line(faults.shapes, 1)}): "
        "the shapes must be equal on every rank.",
    ),
    (
        faults.operations,
        f"ranks 0, 1 call all_reduce of 2 x float32 (line {line(faults.operations, 4)}), "
        f"rank 2 calls broadcast of 2 x float32 (line {line(faults.operations, 2)}): "
        "every rank of a group must call the same operation in the same order.",
    ),
    (
        faults.both_send_first,
        f"Deadlock: rank 0 waits in send to rank 1 (line {line(faults.both_send_first, 3)}), "
        f"rank 1 waits in send to rank 0 (line {line(faults.both_send_first, 3)}): each waits for the other.",
    ),
    (
        faults.raises,
        f"rank 1 failed at line {line(faults.raises, 2)}: ValueError: boom\n"
        f"Deadlock: ranks 0, 2 wait in all_reduce (line {line(faults.raises, 3)}); rank 1 failed without it.",
    ),
]
BY_GROUP = [  # gloo may abort a process on these before every rank has spoken: the sentence is about the ranks that had
    (faults.dtypes, r"call(s)? all_reduce of 4 x float64 .*: the dtypes must be equal on every rank\."),
    (faults.sources, r"call(s)? broadcast from rank 1 .*: every rank must name the same source\."),
    (
        faults.message_too_large,
        r"rank 0 sends 8 x float32 to rank 1 .*, rank 1 receives 4 x float32 from rank 0 .*must have the same size\.",
    ),
]


@pytest.mark.parametrize(("function", "sentence"), ALIKE, ids=lambda v: getattr(v, "__name__", ""))
def test_stepped(three: LiveRunner, function: Callable[..., Any], sentence: str) -> None:
    session = three.step(function, torch.ones(2))
    state = session.finish()
    for part in sentence.splitlines():
        assert part in str(state)
    assert works(three), "the next run begins on whole ranks by itself"


@pytest.mark.parametrize(("function", "sentence"), ALIKE, ids=lambda v: getattr(v, "__name__", ""))
def test_recorded(three: LiveRunner, function: Callable[..., Any], sentence: str) -> None:
    with pytest.raises(RankError) as caught:
        three.record(function, torch.ones(2))
    assert set(str(caught.value).splitlines()) >= set(sentence.splitlines())
    assert caught.value.trace.meta.mode == "record"
    assert works(three)


@pytest.mark.parametrize(("function", "pattern"), BY_GROUP, ids=lambda v: getattr(v, "__name__", ""))
def test_what_gloo_would_die_of(three: LiveRunner, function: Callable[..., Any], pattern: str) -> None:
    state = three.step(function, torch.ones(2)).finish()
    errors = [s.error.message for s in state if s.error]
    assert errors and all(re.search(pattern, e) for e in errors)
    with pytest.raises(RankError, match=pattern):
        three.record(function, torch.ones(2))
    assert works(three)


def test_a_rank_that_gloo_ends_is_laid_beside_those_that_went_on(three: LiveRunner) -> None:
    """Beside as many as can still tell: on a busy machine that may be none, so its own end is what is certain."""
    with pytest.raises(RankError) as caught:
        three.record(faults.another_model)
    said = str(caught.value)
    assert "rank 1 " in said
    if "died in broadcast" in said and "call" in said:
        assert "rank 1 calls broadcast of 2 x 4 x float32" in said and "the shapes must be equal on every rank" in said
    assert works(three)


def test_a_rank_that_exits(three: LiveRunner) -> None:
    state = three.step(faults.exits, torch.ones(2)).finish()
    assert str(state[1]).startswith("rank 1 died: exited with code 3")
    assert "Deadlock: ranks 0, 2 wait in all_reduce" in (state.verdict or "")
    with pytest.raises(RankError, match="rank 1 died: exited with code 3"):
        three.record(faults.exits, torch.ones(2))
    assert works(three)


def test_an_endless_loop_is_seen_and_can_be_stopped_in_its_tracks(three: LiveRunner) -> None:
    session = three.step(faults.endless, torch.ones(2))
    session.finish(ranks=[0, 2])
    session.to_line(line(faults.endless, 4), ranks=[1])
    state = session.finish(timeout=0.5)
    assert [s.phase for s in state] == ["waiting", "running", "waiting"]
    assert state[1].place is not None and state[1].place.line in (line(faults.endless, 3), line(faults.endless, 4))
    assert state.verdict is None, "a rank that runs may still come"
    assert session.step(ranks=[1])[1].phase == "paused"
    assert works(three)


def test_a_long_call_in_c_blocks_nobody_else(three: LiveRunner) -> None:
    session = three.step(faults.long_in_c, torch.ones(1))
    session.to_line(line(faults.long_in_c, 2), ranks=[1])
    session.finish(ranks=[0, 2])
    state = session.finish(timeout=0.5)
    assert [s.phase for s in state] == ["waiting", "running", "waiting"]
    assert state[1].place is not None and state[1].place.line == line(faults.long_in_c, 2)
    assert until(lambda: [s.phase for s in session.state] == ["finished"] * 3), "the record goes on by itself"
    assert session.results[0].tolist() == [3.0]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["SIGKILL", "SIGSTOP"])
def test_a_signal_to_a_rank_that_waits(three: LiveRunner, number: signal.Signals) -> None:
    session = three.step(faults.fine, torch.ones(1))
    assert session.finish(ranks=[0])[0].phase == "waiting"
    os.kill(three.pids[0], number)
    words = {signal.SIGKILL: "rank 0 died: killed by SIGKILL", signal.SIGSTOP: "rank 0 is stopped (SIGSTOP)"}[number]
    assert until(lambda: words in str(session.state)), "without a motion"
    before = three.pids
    session.reset()
    assert until(lambda: not alive(before)), "neither a dead rank nor a stopped one is waited for"
    assert [s.phase for s in session.state] == ["paused"] * 3
    session.finish()
    assert session.results[0].tolist() == [3.0]


def test_a_stopped_rank_goes_on_when_it_is_continued(three: LiveRunner) -> None:
    session = three.step(faults.fine, torch.ones(1))
    os.kill(three.pids[1], signal.SIGSTOP)
    assert until(lambda: session.state[1].phase == "stopped")
    os.kill(three.pids[1], signal.SIGCONT)
    assert until(lambda: session.state[1].phase == "paused")
    assert [s.phase for s in session.finish()] == ["finished"] * 3


def test_a_rank_stopped_between_runs(three: LiveRunner) -> None:
    assert works(three)
    os.kill(three.pids[2], signal.SIGSTOP)
    with pytest.raises(RankError, match=r"rank 2 is stopped by SIGSTOP: continue it, or run cluster\.reset\(\)\."):
        three.record(faults.fine, torch.ones(1))
    assert works(three), "the next run begins on whole ranks by itself"
    os.kill(three.pids[2], signal.SIGSTOP)
    session = three.step(faults.fine, torch.ones(1))
    assert [s.phase for s in session.state] == ["paused", "paused", "stopped"]
    os.kill(three.pids[2], signal.SIGCONT)
    while session.live:
        session.finish()
    assert session.results[0].tolist() == [3.0]


def test_a_rank_that_is_told_to_go_before_it_has_begun_goes(three: LiveRunner) -> None:
    """It is told so while it is stopped, and hears of the run and of the motion at once."""
    assert works(three)
    os.kill(three.pids[2], signal.SIGSTOP)
    session = three.step(faults.fine, torch.ones(1))
    assert [s.phase for s in session.finish()] == ["waiting", "waiting", "stopped"]
    os.kill(three.pids[2], signal.SIGCONT)
    while session.live:
        session.finish()
    assert session.results[0].tolist() == [3.0]


def test_a_rank_killed_while_a_record_runs(three: LiveRunner, tmp_path: Path) -> None:
    sign = tmp_path / "running"
    with (
        once_there(sign, os.kill, three.pids[0], signal.SIGKILL),
        pytest.raises(RankError, match="rank 0 died.*SIGKILL"),
    ):
        three.record(faults.endless, torch.ones(2), str(sign))
    assert works(three)


@pytest.mark.usefixtures("ctrl_c_is_heard")
def test_an_interrupted_record_leaves_a_working_cluster(three: LiveRunner, tmp_path: Path) -> None:
    main, sign = threading.main_thread().ident, tmp_path / "running"
    assert main is not None
    with once_there(sign, signal.pthread_kill, main, signal.SIGINT), pytest.raises(KeyboardInterrupt):
        three.record(faults.endless, torch.ones(2), str(sign))
    assert works(three)


def test_a_clash_is_told_without_a_rank_that_does_not_come(three: LiveRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "PATIENCE", 0.1)
    with pytest.raises(
        RankError, match=r"rank 0 calls all_reduce .*, rank 2 calls broadcast .*: every rank of a group"
    ):
        three.record(faults.clash_beside_an_endless_loop, torch.ones(2))
    assert works(three)


def test_where_one_rank_cannot_do_its_part_nobody_waits_for_it(three: LiveRunner) -> None:
    """The others are in gloo by then, each waiting for what the first would have sent."""
    state = three.step(faults.unfit_for_gloo_on_one_rank, torch.ones(2)).finish()
    assert str(state[0]).startswith("rank 0 failed at line") and "MkldnnCPU" in str(state[0])
    for other in (state[1], state[2]):
        assert other.error is not None and other.error.kind == "PartnerFailed"
        assert other.error.message.startswith("rank 0 could not do its part of all_reduce: NotImplementedError: ")
        assert len(other.error.message) < 300
    assert works(three)


def test_whoever_is_at_fault_is_named_alike_by_both(three: LiveRunner) -> None:
    """Stepped, nothing of it reaches gloo, so no ranks need be forked anew between them."""
    wrong = {}
    for function, words in culprits.CULPRITS.items():
        sentence = words.format(*(line(function, offset) for offset in range(5)))
        state = three.step(function, torch.ones(2)).finish()
        errors = [s.error.message for s in state if s.error]
        if sentence not in str(state).splitlines() and sentence not in errors:
            wrong[function.__name__, "stepped"] = str(state)
        with pytest.raises(RankError) as caught:
            three.record(function, torch.ones(2))
        if sentence not in str(caught.value):
            wrong[function.__name__, "recorded"] = str(caught.value)
    assert not wrong, "\n".join(f"{who}: {said}" for who, said in wrong.items())


@pytest.mark.parametrize("waiting", [True, False], ids=["waiting", "afterwards"])
@pytest.mark.parametrize("how", ["all_reduce", "reduce", "reduce_scatter"])
def test_of_a_dead_rank_nothing_is_said_that_it_did_not_do(three: LiveRunner, how: str, waiting: bool) -> None:
    with pytest.raises(RankError) as caught:
        three.record(culprits.killed, how, three.reset().pids[1], waiting)
    said = str(caught.value)
    assert said.startswith(f"rank 1 died in {how}") and "or after it: killed by SIGKILL." in said
    assert "call" not in said
    state = three.step(culprits.killed, how, three.reset().pids[1], waiting).finish()
    assert str(state[1]) == "rank 1 died: killed by SIGKILL"
    if waiting:
        assert state.verdict is not None and state.verdict.startswith(f"Deadlock: ranks 0, 2 wait in {how}")
        assert state.verdict.endswith("; rank 1 died.")
    assert "call" not in str(state)


async def waits_for_nothing() -> None:
    dist.barrier()


def hands_out() -> Iterator[int]:
    dist.barrier()
    yield 1


@pytest.mark.parametrize("function", [waits_for_nothing, hands_out], ids=["async", "generator"])
def test_a_function_of_which_calling_runs_nothing_is_refused(three: LiveRunner, function: Callable[..., Any]) -> None:
    for run in (three.step, three.record):
        with pytest.raises(ValueError, match="calling it runs nothing of it: "):
            run(function)


def leaves_content() -> None:
    dist.barrier()
    sys.exit(0)


def test_a_program_that_exits_with_0_has_not_failed(three: LiveRunner) -> None:
    assert three.record(leaves_content).results == [None] * 3
    assert [s.phase for s in three.step(leaves_content).finish()] == ["finished"] * 3


def sends_and_leaves(x: torch.Tensor) -> torch.Tensor:
    if dist.get_rank() == 0:
        dist.isend(x + 1, 1)
    if dist.get_rank() == 1:
        dist.recv(x, 0)
    return x


def test_what_a_rank_sent_before_it_ended_is_there_for_who_comes_later(three: LiveRunner) -> None:
    session = three.step(sends_and_leaves, torch.zeros(1))
    session.finish(ranks=[0, 2])
    assert session.finish().verdict is None
    assert [result.tolist() for result in session.results] == [[0.0], [1.0], [0.0]]
    assert works(three), "and what it was sent with is not in the way of the next run"
