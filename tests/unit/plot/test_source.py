from __future__ import annotations

from dataclasses import replace

from kit.plot.source import LINE, _first_visible, extent, folded, function_html, source_height, source_html
from kit.trace.facts import Place, Source
from tests.traces import example
from tests.unit.plot import scenes
from tests.unit.plot.markup import classes, find, parse, rank_of, tag, text


def lines(markup: str) -> dict[str, list[int]]:
    """Line number ('' for the end) -> ranks that stand there."""
    found = {}
    for line in find(parse(markup), "ls-line"):
        chips = [rank_of(chip) for chip in find(line, "ls-chip")]
        if chips:
            found[text(find(line, "ls-no")[0])] = chips
    return found


def test_a_marker_for_every_rank_on_its_line() -> None:
    assert lines(source_html(example.held_ring(), -1)) == {"5": [1], "8": [0, 2, 3]}


def test_finished_ranks_stand_after_the_last_line() -> None:
    assert lines(source_html(example.ring(4), -1)) == {"": [0, 1, 2, 3]}


def test_only_some_ranks() -> None:
    assert lines(source_html(example.held_ring(), -1, ranks=[1, 3])) == {"5": [1], "8": [3]}


def test_lines_with_ranks_are_highlighted_and_no_others() -> None:
    root = parse(source_html(example.held_ring(), -1))
    assert [text(find(line, "ls-no")[0]) for line in find(root, "ls-here")] == ["5", "8"]


def test_shapes_tell_the_phase() -> None:
    root = parse(source_html(scenes.phases(), -1))
    shapes = {rank_of(chip): classes(chip) - {"ls-chip", f"ls-r{rank_of(chip)}"} for chip in find(root, "ls-chip")}
    assert shapes == {
        0: {"ls-held"}, 1: {"ls-runs"}, 2: {"ls-waits"}, 3: {"ls-stopped"}, 4: {"ls-failed"}, 5: {"ls-dead"},
        6: {"ls-finished"}, 7: set(),
    }  # fmt: skip
    assert "rank 0 paused, held" in source_html(scenes.phases(), -1)


def test_holding_a_rank_squares_its_marker_at_once() -> None:
    root = parse(source_html(example.ring(4), 3, held=(2,)))
    assert [rank_of(chip) for chip in find(root, "ls-held")] == [2]


def test_long_code_opens_where_the_ranks_are_and_stays_while_they_take_small_steps() -> None:
    trace = scenes.phases()
    tops = []
    for position in (0, 1):
        (top,) = find(parse(source_html(trace, position)), "ls-top")
        tops.append(int(text(find(top, "ls-no")[0])))
    assert tops[0] == tops[1]
    assert tops[0] <= 40 and tops[0] + source_height(trace) // LINE > 47
    assert source_height(trace) == 20 * LINE


def test_the_function_most_ranks_stand_in_and_words_for_the_others() -> None:
    markup = source_html(scenes.called(), -1)
    root = parse(markup)
    assert "kit/helper.py" in text(find(root, "ls-head")[0])
    assert lines(markup) == {"2": [0, 1]}
    assert text(find(root, "ls-note")[0]) == "rank 2 in outer, line 4 of your cell"


def test_a_caller_in_view_shows_ranks_that_are_inside_a_call() -> None:
    trace = scenes.called()
    states = list(trace.positions[-1].states)
    states[1] = replace(states[1], place=Place("<outer>", 4, "outer"))
    stop = trace.ranks[1].stops[0]
    ranks = list(trace.ranks)
    ranks[1] = replace(ranks[1], stops=(replace(stop, frames=stop.frames[:1]),))
    trace = replace(trace, ranks=tuple(ranks), positions=(replace(trace.positions[-1], states=tuple(states)),))
    markup = source_html(trace, -1)
    assert lines(markup) == {"4": [0, 1, 2]}
    assert text(find(parse(markup), "ls-note")[0]) == "rank 0 in helper, line 2 of kit/helper.py"


def test_code_is_dedented_and_keeps_its_line_numbers() -> None:
    trace = scenes.called()
    source = trace.sources[0]
    assert extent(source, "outer", 4) == (3, 5)
    assert text(parse(f"<p>{function_html(source, 3, 5)[0]}</p>")) == "def outer(x):"
    assert text(parse(f"<p>{function_html(source, 3, 5)[1]}</p>")) == "    helper(x)"


def test_code_only_ipython_reads_does_not_hide_the_function() -> None:
    source = Source("<cell>", "your cell", ("%%time", "!ls", "def f(x):", "    return x", "", "f(1)"))
    assert extent(source, "f", 4) == (3, 4)


def test_text_that_is_no_python_is_still_shown() -> None:
    source = Source("<cell>", "your cell", ("def f(:", "  '''open", "  <b>"))
    assert extent(source, "f", 2) == (1, 3)
    assert [text(parse(f"<p>{line}</p>")) for line in function_html(source, 1, 3)] == ["def f(:", "  '''open", "  <b>"]


def test_strings_over_several_lines_are_coloured_in_each() -> None:
    source = Source("f", "f", ("def f():", '    """One', "    two.", '    """', "    return 1  # done"))
    html = function_html(source, 1, 5)
    assert all("ls-string" in line for line in html[1:4])
    assert '<span class="ls-comment"># done</span>' in html[4] and '<span class="ls-keyword">return</span>' in html[4]


def test_a_missing_source_is_said() -> None:
    trace = replace(example.ring(2), sources=())
    root = parse(source_html(trace, 3))
    assert "not at hand" in text(root)


def test_words_name_where_every_rank_is() -> None:
    spoken = parse(source_html(example.held_ring(), -1)).get("aria-label")
    assert spoken == "ring_all_reduce: ranks 0, 2 and 3 at line 8; rank 1 at line 5"


def test_many_ranks_on_one_line_are_counted() -> None:
    tensors = [[] for _ in range(20)]
    root = parse(source_html(scenes.standing(20, tensors), -1))
    assert len(find(root, "ls-chip")) == 6
    assert text(find(root, "ls-more")[0]) == "+14"
    assert all(tag(e) != "script" for e in root.iter())


def test_long_code_opens_on_its_end_line_when_ranks_stand_there() -> None:
    assert _first_visible([31], 1, 31, 10) == 22  # the end line is the last row of the last window
    assert _first_visible([10], 1, 31, 10) != 1  # a rank in the last row would not see its next line


DOCUMENTED = Source(
    "f.py",
    "f.py",
    ("def ring(x):", '    """Sum x.', "", "    Source: a paper.", '    """', "    y = x", "    return y"),
)


def test_a_docstring_is_folded_to_its_first_line() -> None:
    assert folded(DOCUMENTED, 1, 7) == {3, 4, 5}
    alone = Source("g.py", "g.py", ("def stub():", '    """All there', '    is."""'))
    assert folded(alone, 1, 3) == frozenset(), "a function that is only its docstring keeps it: ranks stand there"


def test_markers_stay_on_their_lines_below_a_folded_docstring() -> None:
    trace = example.held_ring()
    (source,) = trace.sources
    text = list(source.lines)
    documented = replace(source, lines=(text[0], '    """One', "", '    two."""', *text[1:]))
    assert len(find(parse(source_html(replace(trace, sources=(documented,)), -1)), "ls-line")) == len(text) + 2
    assert list(lines(source_html(replace(trace, sources=(documented,)), -1))) == ["5", "8"]
