"""Schedules that run on real ranks: refused before, measured while, and compared with a run without a pipeline."""

from __future__ import annotations

import pytest

import kit
from kit.gpt.model import GPTConfig
from kit.plan.families import FAMILIES, schedule
from kit.run.errors import RankError
from kit.run.live import LiveRunner
from kit.topics.pipeline import GPTWork, Work, run, simulated

SHORT = Work(0.002, 0.003, 0.001)


def test_every_schedule_is_measured(three: LiveRunner) -> None:
    """An action takes as long as it sleeps or longer, and comes after what it needs: with the times that its actions
    took, none can come earlier than the simulation says, on however busy a machine.
    """
    for family in FAMILIES:
        ran = run(schedule(family, 2, 4), SHORT, steps=2, runner=three)
        line, least = ran.timeline, simulated(ran.schedule, SHORT.times(ran.schedule))
        again = ran.replayed
        for rank in range(2):
            waits = [wait for op in ran.recording.trace.ranks[rank].operations for wait in op.waits]
            assert all(end - begin > 0 for begin, end in waits)
            for box, before, short in zip(line.boxes(rank), again.boxes(rank), least.boxes(rank), strict=True):
                assert box.ended - box.began >= (short.ended - short.began) * 0.999, (family, box.action)
                assert box.began >= before.began - 1e-6, (family, box.action)
        assert line.seconds >= again.seconds - 1e-6 and line.seconds >= least.seconds * 0.999
        assert ran.right, (family, ran.wrong)
        assert "sleep" in str(ran) and "those of a run without a pipeline" in str(ran)


def test_what_a_rank_waits_for_is_no_part_of_its_actions(three: LiveRunner) -> None:
    """Stage 0 takes so long that stage 1 stands most of the time: what it stands is in no box."""
    plan = schedule("1F1B", 2, 4)
    ran = run(plan, Work(0.001, 0.001, 0.001, slow={0: 20}), runner=three)
    line, trace = ran.timeline, ran.recording.trace
    zero = min(one.start for rank in trace.ranks for one in rank.stretches[-8:])
    stood = [(a - zero, b - zero) for op in trace.ranks[1].operations for a, b in op.waits]
    for box in line.boxes(1):
        assert not any(a < box.ended * 1e9 - 1000 and box.began * 1e9 + 1000 < b for a, b in stood), box.action
    assert sum(b - a for a, b in stood) > 0


def test_a_schedule_that_cannot_run_is_refused_and_shown_as_a_wait_if_forced(three: LiveRunner) -> None:
    """Rank 0 wants micro-batch 0 back before it sends the next, rank 1 wants both before it gives one back."""
    crossed = schedule("GPipe", 2, 2).with_row(0, schedule("naive", 2, 2).rows[0])
    with pytest.raises(
        ValueError, match=r"cannot run: 0B0: stage 0 needs the gradient of micro-batch 0 .*\(and 1 more"
    ):
        run(crossed, SHORT, runner=three)
    with pytest.raises(RankError) as caught:
        run(crossed, SHORT, force=True, runner=three)
    told = str(caught.value)
    assert "rank 0 waits in recv from rank 1" in told and "rank 1 waits in recv from rank 0" in told, told
    assert "rank 0, action 1: 0B0: stage 0 needs the gradient" in told, "in the terms of who wrote the rows"
    assert "line" not in told, "of the runtime, which nobody here has written"
    assert run(schedule("GPipe", 2, 2), SHORT, runner=three).right


def test_what_does_not_fit_is_refused_in_words(three: LiveRunner) -> None:
    with pytest.raises(ValueError, match="from 1 to 3, not 4"):
        run(schedule("1F1B", 4, 4), SHORT, runner=three)
    with pytest.raises(ValueError, match="0 seconds or more"):
        Work(forward=-1)
    with pytest.raises(ValueError, match="1 step or more"):
        run(schedule("1F1B", 2, 2), SHORT, steps=0, runner=three)


def test_a_slow_link_is_in_the_prediction_and_in_the_run(three: LiveRunner) -> None:
    link = kit.link(latency=0.02)
    ran = run(schedule("GPipe", 2, 2), SHORT, link=link.of(three), runner=three)
    assert ran.predicted.began[1][0] == pytest.approx(0.022)
    assert ran.timeline.began[1][0] >= 0.022 * 0.99
    assert ran.replayed.began[1][0] >= ran.timeline.ended[0][0] + 0.02
    assert "20 ms" in str(ran) and any("20 ms" in note for note in ran.recording.trace.meta.notes)


def test_a_link_that_is_slow_between_nodes_alone_is_foretold_there(three: LiveRunner) -> None:
    """What goes from rank 0 to rank 1 stays in a node: it is there at once, measured and foretold."""
    link = kit.link(latency=0.2, between=[[0, 1], [2]])
    ran = run(schedule("GPipe", 3, 2), SHORT, steps=1, link=link.of(three), runner=three)
    assert [row[0] for row in ran.predicted.began] == pytest.approx([0, 0.002, 0.204])
    line, again = ran.timeline, ran.replayed
    assert again.began[1][0] == pytest.approx(again.ended[0][0])
    assert line.began[2][0] >= line.ended[1][0] + 0.2 * 0.99 and line.seconds >= again.seconds - 1e-6
    assert "between" in str(ran)


@pytest.mark.parametrize(("family", "ranks"), [("ZBH1", 3), ("ZBVZeroBubble", 2), ("DualPipe", 2)])
def test_a_schedule_runs_on_the_gpt_itself(three: LiveRunner, family: str, ranks: int) -> None:
    """The embedding's matrix, the head's too, is on two ranks, in a V on one: it gets the gradient of both. So does
    every weight of a stage that is there in two copies.
    """
    small = GPTWork(GPTConfig(n_layer=4, n_head=2, n_embd=16, block_size=8, vocab_size=65), batch=2)
    ran = run(schedule(family, ranks, 4), small, steps=2, runner=three)
    assert ran.right, ran.wrong
    assert "stages of a GPT" in str(ran) and ran.predicted.seconds > 0
    (losses, own), *others = ran.recording.results
    turned = own | {"tokens.weight": -own["tokens.weight"]}
    assert "of tokens.weight is not that of the model" in small.wrong(ran.schedule, [(losses, turned), *others])
    assert "has no gradient" in small.wrong(ran.schedule, [(made, {}) for made, _ in ran.recording.results])
    assert "the loss of micro-batch 0" in small.wrong(ran.schedule, [(made, own) for made, own in others[:-1]])


def test_what_a_gpt_cannot_be_cut_for_is_refused(three: LiveRunner) -> None:
    with pytest.raises(ValueError, match="has 3 stages, and this GPT 2 blocks"):
        run(schedule("1F1B", 3, 3), GPTWork(GPTConfig(2, 2, 16, 8, 65)), runner=three)
