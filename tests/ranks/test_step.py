"""Stepping real ranks: where they stand, what they hold, what they wait for, what is remembered."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist

import kit
from kit.panels.motions import Motions
from kit.run.cursor import Replay
from kit.run.errors import NotFinished
from kit.run.live import LiveRunner
from kit.trace.trace import Trace


def double_and_sum(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    dist.all_reduce(y)
    z = y + 1
    return z


FIRST = double_and_sum.__code__.co_firstlineno + 1  # the line of 'y = x * 2'


def call_helper(x: torch.Tensor) -> torch.Tensor:
    y = plus_one(x)
    y = y * 2
    return y


def plus_one(x: torch.Tensor) -> torch.Tensor:
    z = x + 1
    return z


def tens(world: int) -> object:
    # float64: 22222223, the sum over eight ranks, has no float32
    return kit.per_rank([torch.full((2,), 10.0**r, dtype=torch.float64) for r in range(world)])


def lines(position: object) -> list[int]:
    return [state.place.line for state in position]  # type: ignore[attr-defined]


def names(trace: Trace, rank: int, position: int) -> dict[str, list[float]]:
    frame = trace.stop(rank, position).frames[-1]
    return {fact.name: fact.values.tolist() for fact in frame.tensors}


def test_it_stands_before_the_first_line_and_goes_line_by_line(ranks: LiveRunner) -> None:
    session = ranks.step(double_and_sum, tens(ranks.size))
    assert session.state.motion == "start"
    assert lines(session.state) == [FIRST] * ranks.size
    assert lines(session.step()) == [FIRST + 1] * ranks.size
    assert lines(session.step()) == [FIRST + 2] * ranks.size
    assert [state.phase for state in session.finish()] == ["finished"] * ranks.size
    whole = 2.0 * sum(10.0**r for r in range(ranks.size)) + 1
    assert [result.tolist() for result in session.results] == [[whole, whole]] * ranks.size
    assert not session.live


def test_tensors_are_copied_at_the_stop(ranks: LiveRunner) -> None:
    session = ranks.step(double_and_sum, tens(ranks.size))
    session.step()
    session.step()
    trace = session.trace
    total = 2.0 * sum(10.0**r for r in range(ranks.size))
    for rank in range(ranks.size):
        assert names(trace, rank, 0) == {"x": [10.0**rank] * 2}
        assert names(trace, rank, 1)["y"] == [2 * 10.0**rank] * 2
        assert names(trace, rank, 2)["y"] == [total] * 2
    session.close()


def test_a_held_rank_makes_the_others_wait_and_its_own_step_frees_them(three: LiveRunner) -> None:
    session = three.step(double_and_sum, tens(3))
    session.step()
    waiting = session.step(ranks=[0, 2])
    assert [state.phase for state in waiting] == ["waiting", "paused", "waiting"]
    assert waiting[0].waiting_for == waiting[2].waiting_for == (1,)
    assert waiting[1].held and waiting.verdict is None
    assert "waits in all_reduce for rank 1" in str(waiting[0])
    seen = session.position
    again = session.step(ranks=[0, 2])
    assert again is waiting and session.position == seen, "stepping a waiting rank does nothing, and adds nothing"
    assert lines(session.step(ranks=[1])) == [FIRST + 2] * 3, "the motion waits for the ranks it has freed"
    held = [span for span in session.trace.spans() if span.kind == "held" and not span.open]
    assert [span.rank for span in held] == [1], "a hold that is over is drawn as one"
    session.close()


def test_over_into_and_out_of_a_helper(three: LiveRunner) -> None:
    session = three.step(call_helper, torch.ones(2))
    inside = plus_one.__code__.co_firstlineno + 1
    body = call_helper.__code__.co_firstlineno + 1
    assert lines(session.into()) == [inside] * 3
    assert session.state[0].place.function == "plus_one"
    assert lines(session.out()) == [body + 1] * 3
    session.finish()
    session = three.step(call_helper, torch.ones(2))
    assert lines(session.over()) == [body + 1] * 3
    session.close()


def test_to_line_and_to_the_next_operation(three: LiveRunner) -> None:
    session = three.step(double_and_sum, tens(3))
    before = session.to_collective()
    assert lines(before) == [FIRST + 1] * 3
    assert [session.trace.stop(r, session.position).about_to for r in range(3)] == ["all_reduce"] * 3
    assert not session.trace.ranks[0].operations, "it stands before the operation, not in it"
    assert lines(session.to_line(FIRST + 2)) == [FIRST + 2] * 3
    session.seek(0)
    motions = Motions(session)
    motions.collective()
    assert session.position == 1, "in the record it finds the operation again"
    session.seek(-1)
    with pytest.raises(ValueError, match="no stepped file is called 'nowhere.py'"):
        session.to_line(3, file="nowhere.py")
    session.close()


def test_going_back_replays_and_touches_no_rank(three: LiveRunner) -> None:
    session = three.step(double_and_sum, tens(3))
    session.step()
    stops = [len(rank.stops) for rank in session.trace.ranks]
    assert lines(session.back()) == [FIRST] * 3
    assert session.position == 0 and not session.live
    assert lines(session.forward()) == [FIRST + 1] * 3
    assert session.live
    assert [len(rank.stops) for rank in session.trace.ranks] == stops
    session.seek(0)
    assert lines(session.step()) == [FIRST + 2] * 3, "a motion goes on from the newest position"
    with pytest.raises(ValueError, match="positions 0 to 2"):
        session.seek(7)
    session.close()


def test_results_are_asked_for_too_early(three: LiveRunner) -> None:
    session = three.step(double_and_sum, tens(3))
    with pytest.raises(NotFinished, match="rank 0 paused before line"):
        session.results  # noqa: B018
    session.close()


def test_a_new_session_ends_the_old_one_whose_record_stays(three: LiveRunner) -> None:
    old = three.step(double_and_sum, tens(3))
    old.step(ranks=[0, 1])
    new = three.step(double_and_sum, tens(3))
    assert old.ended == "another function was given to the ranks"
    with pytest.raises(RuntimeError, match="another function was given to the ranks"):
        old.step()
    assert lines(old.back()) == [FIRST] * 3
    for rank in old.trace.ranks:
        between = zip(rank.active, rank.active[1:], strict=False)
        assert all(end <= start for (_, end), (start, _) in between), "while it stood it did not compute"
    assert lines(new.state) == [FIRST] * 3
    new.finish()
    assert len(new.results) == 3


def test_reset_stands_before_the_first_line_with_the_original_arguments(three: LiveRunner) -> None:
    session = three.step(double_and_sum, tens(3))
    session.step()
    session.step()
    before = three.pids
    state = session.reset()
    assert set(before).isdisjoint(three.pids)
    assert lines(state) == [FIRST] * 3 and len(session.trace.positions) == 1
    session.finish()
    assert session.results[0].tolist() == [223.0, 223.0]


def test_a_saved_trace_replays_without_ranks(three: LiveRunner, tmp_path: object) -> None:
    session = three.step(double_and_sum, tens(3))
    session.step()
    session.finish()
    path = tmp_path / "ring.trace"  # type: ignore[operator]
    session.trace.save(path)
    replay = Replay.load(path)
    assert [str(p) for p in replay.trace.positions] == [str(p) for p in session.trace.positions]
    assert lines(replay.seek(1)) == [FIRST + 1] * 3
    assert not replay.live


def test_ranks_that_do_not_exist(three: LiveRunner) -> None:
    session = three.step(double_and_sum, tens(3))
    with pytest.raises(ValueError, match="there is no rank 3: the ranks are 0 to 2"):
        session.step(ranks=[3])
    session.close()


def test_what_cannot_travel_says_so(three: LiveRunner) -> None:
    with pytest.raises(ValueError, match="per_rank holds 2 values, and there are 3 ranks"):
        three.step(double_and_sum, kit.per_rank([1, 2]))
    with pytest.raises(ValueError, match="cannot be sent to the ranks"):
        three.step(double_and_sum, (n for n in range(3)))
    with pytest.raises(ValueError, match="give a function"):
        three.step(3)


def prints(x: torch.Tensor) -> None:
    print("hello from", dist.get_rank())
    import warnings

    warnings.warn("careful", stacklevel=1)


def test_output_belongs_to_its_rank_and_stop(three: LiveRunner) -> None:
    session = three.step(prints, torch.ones(1))
    session.step()
    for rank in range(3):
        stop = session.trace.stop(rank, session.position)
        assert [(o.stream, o.text) for o in stop.output] == [("stdout", f"hello from {rank}\n")]
    session.finish()
    assert any(o.stream == "warning" and "careful" in o.text for o in session.trace.ranks[1].output)


def any_source() -> list[int]:
    found = []
    if dist.get_rank() == 0:
        for _ in range(dist.get_world_size() - 1):
            x = torch.zeros(1)
            found.append(dist.recv(x))
    else:
        dist.send(torch.ones(1), 0)
    return found


def test_a_receive_from_any_source_takes_what_comes(three: LiveRunner) -> None:
    session = three.step(any_source)
    session.finish(ranks=[0])
    assert session.state[0].waiting_for == (1, 2)
    session.finish(ranks=[0, 2])
    session.finish()
    assert session.results[0] == [2, 1]


def both_ways() -> float:
    other = 1 - dist.get_rank()
    inbox = torch.zeros(1)
    if other >= 0:
        sent = dist.isend(torch.full((1,), float(dist.get_rank())), other)
        dist.recv(inbox, other)
        sent.wait()
    return float(inbox)


def test_issuing_does_not_block_so_legal_code_stays_legal(three: LiveRunner) -> None:
    session = three.step(both_ways)
    session.finish()
    assert session.results[:2] == [1.0, 0.0]


def loops(x: torch.Tensor) -> torch.Tensor:
    for _ in range(2000):
        x = x + torch.ones(64)
    return x


def test_the_budget_bounds_what_is_kept_in_a_loop(three: LiveRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kit.run.scheduler.CAPTURE_BUDGET", 20_000)
    session = three.step(loops, torch.ones(64))
    for _ in range(200):
        session.step()
    stops = session.trace.ranks[0].stops
    assert stops[-1].truncated and not stops[-1].frames[-1].tensors
    kept = {id(f): f.values.nbytes for s in stops for f in s.frames[-1].tensors}
    assert sum(kept.values()) <= 20_000 + 64 * 4
    assert any("budget" in note for note in session.trace.meta.notes)
    session.close()
