from __future__ import annotations

from dataclasses import replace

from kit.plot.words import words_html, words_text
from kit.trace.facts import Output
from tests.traces import example
from tests.unit.plot import scenes
from tests.unit.plot.markup import find, parse, rank_of, text


def test_a_line_per_rank_with_what_would_free_it() -> None:
    root = parse(words_html(example.held_ring(), -1))
    lines = find(root, "ls-word")
    assert [rank_of(find(line, "ls-chip")[0]) for line in lines[:4]] == [0, 1, 2, 3]
    assert text(lines[0]) == "0waits in recv from rank 3line 8 · rank 3 is held before line 8", (
        "no time that a person spent"
    )
    assert text(lines[3]).endswith("let it go to free ranks 0 and 2")


def test_words_are_those_of_the_trace() -> None:
    trace = example.failure()
    for moment in range(len(trace.positions)):
        shown = text(parse(words_html(trace, moment)))
        for state in trace.positions[moment].states:
            assert state.clause in shown
            assert (trace.positions[moment].advice(state.rank) or "") in shown


def test_trouble_stands_out_and_the_rest_is_calm() -> None:
    root = parse(words_html(scenes.phases(), -1))
    loud = [text(e) for e in find(root, "ls-bad")]
    assert len(loud) == 4  # waiting, stopped, failed, dead
    assert not any("paused" in t or "finished" in t for t in loud)


def test_the_verdict_has_its_own_line() -> None:
    trace = example.deadlock()
    verdicts = [text(find(parse(words_html(trace, p)), "ls-verdict")[0]) for p in range(len(trace.positions))]
    assert verdicts[:-1] == [""] * (len(verdicts) - 1)
    assert verdicts[-1].startswith("Deadlock: rank 0 waits in send to rank 1")


def test_plain_text_says_the_same_as_the_picture() -> None:
    trace = example.held_ring()
    lines = words_text(trace, -1).splitlines()
    titles = [line.get("title") for line in find(parse(words_html(trace, -1)), "ls-word")]
    assert lines == titles[:4]
    assert words_text(example.deadlock(), -1).splitlines()[-1].startswith("Deadlock")


def test_more_than_eight_ranks_stand_in_two_columns() -> None:
    many = scenes.standing(12, [[] for _ in range(12)])
    assert find(parse(words_html(many, 0)), "ls-many")
    assert not find(parse(words_html(example.ring(8), 0)), "ls-many")


def test_what_a_rank_printed_last_stays_in_view() -> None:
    trace = example.held_ring()
    stops = list(trace.ranks[1].stops)
    stops[0] = replace(
        stops[0], output=(Output("stdout", "<first>\nlast"), Output("stdout", "\n\n"), Output("stderr", "e"))
    )
    trace = replace(trace, ranks=(trace.ranks[0], replace(trace.ranks[1], stops=tuple(stops)), *trace.ranks[2:]))
    said = [line.endswith("printed: last") for line in words_text(trace, -1).splitlines()[:4]]
    assert said == [False, True, False, False]
    assert "printed: last" in text(parse(words_html(trace, -1)))
