"""Schedules with their messages: where they stand, that each is sent once and received once, and read back."""

from __future__ import annotations

import re

import pytest

from kit.plan.families import FAMILIES, schedule
from kit.plan.lowered import lowered
from kit.plan.schedule import read


def test_a_message_follows_what_made_it() -> None:
    assert lowered(schedule("GPipe", 2, 1)) == (
        "0F0,0SEND_F0,0RECV_B0,0B0,0REDUCE_GRAD\n1RECV_F0,1F0,1B0,1SEND_B0,1REDUCE_GRAD\n"
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_all_that_is_sent_is_received_and_the_schedule_is_the_same(family: str) -> None:
    plan = schedule(family, 4, 8)
    text = lowered(plan)
    assert read(text, plan.name, plan.stages).rows == plan.rows
    sent = {(int(s) + (1 if k == "F" else -1), k, m) for s, k, m in re.findall(r"(\d+)SEND_([FB])(\d+)", text)}
    received = {(int(s), k, m) for s, k, m in re.findall(r"(\d+)RECV_([FB])(\d+)", text)}
    assert sent == received and len(re.findall("SEND", text)) == len(sent) > 0


def test_one_that_comes_to_a_halt_is_refused() -> None:
    crossed = schedule("GPipe", 2, 2).with_row(0, schedule("naive", 2, 2).rows[0])
    with pytest.raises(ValueError, match="comes to a halt: 0B0"):
        lowered(crossed)
