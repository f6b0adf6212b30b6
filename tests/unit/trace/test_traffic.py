"""Bytes by kind: the formulas against counts made by hand, and what must balance whatever the operation."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kit.trace.facts import Operation, Region
from kit.trace.traffic import Traffic, algorithmic_bytes, item_size, received, sent, whole_buffer

NAMES = ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce", "gather", "scatter"]


def part(
    name: str, rank: int, n: int, root: int | None = None, piece: int = 2, ranks: tuple[int, ...] = ()
) -> Operation:
    """One rank's part with pieces of `piece` float32, so that S = 4 * piece * n bytes for operations on pieces."""

    def regions(role: Any, count: int, elements: int) -> list[Region]:
        return [Region(role, 1, 0, (elements,), "float32")] * count

    members = ranks or tuple(range(n))
    at_root = rank == root
    listed = {
        "all_gather": regions("in", 1, piece) + regions("out", n, piece),
        "reduce_scatter": regions("in", n, piece) + regions("out", 1, piece),
        "all_to_all": regions("in", n, piece) + regions("out", n, piece),
        "gather": regions("in", 1, piece) + regions("out", n if at_root else 0, piece),
        "scatter": regions("in", n if at_root else 0, piece) + regions("out", 1, piece),
        "barrier": [],
    }.get(name, regions("inout", 1, piece * n))
    return Operation(rank, 0, name, "0", members, "0/c/0", None, tuple(listed), 0, 0, root=root)


def whole(name: str, n: int, root: int = 0) -> list[Operation]:
    return [
        part(name, rank, n, root if name in ("broadcast", "reduce", "gather", "scatter") else None) for rank in range(n)
    ]


@pytest.mark.parametrize("name", NAMES)
@given(n=st.integers(1, 9), root=st.integers(0, 8))
def test_what_is_sent_is_received_and_a_rank_alone_moves_nothing(name: str, n: int, root: int) -> None:
    amounts = [algorithmic_bytes(op) for op in whole(name, n, root % n)]
    assert sum(s for s, _ in amounts) == pytest.approx(sum(r for _, r in amounts))
    assert (max(s for s, _ in amounts) > 0) == (n > 1)


def test_the_formulas_for_four_ranks_and_32_bytes() -> None:
    s, n = 32.0, 4
    assert all(algorithmic_bytes(op) == (1.5 * s, 1.5 * s) for op in whole("all_reduce", n))
    for name in ("all_gather", "reduce_scatter", "all_to_all"):
        assert all(algorithmic_bytes(op) == (0.75 * s, 0.75 * s) for op in whole(name, n)), name
    assert [algorithmic_bytes(op) for op in whole("broadcast", n, 1)] == [
        (0.0, s),
        (s, 0.0),
        (s, s),
        (s, s),
    ]
    assert [algorithmic_bytes(op) for op in whole("reduce", n, 1)] == [(s, 0.0), (0.0, s), (s, s), (s, s)]
    assert [algorithmic_bytes(op) for op in whole("gather", n, 2)] == [(8, 0), (8, 0), (0, 24), (8, 0)]
    assert [algorithmic_bytes(op) for op in whole("scatter", n, 2)] == [(0, 8), (0, 8), (24, 0), (0, 8)]
    assert [algorithmic_bytes(op) for op in whole("barrier", n)] == [(0, 0)] * 4


def test_every_rank_knows_the_whole_buffer_even_with_a_piece_in_hand() -> None:
    for name in NAMES:
        assert {whole_buffer(op) for op in whole(name, 4)} == {32}, name
    assert whole_buffer(Operation(0, 0, "all_reduce", "0", (0, 1), "m", None, (), 40, 0)) == 40


def test_uneven_all_to_all_keeps_its_own_piece() -> None:
    regions = [Region("in", 1, 0, (k,), "float32") for k in (5, 1, 2)]
    regions += [Region("out", 2, 0, (k,), "float32") for k in (5, 7, 0)]
    op = Operation(0, 0, "all_to_all", "0", (0, 1, 2), "m", None, tuple(regions), 32, 0)
    assert algorithmic_bytes(op) == (12.0, 28.0)


def test_a_group_counts_its_own_members_in_its_own_order() -> None:
    ranks = (5, 3, 7)
    amounts = {rank: algorithmic_bytes(part("broadcast", rank, 3, root=3, ranks=ranks)) for rank in ranks}
    assert amounts == {3: (24.0, 0.0), 7: (24.0, 24.0), 5: (0.0, 24.0)}


def test_the_three_kinds_are_never_mixed() -> None:
    message = Operation(0, 0, "isend", "0", (0, 1), "m", None, (Region("in", 1, 0, (2,), "float64"),), 16, 0, peer=1)
    assert sent(message) == Traffic(16, 0.0, 16)
    assert received(message) == Traffic(0, 0.0, 0)
    collective = part("all_reduce", 0, 4)
    assert sent(collective).wire == 0 and sent(collective).algorithmic == 48.0
    assert Traffic(1, 2.0, 3) + Traffic(10, 20.0, 30) == Traffic(11, 22.0, 33)


def test_item_sizes() -> None:
    assert [item_size(d) for d in ("bool", "bfloat16", "float32", "complex128", "float8_e4m3fn")] == [1, 2, 4, 16, 1]
    with pytest.raises(ValueError, match="quaternion"):
        item_size("quaternion")
