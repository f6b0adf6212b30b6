"""The simulated pipeline: small cases by hand, messages and links, and what an order of the literature is worth."""

from __future__ import annotations

from itertools import pairwise

import pytest

from kit.cost.pipeline import Times, simulated
from kit.plan.families import FAMILIES, schedule
from kit.plan.schedule import Action, read


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
