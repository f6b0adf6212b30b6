"""Schedules as data: their text form is torch's, and what is read wrongly says where."""

from __future__ import annotations

import pytest
from torch.distributed.pipelining.schedules import _Action

from kit.plan.families import FAMILIES, schedule
from kit.plan.schedule import Action, read


@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_written_is_read_again(family: str) -> None:
    made = schedule(family, 4, 8)
    again = read(made.text(), made.name, made.stages)
    assert again == made


@pytest.mark.parametrize("family", FAMILIES)
def test_torch_reads_every_cell_as_the_same(family: str) -> None:
    made = schedule(family, 4, 8)
    for rank, line in enumerate(made.text().splitlines()):
        cells = [_Action.from_str(cell) for cell in line.split(",")]
        flat = [part for cell in cells for part in cell.sub_actions or (cell,)]
        seen = [Action(part.stage_index, part.computation_type.value, part.microbatch_index) for part in flat]
        assert tuple(seen) == made.rows[rank]


def test_messages_and_gaps_are_left_out() -> None:
    made = read("0F0,0SEND_F0,,0RECV_B0,0B0\n1UNSHARD,1RECV_F0,1F0,1B0,1SEND_B0,1REDUCE_GRAD\n")
    assert [list(map(str, row)) for row in made.rows] == [["0F0", "0B0"], ["1F0", "1B0"]]
    assert (made.stages, made.micro_batches, made.ranks) == (2, 1, 2)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("0F0,0X0", "row 0, column 2: '0X0' is no action"),
        ("0F0\n1F", "row 1, column 1: '1F' is no action"),
        ("0F0,(0F1;1Q0)OVERLAP_F_B", "'1Q0' is no action"),
        ("\n", "there is no action in it"),
    ],
)
def test_what_is_no_action_is_named_with_its_place(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said.replace("(", r"\(")):
        read(text)


def test_an_action_is_moved_and_nothing_else() -> None:
    made = schedule("1F1B", 2, 3)
    moved = made.moved(0, 2, 1)
    assert [*map(str, made.rows[0])] == ["0F0", "0F1", "0B0", "0F2", "0B1", "0B2"]
    assert [*map(str, moved.rows[0])] == ["0F0", "0B0", "0F1", "0F2", "0B1", "0B2"]
    assert moved.rows[1] == made.rows[1]
