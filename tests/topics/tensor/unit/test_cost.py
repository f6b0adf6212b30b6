"""What tensor parallelism sends, by formula, beside the figures of its papers; and who holds what."""

from __future__ import annotations

from collections import Counter

import pytest

from kit.topics.tensor import cost

M, C = 6, 16


def test_column_and_row_are_each_others_mirror() -> None:
    for sequence in (False, True):
        forward = {"column": [], "row": ["reduce_scatter" if sequence else "all_reduce"]}
        backward = {"column": ["reduce_scatter" if sequence else "all_reduce"], "row": []}
        if sequence:
            forward["column"], backward["row"] = ["all_gather"], ["all_gather"]
        for kind, calls in {
            "column": cost.column(M, C, 4 * C, sequence),
            "row": cost.row(M, 4 * C, C, sequence),
        }.items():
            assert [call.name for call in calls if call.phase == "forward"] == forward[kind]
            assert [call.name for call in calls if call.phase == "backward"] == backward[kind]
            assert {call.elements for call in calls} == {M * C}, "the narrow side travels, whatever the wide one is"


@pytest.mark.parametrize("layer", [cost.mlp, cost.attention])
def test_one_all_reduce_each_way(layer: object) -> None:
    """Shoeybi and others (2019), figure 4: two in the forward pass of a layer of two parts, two in the backward."""
    calls = layer(M, C)  # type: ignore[operator]
    assert [(call.name, call.phase) for call in calls] == [("all_reduce", "forward"), ("all_reduce", "backward")]


def test_a_block_has_four_all_reduces_and_sequence_regions_cost_no_more() -> None:
    """Korthikanti and others (2022), section 4.2.2: the same bytes, but for the vectors' gradients."""
    assert Counter(call.name for call in cost.block(M, C)) == {"all_reduce": 4}
    vectors = [call for call in cost.block(M, C, sequence=True) if call.elements == C]
    cut = [call for call in cost.block(M, C, sequence=True) if call.elements != C]
    assert len(vectors) == 6 and Counter(call.name for call in cut) == {"all_gather": 4, "reduce_scatter": 4}
    assert cost.bytes_sent(cut, 4) == cost.bytes_sent(cost.block(M, C), 4) == 4 * 2 * M * C * 4 * 3 / 4


def test_a_group_of_one_sends_nothing() -> None:
    assert cost.bytes_sent(cost.gpt(M, C, 3), 1) == 0


def test_a_stage_boundary_is_crossed_once_each_way() -> None:
    assert cost.stage_boundary_bytes(M, C, 2) == M * C * 2
    with pytest.raises(ValueError, match="channels is 0"):
        cost.stage_boundary_bytes(M, 0)


def test_shards_lie_side_by_side() -> None:
    assert cost.spans(6, 3) == (slice(0, 2), slice(2, 4), slice(4, 6))
    with pytest.raises(ValueError, match="4 ranks cannot share 6 evenly: take 4 or 8"):
        cost.spans(6, 4)
    with pytest.raises(ValueError, match="4 ranks cannot share 3 evenly: take 4$"):
        cost.spans(3, 4)


def test_heads_stay_whole() -> None:
    assert [cost.heads_of(8, 4, rank).queries for rank in range(4)] == [range(r, r + 2) for r in (0, 2, 4, 6)]
    assert [cost.heads_of(8, 4, rank, 4).keys for rank in range(4)] == [range(r, r + 1) for r in range(4)]
    few = [cost.heads_of(8, 4, rank, 2) for rank in range(4)]
    assert [one.keys for one in few] == [range(1), range(1), range(1, 2), range(1, 2)]
    assert all(one.replicated for one in few) and not cost.heads_of(8, 4, 0, 4).replicated
    for wrong, said in {
        (6, 4, 0): "4 ranks cannot share 6 heads",
        (12, 4, 0, 3): "4 ranks cannot share 3 heads of keys",
        (8, 4, 0, 3): "key_heads is a divisor",
        (8, 4, 4): "rank 4 is none of 4",
    }.items():
        with pytest.raises(ValueError, match=said):
            cost.heads_of(*wrong)
