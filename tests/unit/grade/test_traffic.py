"""Rules about messages, bytes, collectives and rounds, on runs made by hand."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from kit.grade import cost, traffic
from kit.grade.verdict import Sent, runs_page, runs_text, sent_by_rank
from kit.plot.palette import text_on
from kit.trace.trace import Trace
from tests.traces import example
from tests.unit.grade.made import operation, run


def ring(world: int, nbytes: int, steps: int) -> list[dict]:  # type: ignore[type-arg]
    """Everyone sends right and receives from the left, `steps` times."""
    made = []
    for step in range(steps):
        made += [operation(r, "send", nbytes, (r + 1) % world, line=9, at=10 * step) for r in range(world)]
        made += [operation(r, "recv", nbytes, (r - 1) % world, line=10, at=10 * step + 1) for r in range(world)]
    return made


PER_RANK = traffic.bytes_per_rank(lambda case, rank: 48, lambda case: 12, "the whole tensor goes round", "too often")


def test_too_many_bytes_name_rank_line_and_difference() -> None:
    told = PER_RANK(run(3, [*ring(3, 12, 4), operation(2, "send", 24, 0, line=11), operation(2, "send", 24, 0)]))
    assert told == "rank 2 sent 96 bytes where 48 are enough, from line 11: the whole tensor goes round"


def test_small_messages_sent_too_often_get_the_other_reason() -> None:
    assert str(PER_RANK(run(3, ring(3, 12, 5)))).endswith("from line 9: too often")
    assert PER_RANK(run(3, ring(3, 12, 4))) is None


def test_kilobytes_are_told_as_kilobytes() -> None:
    rule = traffic.bytes_per_rank(lambda case, rank: 6000, lambda case: 1000, "whole", "often")
    assert "sent 12.0 kB where 6.0 kB are enough" in str(rule(run(3, ring(3, 6000, 2))))


def test_a_line_of_another_file_says_which() -> None:
    told = PER_RANK(run(3, [operation(1, "send", 96, 2, line=40, file="other.py")]))
    assert "from line 40 of kit/topics/my/other.py" in str(told)


def test_built_in_operations_are_named_where_they_are_not_allowed() -> None:
    rule = traffic.only(traffic.POINT_TO_POINT, "send and receive only")
    told = rule(run(2, [*ring(2, 4, 1), operation(1, "all_reduce", 8, line=3)]))
    assert told is not None and told.startswith("rank 1 called the built-in all_reduce, from line 3")
    assert rule(run(2, ring(2, 4, 1))) is None


@pytest.mark.parametrize(
    ("rule", "good", "bad", "words"),
    [
        (
            traffic.messages_per_rank(lambda case, rank: 2, "why"),
            ring(3, 4, 2),
            ring(3, 4, 3),
            "3 messages where 2 are enough",
        ),
        (traffic.messages_in_all(lambda case: 3, "why"), ring(3, 4, 1), ring(3, 4, 2), "6 messages where 3 are enough"),
        (traffic.received_once, ring(3, 4, 1), ring(3, 4, 2), "rank 0 received 2 times"),
        (traffic.to_the_right, ring(3, 4, 1), [operation(1, "send", 4, 0)], "rank 1 sent to rank 0"),
        (traffic.silent, [], [operation(2, "barrier")], "rank 2 called barrier"),
        (
            traffic.calls(("reduce_scatter", "all_gather"), "why"),
            [operation(r, name, 4) for r in range(3) for name in ("reduce_scatter", "all_gather")],
            [operation(r, "all_reduce", 4) for r in range(3)],
            "rank 0 called all_reduce, from line 9: reduce_scatter and all_gather are asked for",
        ),
        (
            traffic.calls(("all_gather",), "why"),
            [operation(r, "all_gather", 4) for r in range(3)],
            [operation(r, "all_gather", 4) for r in range(2)],
            "rank 2 called no collective",
        ),
        (
            traffic.collectives_at_most(1, "why"),
            [operation(1, "all_reduce")],
            [operation(1, "barrier"), operation(1, "barrier")],
            "rank 1 called 2 collectives (2 x barrier) where 1 is enough",
        ),
        (
            traffic.payload_at_most(lambda case: 8, "why"),
            [operation(0, "all_gather", 8)],
            [operation(0, "all_gather", 12)],
            "rank 0 gave all_gather 12 bytes where 8 are enough",
        ),
    ],
)
def test_a_rule_is_quiet_when_kept_and_speaks_when_broken(rule, good, bad, words) -> None:  # type: ignore[no-untyped-def]
    assert rule(run(3, good)) is None
    assert words in str(rule(run(3, bad)))


ROUNDS = cost.rounds_at_most(lambda case: 2, "the number doubles")


def tree() -> list[dict]:  # type: ignore[type-arg]
    """0 tells 1; then 0 tells 2 and 1 tells 3."""
    first = [operation(0, "send", 4, 1), operation(1, "recv", 4, 0)]
    second = [
        operation(0, "send", 4, 2),
        operation(1, "send", 4, 3),
        operation(2, "recv", 4, 0),
        operation(3, "recv", 4, 1),
    ]
    return first + second


def test_a_tree_over_four_ranks_has_two_rounds() -> None:
    assert ROUNDS(run(4, tree())) is None


def test_one_rank_that_tells_all_needs_a_round_for_each() -> None:
    star = [part for other in (1, 2, 3) for part in (operation(0, "send", 4, other), operation(other, "recv", 4, 0))]
    assert str(ROUNDS(run(4, star))).startswith(
        "3 rounds where 2 are enough; the last message leaves rank 0, from line 9"
    )


def test_handing_on_needs_a_round_for_each_hand() -> None:
    chain = [part for r in range(3) for part in (operation(r, "send", 4, r + 1), operation(r + 1, "recv", 4, r))]
    assert "3 rounds" in str(ROUNDS(run(4, chain)))


def test_a_receive_still_under_way_holds_no_send_back() -> None:
    both = [operation(0, "recv", 4, 1, at=0), operation(0, "send", 4, 1, at=0), operation(1, "send", 4, 0, at=0)]
    assert max(cost.depth(run(2, both)).values()) == 1


def test_the_table_counts_messages_bytes_and_collectives() -> None:
    made = run(2, [*ring(2, 600, 2), operation(1, "all_reduce", 8)])
    assert sent_by_rank(made.trace) == [Sent(0, 2, 1200, ""), Sent(1, 2, 1200, "all_reduce")]
    assert runs_text("my run", made.trace).splitlines()[2] == "  rank 1: 2 sent, 1.2 kB, all_reduce"


def test_calls_of_one_name_in_a_row_are_counted() -> None:
    names = ("all_reduce", "all_reduce", "broadcast", "all_reduce", "barrier", "barrier")
    made = run(1, [operation(0, name, 0 if name == "barrier" else 60) for name in names])
    assert (
        sent_by_rank(made.trace)[0].collectives
        == "2 × all_reduce of 120 bytes in all, broadcast, all_reduce, 2 × barrier"
    )


def test_the_numbers_of_ranks_can_be_read_on_their_colours() -> None:
    markup = runs_page([("target", run(8).trace)])
    chips = re.findall(r"color:(#\w+);background:(#\w+)", markup)
    assert len(chips) == 8 and all(ink == text_on(fill) for ink, fill in chips)


def test_a_line_in_a_helper_names_it() -> None:
    made = run(2, [operation(0, "barrier", line=3)])
    helped = replace(made, trace=replace(made.trace, meta=replace(made.trace.meta, function="g")))
    assert "from line 3 in f:" in str(traffic.silent(helped))
    assert "from line 3:" in str(traffic.silent(made))


def test_a_picture_beside_a_table_says_that_it_is_the_last_exchange() -> None:
    caption = "its last exchange; below, all that was sent"
    assert caption in runs_page([("target", example.ring(4))])
    assert caption not in runs_page([("target", run(8).trace)]), "no picture, no caption"


def test_what_was_begun_is_waited_for() -> None:
    done = run(2, [*ring(2, 4, 1), operation(1, "all_reduce", 8, line=3)])
    assert traffic.never_waited(done) is None

    def left_open(index: int) -> str | None:
        part = done.trace.ranks[1]
        open_ends = tuple(replace(one, ended=None, waits=()) if one.index == index else one for one in part.operations)
        ranks = (done.trace.ranks[0], replace(part, operations=open_ends))
        return traffic.never_waited(replace(done, trace=Trace(done.trace.meta, ranks)))

    said = {index: str(left_open(index)) for index in range(3)}
    assert said[0].startswith("rank 1 never waited for the send it began, from line 9: `wait()` says when")
    assert said[1].startswith("rank 1 never waited for the recv it began, from line 10: until")
    assert said[2].endswith(
        "from line 3: until `wait()` the tensor holds anything, and on a busy machine not yet the result"
    )


def test_an_operation_among_others_than_the_group_is_named() -> None:
    alone = run(3, [operation(r, "all_reduce", 8, line=4) for r in range(3)])
    assert traffic.beyond_the_group(alone, (0, 1, 2)) is None
    assert traffic.beyond_the_group(alone, (0, 1)) == (
        "rank 0 called all_reduce, from line 4, among ranks 0, 1 and 2: pass group=group on to every call of"
        " torch.distributed"
    )
