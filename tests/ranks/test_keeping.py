"""What `lockstep record` keeps of real runs, and that it can be found again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from kit.cluster.cluster import Cluster
from kit.session import record_on, step_on
from kit.session.errors import RankError
from kit.session.recorded import keeping, shelf
from kit.session.recorded.cell import digest
from kit.session.recorded.shelf import Shelf
from kit.session.recorded.standin import StandIn

CELLS = {"walks": "kit.step(add_up)", "runs": "kit.record(add_up)", "fails": "kit.record(alone)", "prose": "1 + 1"}


def add_up() -> float:
    x = torch.tensor([10.0 ** dist.get_rank()])
    dist.all_reduce(x)
    return x.item()


def alone() -> None:
    if dist.get_rank() == 0:
        dist.all_reduce(torch.ones(1))


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Path]:
    """A notebook whose cells are kept; the folder it is kept in lies beside it."""
    cells = [{"id": n, "cell_type": "code", "metadata": {}, "source": [text]} for n, text in CELLS.items()]
    notebook = tmp_path / "08_small.ipynb"
    notebook.write_text(json.dumps({"cells": cells}))
    keeping.begin(notebook)
    yield notebook
    keeping._keeper = None


def cell(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "running", lambda: (digest(CELLS[name]), "1"))


def kept(lab: Path) -> Shelf:
    folder = lab.parent / "traces"
    keeping.end(folder / lab.stem)
    return shelf.load(lab.stem, folder)


def test_a_session_is_walked_to_its_end_for_readers(three: Cluster, lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cell("walks", monkeypatch)
    session = step_on(three, add_up, (), {})
    session.step()
    seen = session.position
    cell("runs", monkeypatch)
    record_on(three, add_up, (), {})
    assert session.position == seen  # what the lab's next cell would have read
    found = kept(lab)
    (walk,) = found.calls("step", "add_up", "", digest(CELLS["walks"]))
    (trace,) = found.traces(walk)
    assert all(state.phase == "finished" for state in trace.positions[-1])
    assert walk.results == (111.0,) * 3 and "def add_up" in walk.source


def test_what_a_session_did_before_a_reset_is_kept_where_it_differs(
    three: Cluster, lab: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell("walks", monkeypatch)
    session = step_on(three, add_up, (), {})
    session.reset()  # the walk from here on begins as the first did
    session.finish()
    session.reset()
    session.step()
    found = kept(lab)
    motions = [[p.motion for p in trace.positions][:2] for trace in found.traces(found.entries[0])]
    assert motions == [["start", "finish"], ["start", "step"]]


def test_repeated_calls_share_a_trace_and_keep_their_results(
    three: Cluster, lab: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell("runs", monkeypatch)
    for _ in range(3):
        record_on(three, add_up, (), {})
    record_on(three, add_up, (), {}, world=2)
    found = kept(lab)
    assert [(entry.files, entry.arguments) for entry in found.entries] == [
        *[(("runs.trace",), "")] * 3,
        (("runs-2.trace",), "on 2 ranks"),
    ]
    stand_in = StandIn(found, "why.")
    assert stand_in.record_on(2, add_up).results == [11.0] * 2
    assert stand_in.record(add_up).results == [111.0] * 3


def test_a_failure_is_kept(three: Cluster, lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cell("fails", monkeypatch)
    with pytest.raises(RankError) as live:
        record_on(three, alone, (), {})
    with pytest.raises(RankError) as recorded:
        StandIn(kept(lab), "why.").record(alone)
    assert str(recorded.value) == str(live.value)


def test_paths_are_left_behind(three: Cluster, lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cell("runs", monkeypatch)
    record_on(three, add_up, (), {})
    found = kept(lab)
    (trace,) = found.traces(found.entries[0])
    assert str(Path(__file__).parent) not in repr(trace) + (found.folder / shelf.FILE).read_text()
    assert found.cells.keys() == {"walks", "runs", "fails"}  # those that call, whether they ran or not


def test_without_ranks_nothing_is_written(lab: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="08_small has had no ranks to record: `lockstep doctor` says why"):
        keeping.end(tmp_path / "out")
    assert not (tmp_path / "out").exists()
    with pytest.raises(ValueError, match=r"begin\(notebook\) comes first"):
        keeping.end(tmp_path / "out")


def test_a_cell_of_nowhere_is_refused(three: Cluster, lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "running", lambda: (digest("other"), "1"))
    with pytest.raises(ValueError, match="this cell is none of 08_small.ipynb"):
        step_on(three, add_up, (), {})
