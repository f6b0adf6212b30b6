"""Communications within one memory."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch.distributed import ReduceOp

from kit.probe.operations import OperationCall
from kit.probe.threads.moves import hand_over, move


def floats(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float32)


def values(tensors: Sequence[torch.Tensor]) -> list[list[float]]:
    return [tensor.flatten().tolist() for tensor in tensors]


def in_place(name: str, tensors: Sequence[torch.Tensor], **more: object) -> list[OperationCall]:
    return [OperationCall(name, [tensor], [tensor], "inout", **more) for tensor in tensors]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        (ReduceOp.SUM, [6.0, 7.0]),
        (ReduceOp.AVG, [2.0, 7 / 3]),
        (ReduceOp.PRODUCT, [6.0, 8.0]),
        (ReduceOp.MIN, [1.0, 1.0]),
        (ReduceOp.MAX, [3.0, 4.0]),
    ],
)
def test_reductions(op: ReduceOp, expected: list[float]) -> None:
    tensors = [floats(1, 1), floats(2, 2), floats(3, 4)]
    move(in_place("all_reduce", tensors, reduce=op))
    assert values(tensors) == [pytest.approx(expected)] * 3


def test_bits() -> None:
    tensors = [torch.tensor([0b0110]), torch.tensor([0b0011])]
    for op, expected in ((ReduceOp.BAND, 0b0010), (ReduceOp.BOR, 0b0111), (ReduceOp.BXOR, 0b0101)):
        both = [tensor.clone() for tensor in tensors]
        move(in_place("all_reduce", both, reduce=op))
        assert values(both) == [[expected], [expected]]


def test_what_cannot_be_reduced_says_what_can() -> None:
    with pytest.raises(ValueError, match="use one of SUM, AVG"):
        move(in_place("all_reduce", [floats(1)], reduce=torch.distributed._make_nccl_premul_sum(2.0)))


def test_only_the_root_is_given_a_reduction_and_only_it_gives_a_broadcast() -> None:
    tensors = [floats(1), floats(2), floats(4)]
    move(in_place("reduce", tensors, root=1, reduce=ReduceOp.SUM))
    assert values(tensors) == [[1], [7], [4]]
    move(in_place("broadcast", tensors, root=2))
    assert values(tensors) == [[4], [4], [4]]


def test_gathers_fill_one_tensor_or_a_list_of_any_sizes() -> None:
    one, lists = torch.zeros(3), [torch.zeros(2), torch.zeros(1)]
    given = [floats(1, 2), floats(3)]
    move([OperationCall("all_gather", [given[0]], [one], "out"), OperationCall("all_gather", [given[1]], lists, "out")])
    assert values([one, *lists]) == [[1, 2, 3], [1, 2], [3]]
    root = [torch.zeros(2), torch.zeros(1)]
    move(
        [
            OperationCall("gather", [given[0]], [], "out", root=1),
            OperationCall("gather", [given[1]], root, "out", root=1),
        ]
    )
    assert values(root) == [[1, 2], [3]]


def test_several_gathers_in_one_call() -> None:
    outputs = [[torch.zeros(2), torch.zeros(4)] for _ in range(2)]
    move([OperationCall("all_gather", [floats(r), floats(r, 10 + r)], outputs[r], "out") for r in range(2)])
    assert all(values(own) == [[0, 1], [0, 10, 1, 11]] for own in outputs)


def test_scatters_give_each_its_part() -> None:
    outputs = [torch.zeros(1), torch.zeros(2)]
    parts = [
        OperationCall("scatter", [], [outputs[0]], root=1),
        OperationCall("scatter", [floats(1), floats(2, 3)], [outputs[1]], root=1),
    ]
    move(parts)
    assert values(outputs) == [[1], [2, 3]]
    move(
        [
            OperationCall("reduce_scatter", [floats(1), floats(2, 3)], [outputs[0]], reduce=ReduceOp.SUM),
            OperationCall("reduce_scatter", [floats(10, 20, 30)], [outputs[1]], reduce=ReduceOp.SUM),
        ]
    )
    assert values(outputs) == [[11], [22, 33]]


def test_all_to_all_also_into_its_own_inputs() -> None:
    first, second = [floats(1), floats(2)], [floats(3), floats(4)]
    move([OperationCall("all_to_all", first, first), OperationCall("all_to_all", second, second)])
    assert values([*first, *second]) == [[1], [3], [2], [4]]


def test_all_to_all_by_rows() -> None:
    outputs = [torch.zeros(2, 2), torch.zeros(4, 2)]
    rows = torch.arange(6.0).view(3, 2)
    parts = [OperationCall("all_to_all", [rows + 10 * rank], [outputs[rank]]) for rank in range(2)]
    move(parts, [[1, 2], [1, 2]])
    assert values(outputs) == [[0, 1, 10, 11], [2, 3, 4, 5, 12, 13, 14, 15]]
    even = [torch.zeros(2), torch.zeros(2)]
    move([OperationCall("all_to_all", [floats(r, 10 + r)], [even[r]]) for r in range(2)], [[], []])
    assert values(even) == [[0, 1], [10, 11]]


def test_a_message_has_elements_and_no_dimensions() -> None:
    inbox = torch.zeros(2, 2)
    hand_over(OperationCall("send", [torch.arange(4.0)], []), OperationCall("recv", [], [inbox]))
    assert inbox.tolist() == [[0, 1], [2, 3]]


def test_outputs_that_need_gradients_are_filled_all_the_same() -> None:
    parameter = torch.nn.Parameter(torch.zeros(1))
    move(in_place("broadcast", [floats(3), parameter], root=0))
    assert parameter.item() == 3 and parameter.requires_grad
