"""What is wrong with a schedule is found, and nothing else: mutants of good ones, and a proof by another way."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kit.plan.families import FAMILIES, schedule
from kit.plan.flaws import flaws
from kit.plan.schedule import Schedule, read

ZERO_BUBBLE = "0F0,0F1,0I0,0W0,0I1,0W1\n1F0,1I0,1F1,1I1,1W0,1W1"


@pytest.mark.parametrize(
    ("text", "said", "place"),
    [
        ("0F0,0B0\n1F0,1B0,1B0", "1B0 is there 2 times", (1, 2)),
        ("0F0\n1F0,1B0", "micro-batch 0 never comes back through stage 0: no 0B0", (None, None)),
        ("0F0,0B0\n1B0", "micro-batch 0 never goes forward through stage 1: no 1F0", (None, None)),
        ("0F0,0B0,0W0\n1F0,1B0", "0B0 is all of the backward pass, 0W0 a part: leave one out", (0, 2)),
        ("0F0,0I0\n1F0,1I0,1W0", "0I0 has no 0W0: the gradient of its weights is lost", (0, 1)),
        ("0F0,0W0\n1F0,1I0,1W0", "0W0 has no 0I0, which begins the backward pass", (0, 1)),
        ("0F0,0B0,1B0,0F1,0B1\n1F0,1F1,1B1", "1B0 is on rank 0, but stage 1 is on rank 1", (0, 2)),
        ("0B0,0F0\n1F0,1B0", "0B0 comes before 0F0, which it needs", (0, 0)),
        ("0F0,0W0,0I0\n1F0,1I0,1W0", "0W0 comes before 0I0, which it needs", (0, 1)),
        (
            "0F0,0B0,0F1,0B1\n1F1,1F0,1B0,1B1",
            "1F1: stage 1 needs the activation of micro-batch 1 that stage 0 has not sent, because rank 0 waits "
            "before 0B0",
            (1, 0),
        ),
        (
            "0F0,0B0,1F0,1B0",
            "0B0: stage 0 needs the gradient of micro-batch 0 that stage 1 has not sent: 1B0 comes later on the same "
            "rank",
            (0, 1),
        ),
    ],
)
def test_each_flaw_has_its_sentence_and_its_place(text: str, said: str, place: tuple[int | None, int | None]) -> None:
    found = {flaw.sentence: (flaw.rank, flaw.position) for flaw in flaws(read(text, stages=2))}
    assert found.get(said) == place, found


def test_what_the_model_does_not_have_is_named() -> None:
    few = Schedule("few", read("0F0,0B0,0F3").rows, stages=1, micro_batches=2)
    assert [flaw.sentence for flaw in flaws(few)] == ["0F3: there is no micro-batch 3, only 0 to 1"]
    low = Schedule("low", read("0F0,0B0\n1F0,1B0").rows, stages=1, micro_batches=1)
    assert [flaw.sentence for flaw in flaws(low)] == [
        "1F0: there is no stage 1, only 0 to 0",
        "1B0: there is no stage 1, only 0 to 0",
    ]


def test_too_little_room_for_activations_is_named() -> None:
    (flaw,) = flaws(schedule("GPipe", 1, 4), room=3)
    assert flaw.sentence == "0F3 is activation number 4 on rank 0, which has room for 3"
    assert (flaw.rank, flaw.position) == (0, 3)
    assert flaws(schedule("1F1B", 4, 16), room=4) == ()


@pytest.mark.parametrize("family", FAMILIES)
def test_no_action_can_be_left_out_or_done_twice(family: str) -> None:
    good = schedule(family, 4, 8)
    assert flaws(good) == ()
    for rank, row in enumerate(good.rows):
        for position, action in enumerate(row):
            without = flaws(good.with_row(rank, row[:position] + row[position + 1 :]))
            assert any(re.search(rf"\b{action.stage}[FBIW]{action.micro_batch}\b", flaw.sentence) for flaw in without)
            twice = flaws(good.with_row(rank, (*row, action)))
            assert twice[0].sentence == f"{action} is there 2 times"


def can_run(text: str) -> bool:
    """By plain trial: whatever can be done next is done, until nothing can."""
    rows = [line.split(",") for line in text.splitlines()]
    stages, done = len(rows), set()

    def ready(cell: str) -> bool:
        stage, kind, micro_batch = int(cell[0]), cell[1], cell[2:]
        if kind == "F":
            return stage == 0 or f"{stage - 1}F{micro_batch}" in done
        if kind == "W":
            return f"{stage}I{micro_batch}" in done
        back = any(f"{stage + 1}{part}{micro_batch}" in done for part in "IB")
        return f"{stage}F{micro_batch}" in done and (stage == stages - 1 or back)

    while movable := [row for row in rows if row and ready(row[0])]:
        for row in movable:
            done.add(row.pop(0))
    return not any(rows)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_a_shuffled_schedule_is_flawless_if_and_only_if_it_can_run(data: st.DataObject) -> None:
    family = data.draw(st.sampled_from(["naive", "GPipe", "1F1B", "ZBH1", "ZBH2"]))
    made = schedule(family, data.draw(st.integers(2, 3)), data.draw(st.integers(1, 3)))
    for _ in range(data.draw(st.integers(1, 4))):
        rank = data.draw(st.integers(0, made.ranks - 1))
        places = st.integers(0, len(made.rows[rank]) - 1)
        made = made.moved(rank, data.draw(places), data.draw(places))
    assert (flaws(made) == ()) == can_run(made.text().strip())
