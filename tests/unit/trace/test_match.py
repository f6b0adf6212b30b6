"""Disagreement: one sentence with ranks, lines and the difference, and silence where all is legal."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kit.trace.facts import Operation, Place, Position, RankState, Region
from kit.trace.match import disagreement
from tests.traces import example

Shape = tuple[int, ...]


def region(role: Any, shape: Shape, dtype: str = "float32") -> Region:
    return Region(role, 1, 0, shape, dtype)


def call(rank: int, name: str, regions: list[Region], line: int = 6, n: int = 3, **more: Any) -> Operation:
    ranks = more.pop("ranks", tuple(range(n)))
    return Operation(rank, 0, name, "0", ranks, "0/c/0", Place("cell", line, "f"), tuple(regions), 0, 0, **more)


def one(rank: int, name: str, shape: Shape, dtype: str = "float32", line: int = 6, **more: Any) -> Operation:
    return call(rank, name, [region("inout", shape, dtype)], line, **more)


def send(rank: int, peer: int, shape: Shape, dtype: str = "float32", line: int = 4) -> Operation:
    return call(rank, "send", [region("in", shape, dtype)], line, peer=peer)


def recv(rank: int, peer: int, shape: Shape, dtype: str = "float32", line: int = 7) -> Operation:
    return call(rank, "recv", [region("out", shape, dtype)], line, peer=peer)


def test_agreement_is_silent() -> None:
    assert disagreement([]) is None
    assert disagreement([one(0, "all_reduce", (4,), reduce="SUM")]) is None
    assert disagreement([one(r, "all_reduce", (4,), reduce="SUM", line=6 + r) for r in range(3)]) is None
    assert disagreement([call(r, "barrier", []) for r in range(3)]) is None


def test_another_operation() -> None:
    entries = [one(0, "all_reduce", (4,)), one(1, "broadcast", (4,), line=9, root=0), one(2, "all_reduce", (4,))]
    assert disagreement(entries) == (
        "ranks 0, 2 call all_reduce of 4 x float32 (line 6), rank 1 calls broadcast of 4 x float32 (line 9): "
        "every rank of a group must call the same operation in the same order."
    )


def test_a_barrier_against_a_collective() -> None:
    text = disagreement([call(0, "barrier", []), one(1, "all_reduce", (4,))])
    assert text is not None and text.startswith("rank 0 calls barrier (line 6), rank 1 calls all_reduce of 4 x float32")


def test_another_shape_and_the_first_two_suffice() -> None:
    assert disagreement([one(0, "all_reduce", (4,)), one(2, "all_reduce", (2, 3), line=7)]) == (
        "rank 0 calls all_reduce of 4 x float32 (line 6), rank 2 calls all_reduce of 2 x 3 x float32 (line 7): "
        "the shapes must be equal on every rank."
    )


def test_another_dtype() -> None:
    text = disagreement([one(0, "all_reduce", (4,)), one(1, "all_reduce", (4,), "float64")])
    assert text == (
        "rank 0 calls all_reduce of 4 x float32 (line 6), rank 1 calls all_reduce of 4 x float64 (line 6): "
        "the dtypes must be equal on every rank."
    )


@pytest.mark.parametrize(
    ("name", "word", "to"),
    [("broadcast", "source", "from"), ("reduce", "destination", "to")],
)
def test_another_root(name: str, word: str, to: str) -> None:
    text = disagreement([one(0, name, (4,), root=0), one(1, name, (4,), root=1), one(2, name, (4,), root=0)])
    assert text == (
        f"ranks 0, 2 call {name} {to} rank 0 (line 6), rank 1 calls {name} {to} rank 1 (line 6): "
        f"every rank must name the same {word}."
    )


def test_another_reduction() -> None:
    text = disagreement([one(0, "all_reduce", (4,), reduce="SUM"), one(1, "all_reduce", (4,), reduce="MAX")])
    assert text is not None and "all_reduce with SUM (line 6), rank 1 calls all_reduce with MAX" in text


def test_a_broadcast_may_read_on_one_rank_and_write_on_the_others() -> None:
    entries = [call(0, "broadcast", [region("in", (4,))], root=0), call(1, "broadcast", [region("out", (4,))], root=0)]
    assert disagreement(entries) is None
    entries[1] = call(1, "broadcast", [region("out", (5,))], root=0)
    text = disagreement(entries)
    assert text is not None and "5 x float32" in text


def gathered(rank: int, shape: Shape, lists: list[Shape] | None, name: str = "gather", root: int = 0) -> Operation:
    outs = [region("out", s) for s in lists or []]
    return call(rank, name, [region("in", shape), *outs], root=root if name == "gather" else None)


def test_gather_lists_live_on_the_root_only() -> None:
    entries = [gathered(0, (2,), [(2,)] * 3), gathered(1, (2,), None), gathered(2, (2,), None)]
    assert disagreement(entries) is None
    short = disagreement([gathered(0, (2,), [(2,)] * 2), *entries[1:]])
    assert short == "rank 0 gathers into a list of 2 tensors in gather (line 6): it needs one for each of 3 ranks."
    odd = disagreement([gathered(0, (2,), [(2,), (3,), (2,)]), *entries[1:]])
    assert odd is not None and "gathers into 3 x float32 beside 2 x float32" in odd
    uneven = disagreement([entries[0], gathered(1, (5,), None)])
    assert uneven is not None and uneven.endswith("the shapes must be equal on every rank.")


def test_scatter_lists_live_on_the_root_only() -> None:
    def scatter(rank: int, shape: Shape, lists: list[Shape]) -> Operation:
        return call(rank, "scatter", [*(region("in", s) for s in lists), region("out", shape)], root=0)

    assert disagreement([scatter(0, (2,), [(2,)] * 3), scatter(1, (2,), []), scatter(2, (2,), [])]) is None
    text = disagreement([scatter(0, (2,), [(2,)] * 3), scatter(1, (4,), [])])
    assert text is not None and "rank 1 calls scatter of 4 x float32" in text
    assert disagreement([scatter(0, (2,), [(2,)] * 4), scatter(1, (2,), [])]) is not None


def test_all_gather_pieces_may_be_uneven_where_both_ends_agree() -> None:
    sizes: list[Shape] = [(1,), (2,), (3,)]
    legal = [gathered(r, sizes[r], sizes, "all_gather") for r in range(3)]
    assert disagreement(legal) is None
    text = disagreement([legal[0], gathered(1, (4,), [(1,), (4,), (3,)], "all_gather"), legal[2]])
    assert text == (
        "rank 1 gives rank 0 4 elements in all_gather (line 6), rank 0 makes room for 2 (line 6): both must be equal."
    )


def test_what_a_dead_rank_gave_is_compared_with_what_there_was_room_for() -> None:
    """Its black box has one tensor; of the others all are known."""
    dead = call(0, "all_gather", [region("in", (1,))])
    assert disagreement([dead, *(gathered(r, (1,), [(1,)] * 3, "all_gather") for r in (1, 2))]) is None
    assert disagreement([dead, *(gathered(r, (4,), [(4,)] * 3, "all_gather") for r in (1, 2))]) == (
        "rank 0 gives rank 1 1 element in all_gather (line 6), rank 1 makes room for 4 (line 6): both must be equal."
    )
    unknown = call(0, "all_gather", [])
    assert disagreement([unknown, *(gathered(r, (4,), [(4,)] * 3, "all_gather") for r in (1, 2))]) is None


def test_equal_signatures_can_still_misfit() -> None:
    lists: list[Shape] = [(2,), (3,), (2,)]
    assert disagreement([gathered(r, (2,), lists, "all_gather") for r in range(3)]) is not None
    assert disagreement([gathered(r, (2,), [(2,)] * 3, "all_gather") for r in range(3)]) is None


def test_a_whole_buffer_must_hold_every_part() -> None:
    fits = [gathered(r, (2,), [(6,)], "all_gather_single") for r in range(3)]
    assert disagreement(fits) is None
    text = disagreement([gathered(r, (2,), [(5,)], "all_gather") for r in range(3)])
    assert text == (
        "rank 0 calls all_gather between 2 x float32 and 5 x float32 (line 6): "
        "the whole must hold the part 3 times, once per rank."
    )


def reduced(rank: int, lists: list[Shape], shape: Shape) -> Operation:
    return call(rank, "reduce_scatter", [*(region("in", s) for s in lists), region("out", shape)], reduce="SUM")


def test_reduce_scatter_by_lists_and_whole() -> None:
    assert disagreement([reduced(r, [(2,)] * 3, (2,)) for r in range(3)]) is None
    assert disagreement([reduced(r, [(6,)], (2,)) for r in range(3)]) is None
    assert disagreement([reduced(r, [(7,)], (2,)) for r in range(3)]) is not None
    uneven = [(1,), (2,), (3,)]
    assert disagreement([reduced(r, list(uneven), uneven[r]) for r in range(3)]) is None
    assert disagreement([reduced(r, list(uneven), (2,)) for r in range(3)]) is not None


def test_coalesced_tensors_of_several_sizes() -> None:
    many = [region("inout", (4,)), region("inout", (2, 2))]
    assert disagreement([call(r, "all_reduce", many) for r in range(3)]) is None
    assert disagreement([call(0, "all_reduce", many), call(1, "all_reduce", many[:1])]) is not None
    parts = [region("in", (2,)), region("in", (5,)), region("out", (6,)), region("out", (15,))]
    assert disagreement([call(r, "all_gather", parts) for r in range(3)]) is None


@pytest.mark.parametrize("name", ["all_gather", "reduce_scatter", "all_to_all"])
def test_a_rank_of_which_only_the_first_tensor_is_known_is_not_judged(name: str) -> None:
    """What a black box keeps of an operation that its rank died in."""
    whole = [
        call(0, name, [region("in", (2,)), region("out", (6,))]),
        call(1, name, [region("in", (2,)), region("out", (6,))]),
    ]
    if name != "all_gather":
        whole = [
            call(op.rank, name, [region("in", (6,)), region("out", (2,) if name == "reduce_scatter" else (6,))])
            for op in whole
        ]
    died = call(2, name, whole[0].regions[:1])
    assert disagreement([*whole, died]) is None and disagreement([died]) is None


def exchanged(rank: int, gives: list[int], takes: list[int], name: str = "all_to_all", n: int = 3) -> Operation:
    regions = [*(region("in", (k,)) for k in gives), *(region("out", (k,)) for k in takes)]
    return call(rank, name, regions, n=n)


def test_all_to_all_may_be_uneven() -> None:
    table = [[1, 2, 3], [4, 5, 6], [7, 8, 9]]
    legal = [exchanged(r, table[r], [row[r] for row in table]) for r in range(3)]
    assert disagreement(legal) is None
    text = disagreement([legal[0], exchanged(1, [9, 5, 6], [2, 5, 8]), legal[2]])
    assert text == (
        "rank 1 gives rank 0 9 elements in all_to_all (line 6), rank 0 makes room for 4 (line 6): both must be equal."
    )
    itself = disagreement([exchanged(0, [1, 2, 3], [8, 4, 7])])
    assert itself is not None and "rank 0 gives itself 1 element in" in itself


def test_all_to_all_on_whole_tensors_is_judged_by_its_totals() -> None:
    uneven = [exchanged(0, [5], [3], "all_to_all_single", 2), exchanged(1, [2], [4], "all_to_all_single", 2)]
    assert disagreement(uneven) is None
    assert disagreement(uneven[:1]) is None
    text = disagreement([uneven[0], exchanged(1, [2], [5], n=2)])
    assert text is not None and "give 7 elements in all_to_all (line 6) and make room for 8" in text


def test_messages_compare_elements_and_dtype_not_dimensions() -> None:
    assert disagreement([send(0, 1, (2, 3)), recv(1, 0, (6,))]) is None
    assert disagreement([recv(1, 0, (6,)), send(0, 1, (6,))]) is None
    assert disagreement([send(0, 1, (6,)), recv(1, 0, (4,))]) == (
        "rank 0 sends 6 x float32 to rank 1 (line 4), rank 1 receives 4 x float32 from rank 0 (line 7): "
        "a message and its buffer must have the same size."
    )
    text = disagreement([send(0, 1, (6,), "int64"), recv(1, 0, (6,))])
    assert text is not None and text.endswith("must have the same dtype.")
    assert disagreement([send(0, 1, (6,))]) is None


def test_files_are_named_where_lines_could_be_confused() -> None:
    there = replace(one(1, "all_reduce", (5,)), place=Place("kit/topics/collectives/reference/naive.py", 6, "g"))
    text = disagreement([one(0, "all_reduce", (4,)), there])
    assert text is not None and "(line 6 of cell)" in text and "(line 6 of naive.py)" in text


def test_a_line_that_is_not_known_is_left_out() -> None:
    entries = [replace(one(r, "all_reduce", (4 + r,)), place=None) for r in range(2)]
    text = disagreement(entries)
    assert text is not None and text.startswith("rank 0 calls all_reduce of 4 x float32, rank 1 calls")


def test_a_run_without_fault_has_no_mismatches() -> None:
    assert example.ring().mismatches() == ()
    assert example.via_root().mismatches() == ()


def test_missing_participants_are_named_when_they_can_no_longer_come() -> None:
    assert example.failure().mismatches() == ("ranks 0, 2 call all_reduce (line 8); rank 1 failed without it.",)


def test_a_stepped_run_that_still_waits_is_not_called_wrong() -> None:
    assert example.held_ring().mismatches() == ()
    assert example.deadlock().mismatches() == ()


def test_a_recorded_run_names_what_the_others_did_instead() -> None:
    stepped = example.deadlock()
    recorded = replace(stepped, meta=replace(stepped.meta, mode="record"))
    (text,) = recorded.mismatches()
    assert text.startswith("rank 0 calls send to rank 1 (line 4); rank 1 did not: it waits in send to rank 0 · line 4")


def test_a_rank_that_still_runs_has_not_come_yet() -> None:
    stepped = example.deadlock()
    newest = stepped.positions[-1]
    running = tuple(replace(state, phase="running", since=None) for state in newest.states)
    positions = (*stepped.positions[:-1], replace(newest, states=running))
    (text,) = replace(stepped, meta=replace(stepped.meta, mode="record"), positions=positions).mismatches()
    assert text.startswith("rank 0 calls send to rank 1 (line 4); rank 1 had not come to it.")


def test_what_follows_a_mismatch_in_its_group_is_not_told() -> None:
    trace = example.via_root()
    ranks = list(trace.ranks)
    first = ranks[2].operations
    wrong = replace(first[1], regions=(region("inout", (7,)),))
    late = replace(first[1], index=2, match="0/c/1")
    ranks[2] = replace(ranks[2], operations=(first[0], wrong, late))
    found = replace(trace, ranks=tuple(ranks)).mismatches()
    assert len(found) == 1 and "rank 2 calls broadcast of 7 x float32" in found[0]


def test_without_positions_a_rank_that_never_came_is_said_so() -> None:
    trace = replace(example.failure(), positions=())
    recorded = replace(trace, meta=replace(trace.meta, mode="record"))
    assert recorded.mismatches() == ("ranks 0, 2 call all_reduce (line 8); rank 1 never came to it.",)


def test_two_receives_from_any_source_do_not_meet_each_other() -> None:
    trace = example.deadlock()
    lonely = [replace(recv(0, -1, (2,)), match="0/p/?>0/0", index=k, tag=0, ranks=(0, 1)) for k in (0, 1)]
    states = (RankState(0, "waiting", None, "recv from any rank", (1,)), RankState(1, "finished"))
    ranks = (replace(trace.ranks[0], operations=tuple(lonely)), replace(trace.ranks[1], operations=()))
    found = replace(trace, ranks=ranks, positions=(Position("finish", states),))
    assert len(found.unmatched()) == 2
    assert found.mismatches() == ("rank 0 calls recv from any rank (line 7); rank 1 finished without it.",)
