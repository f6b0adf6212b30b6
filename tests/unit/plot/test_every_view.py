"""What holds for all views: well-formed, escaped, of one size at every position, in colours that mean one thing."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from kit import plot
from kit.plot.palette import COMMUNICATE, COMPUTE, RANKS
from kit.plot.style import stylesheet
from kit.plot.tensors import tensors_html
from kit.plot.words import words_html
from kit.trace.trace import Trace
from tests.traces import example
from tests.unit.plot import scenes
from tests.unit.plot.markup import VIEWS, find, parse, sizes

TRACES = {
    "ring": example.ring(4),
    "ring of 8": example.ring(8),
    "ring of 2": example.ring(2),
    "held": example.held_ring(),
    "deadlock": example.deadlock(),
    "failure": example.failure(),
    "via root": example.via_root(),
    "overlap": example.overlap(),
    "phases": scenes.phases(),
    "called": scenes.called(),
    "tensors": scenes.many_tensors(),
    "hostile": scenes.hostile(),
}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("name", TRACES)
def test_well_formed_and_of_one_size_at_every_position(view: str, name: str) -> None:
    trace = TRACES[name]
    seen = set()
    for position in range(0, len(trace.positions), max(1, len(trace.positions) // 12)):
        markup = VIEWS[view](trace, position)
        parse(markup)
        seen.add(tuple(sizes(markup)))
    assert len(seen) == 1, f"{view} of {name} changes its size from position to position"


@pytest.mark.parametrize("view", VIEWS)
def test_a_learners_text_is_never_markup(view: str) -> None:
    trace = scenes.hostile()
    for position in range(len(trace.positions)):
        markup = VIEWS[view](trace, position)
        assert "<script" not in markup.lower()
        assert not [e for e in parse(markup).iter() if e.tag == "script"]
    shown = "".join(VIEWS[view](trace, -1) for view in VIEWS)
    assert shown.count("&lt;script&gt;") >= 5  # it is shown, not dropped


@pytest.mark.parametrize("view", VIEWS)
def test_a_trace_without_positions_says_what_to_do(view: str) -> None:
    ring = example.ring(2)
    bare = Trace(ring.meta, ring.ranks, (), ring.sources)
    if view == "time":
        assert find(parse(VIEWS[view](bare, 0)), "ls-compute")
    else:
        with pytest.raises(ValueError, match="no positions"):
            VIEWS[view](bare, 0)


@pytest.mark.parametrize("view", VIEWS)
def test_the_same_trace_gives_the_same_picture(view: str) -> None:
    assert VIEWS[view](example.ring(4), 12) == VIEWS[view](example.ring(4), 12)


def test_rows_for_all_ranks_at_every_position() -> None:
    trace = example.held_ring()
    for position in range(len(trace.positions)):
        assert len(find(parse(words_html(trace, position)), "ls-word")) == 5  # four ranks and the verdict
        assert len(find(parse(tensors_html(trace, position)), "ls-rank-row")) == 4


def test_ranks_wear_rank_colours_and_work_wears_kinds() -> None:
    sheet = stylesheet()
    for color in (*RANKS, COMPUTE, COMMUNICATE):
        assert sheet.count(color) == 1, f"{color} must be defined once and used by its name"
    trace = example.ring(4)
    for view in ("source", "tensors", "messages", "words"):
        assert "ls-communicate" not in VIEWS[view](trace, 15)
    assert not [e for e in parse(VIEWS["time"](trace, 15)).iter() if "ls-r1" in e.get("class", "").split()]


def test_heavy_libraries_are_imported_only_where_they_are_used() -> None:
    folder = Path(plot.__file__ or "").parent
    for file in folder.glob("*.py"):
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            heavy = {name.partition(".")[0] for name in names} & {"bokeh", "mermaid", "ipywidgets", "IPython", "torch"}
            assert not heavy, f"{file.name} imports {heavy} before anybody asks for it"
