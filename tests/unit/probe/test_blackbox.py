"""What a host reads of a rank that cannot answer any more."""

from __future__ import annotations

from kit.probe import blackbox
from kit.probe.blackbox import KEPT, Blackbox, BlackboxReader


def test_the_last_operations_are_there_in_order() -> None:
    memory = blackbox.create(2)
    box, reader = Blackbox(memory, 1), BlackboxReader(memory)
    assert reader.last_operations(1) == () and reader.last_line(1) == 0
    for index in range(3 * KEPT + 2):
        if index % 3 == 0:  # the others repeat it
            box.describe((f"op{index}", "0/c", (0, 1), ("in", (index,), "float32"), None, None, None))
        box.in_operation(100 + index, index, index)
    found = reader.last_operations(1)
    assert [(op.index, op.at_line) for op in found] == [
        (index, f" (line {100 + index})") for index in range(2 * KEPT + 2, 3 * KEPT + 2)
    ]
    assert [op.name for op in found] == [f"op{op.index - op.index % 3}" for op in found]
    assert [op.match for op in found] == [f"0/c/{op.index}" for op in found]
    assert reader.last_operations(0) == ()
    box.at_line(7)
    assert reader.last_line(1) == 7 and reader.last_operations(1) == found
    box.clear()
    assert reader.last_operations(1) == ()


def test_a_description_that_has_no_room_is_left_out() -> None:
    memory = blackbox.create(1)
    box, reader = Blackbox(memory, 0), BlackboxReader(memory)
    box.describe(("broadcast", "0/c", tuple(range(1000)), None, None, None, 0))
    box.in_operation(3, 0, 0)
    assert reader.last_operations(0) == () and reader.last_line(0) == 3
    box.describe(("barrier", "0/c", (0,), None, None, None, None))
    box.in_operation(4, 1, 1)
    assert [op.name for op in reader.last_operations(0)] == ["barrier"]
