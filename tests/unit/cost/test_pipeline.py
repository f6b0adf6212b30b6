"""The simulated pipeline: small cases by hand, messages and links, and what an order of the literature is worth."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from kit.cost.pipeline import Times, measured, simulated
from kit.plan.families import FAMILIES, schedule
from kit.plan.schedule import Action, read
from kit.trace.facts import Meta, Operation, RankTrace, Record, Stretch


def begins(text: str, times: Times) -> dict[str, float]:
    run = simulated(read(text), times)
    return {str(box.action): box.began for rank in range(len(run.began)) for box in run.boxes(rank)}


def test_a_message_takes_its_way() -> None:
    assert begins("0F0,0B0\n1F0,1B0", Times(1, 2, 3, latency=0.25, message=0.5)) == {
        "0F0": 0.0,
        "1F0": 1.75,
        "1B0": 2.75,
        "0B0": 8.5,
    }


def test_a_link_carries_one_message_at_a_time_in_each_direction() -> None:
    at = begins("0F0,0F1,0F2,0B0,0B1,0B2\n1F0,1F1,1F2,1B0,1B1,1B2", Times(1, 1, 1, message=4))
    assert [at["1F0"], at["1F1"], at["1F2"]] == [5, 9, 13]
    assert [at["1B0"], at["0B0"]] == [14, 20]


def test_messages_travel_while_ranks_compute() -> None:
    at = begins("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1", Times(1, 0.5, 0.5, latency=1))
    assert (at["1F0"], at["1F1"]) == (2, 4)  # the second came at 3, while 1B0 ran


def test_what_stays_on_a_rank_is_there_at_once() -> None:
    assert begins("0F0,1F0,1B0,0B0", Times(latency=9, message=9)) == {"0F0": 0, "1F0": 1, "1B0": 2, "0B0": 4}


def test_a_slow_link_between_some_ranks_delays_what_crosses_it_alone() -> None:
    text = "0F0,0B0\n1F0,1B0\n2F0,2B0\n3F0,3B0"
    at = begins(text, Times(latency=10, message=5, between=frozenset({(1, 2)})))
    assert [at[f"{stage}F0"] for stage in range(4)] == [0, 1, 17, 18]
    assert [at[f"{stage}B0"] for stage in (3, 2, 1, 0)] == [19, 21, 38, 40]


@pytest.mark.parametrize("family", ["Interleaved1F1B", "ZBVZeroBubble"])
def test_stages_dealt_out_otherwise_cross_other_links(family: str) -> None:
    """Between ranks 0 and 3 an interleaved schedule wraps round; one laid out in a V never goes there."""
    made, fast = schedule(family, 4, 8), simulated(schedule(family, 4, 8)).seconds
    neighbours = frozenset({(0, 1), (1, 2), (2, 3)})

    def seconds(between: frozenset[tuple[int, int]] | None) -> float:
        return simulated(made, Times(latency=3, message=1, between=between)).seconds

    assert seconds(None) == seconds(neighbours | {(0, 3)})
    assert seconds(frozenset()) == fast < seconds(frozenset({(1, 2)})) < seconds(None)
    wraps = family == "Interleaved1F1B"
    assert (seconds(frozenset({(0, 3)})) > fast) == wraps and (seconds(neighbours) < seconds(None)) == wraps


def test_stages_and_single_actions_may_take_longer() -> None:
    slow = simulated(read("0F0,0B0\n1F0,1B0"), Times(stages={1: 10}, measured={Action(0, "B", 0): 7}))
    assert slow.seconds == 1 + 10 + 20 + 7


def test_what_runs_together_begins_together_and_counts_once() -> None:
    text = "(0F0;0B1)OVERLAP_F_B,0B0\n"
    made = read("0F1," + text)
    run = simulated(made, Times(together=2.5))
    assert [(str(box.action), box.began, box.ended) for box in run.boxes(0)] == [
        ("0F1", 0, 1),
        ("0F0", 1, 3.5),
        ("0B1", 1, 3.5),
        ("0B0", 3.5, 5.5),
    ]
    assert (run.busy(0), run.seconds, run.idle_share) == (5.5, 5.5, 0)
    assert simulated(made, Times()).seconds == 6


def test_activations_are_held_until_their_weights_are_done() -> None:
    run = simulated(read("0F0,0F1,0I0,0I1,0W0,0W1"))
    assert run.held(0) == ((0.0, 1), (1.0, 2), (5.0, 1), (6.0, 0))


def test_with_slow_links_another_schedule_is_the_fastest() -> None:
    """Interleaving halves the bubble and doubles the messages: with slow ones it loses to 1F1B."""

    def seconds(family: str, message: float) -> float:
        chunks = 2 if family == "Interleaved1F1B" else 1
        parts = Times(1 / chunks, 1 / chunks, 1 / chunks, message=message)
        return simulated(schedule(family, 4, 8), parts).seconds

    assert seconds("Interleaved1F1B", 0) < seconds("1F1B", 0)
    assert seconds("Interleaved1F1B", 1.6) > seconds("1F1B", 1.6)


def test_one_that_comes_to_a_halt_is_refused_in_the_words_of_its_flaw() -> None:
    with pytest.raises(ValueError, match=r"comes to a halt: 0B0: stage 0 needs the gradient of micro-batch 0"):
        simulated(read("0F0,0B0,0F1,0B1\n1F1,1F0,1B0,1B1"))


def test_times_are_never_negative() -> None:
    with pytest.raises(ValueError, match="0 or more"):
        Times(forward=-1)


@pytest.mark.parametrize("family", FAMILIES)
def test_nothing_begins_before_what_it_needs_is_over(family: str) -> None:
    made = schedule(family, 4, 8)
    run = simulated(made, Times(1.0, 1.3, 0.7, together=2.5, latency=0.1, message=0.05))
    over = {box.action: box.ended for rank in range(len(run.began)) for box in run.boxes(rank)}

    def back(stage: int, micro_batch: int) -> float:
        part, whole = Action(stage, "I", micro_batch), Action(stage, "B", micro_batch)
        return over[part] if part in over else over[whole]

    for rank in range(4):
        row = list(run.boxes(rank))
        for (stage, kind, micro_batch), began, ended in row:
            assert ended > began
            if kind == "F" and not made.is_first(stage):
                assert began >= over[Action(stage - 1, "F", micro_batch)]
            if kind in "IB":
                assert began >= over[Action(stage, "F", micro_batch)]
                if not made.is_last(stage):
                    assert began >= back(stage + 1, micro_batch)
            if kind == "W":
                assert began >= over[Action(stage, "I", micro_batch)]
        for one, two in pairwise(row):
            assert two.began >= one.ended or two.began == one.began


# -- what has run


def recorded(*ranks: RankTrace) -> Record:
    return Record(Meta("train", "record", len(ranks), "gloo", ("cpu",) * len(ranks)), ranks)


def waited(rank: int, *waits: tuple[int, int]) -> Operation:
    return Operation(rank, 0, "recv", "0", (0, 1), "0/p/0>1/0/0", None, (), 4, 0, waits=waits)


TWO = read("0F0,0B0\n1F0,1B0")
RAN = recorded(
    RankTrace(0, stretches=(Stretch("PP:0F0", 1000, 2000), Stretch("PP:0B0", 5000, 9000))),
    RankTrace(
        1,
        stretches=(Stretch("PP:1F0", 2200, 3000), Stretch("Optimizer.step", 3000, 3100), Stretch("PP:1B0", 3500, 5000)),
    ),
)


def test_a_measured_timeline_is_what_the_code_has_named() -> None:
    line = measured(TWO, RAN)
    assert line.began == ((0.0, 4e-6), (1.2e-6, 2.5e-6)) and line.ended == ((1e-6, 8e-6), (2e-6, 4e-6))
    assert line.busy(0) == pytest.approx(5e-6) and line.idle(0) == pytest.approx(3e-6)


def test_waiting_for_a_message_is_idle_time() -> None:
    late = replace(RAN.ranks[0], operations=(waited(0, (500, 600), (4800, 6500)),))
    line = measured(TWO, replace(RAN, ranks=(late, RAN.ranks[1])))
    assert line.began[0] == (0.0, 5.5e-6), "until 6500 the backward pass stood in wait for its gradient"


def test_the_last_step_is_meant_unless_another_is_said() -> None:
    twice = tuple(
        replace(
            rank,
            stretches=(
                *rank.stretches,
                *(replace(s, start=s.start + 10**6, end=s.end + 10**6 + 9) for s in rank.stretches),
            ),
        )
        for rank in RAN.ranks
    )
    run = replace(RAN, ranks=twice)
    assert measured(TWO, run, step=0).began == measured(TWO, RAN).began
    assert measured(TWO, run).ended[0][0] == pytest.approx(1e-6 + 9e-9)


@pytest.mark.parametrize(
    ("text", "step", "said"),
    [
        ("0F0,0B0\n1B0,1F0", -1, "rank 1 did not take the actions of this schedule in their order"),
        ("0F0,0B0", -1, "a schedule of 1 ranks did not run on 2"),
        ("0F0,0B0\n1F0,1B0", 1, "rank 0 has taken 1 steps of this schedule: there is no step 1"),
    ],
)
def test_another_schedule_than_the_one_that_ran_is_refused(text: str, step: int, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        measured(read(text), RAN, step)


def test_what_was_measured_is_what_its_own_times_say() -> None:
    line = simulated(schedule("ZBH1", 3, 5), Times(2, 3, 1))
    again = simulated(line.schedule, line.times())
    assert again.began == line.began and again.ended == line.ended
