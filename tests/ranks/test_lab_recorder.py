"""What `lockstep record` keeps of real runs, and that it can be found again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

import kit
from kit.run import current
from kit.run.errors import RankError
from kit.run.live import LiveRunner
from kit.run.recordings import index, lab_recorder
from kit.run.recordings.cell import digest
from kit.run.recordings.index import RecordingIndex
from kit.run.recordings.replay_runner import ReplayRunner
from kit.run.runner import Runner

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
    lab_recorder.begin(notebook)
    yield notebook
    current.put_around(None)
    lab_recorder._recorder = None


def cell(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lab_recorder, "running", lambda: (digest(CELLS[name]), "1"))


def recorded(cluster: LiveRunner) -> Runner:
    """The recorder at work, around a cluster."""
    assert lab_recorder._recorder is not None
    return lab_recorder._recorder.around(cluster)


def kept(lab: Path) -> RecordingIndex:
    folder = lab.parent / "traces"
    lab_recorder.end(folder / lab.stem)
    return index.load(lab.stem, folder)


def test_a_session_is_walked_to_its_end_for_readers(
    three: LiveRunner, lab: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell("walks", monkeypatch)
    session = recorded(three).step(add_up)
    session.step()
    seen = session.position
    cell("runs", monkeypatch)
    recorded(three).record(add_up)
    assert session.position == seen  # what the lab's next cell would have read
    found = kept(lab)
    (walk,) = found.calls("step", "add_up", "", digest(CELLS["walks"]))
    (trace,) = found.traces(walk)
    assert all(state.phase == "finished" for state in trace.positions[-1])
    assert walk.results == (111.0,) * 3 and "def add_up" in walk.source


def test_what_a_session_did_before_a_reset_is_kept_where_it_differs(
    three: LiveRunner, lab: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell("walks", monkeypatch)
    session = recorded(three).step(add_up)
    session.reset()  # the walk from here on begins as the first did
    session.finish()
    session.reset()
    session.step()
    found = kept(lab)
    motions = [[p.motion for p in trace.positions][:2] for trace in found.traces(found.entries[0])]
    assert motions == [["start", "finish"], ["start", "step"]]


def test_repeated_calls_share_a_trace_and_keep_their_results(
    three: LiveRunner, lab: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell("runs", monkeypatch)
    for _ in range(3):
        recorded(three).record(add_up)
    kit.options(ranks=2, cluster=recorded(three)).record(add_up)
    found = kept(lab)
    assert [(entry.files, entry.arguments) for entry in found.entries] == [
        *[(("runs.trace",), "")] * 3,
        (("runs-2.trace",), "on 2 ranks"),
    ]
    replayed = ReplayRunner(found, "why.")
    assert kit.options(ranks=2, cluster=replayed).record(add_up).results == [11.0] * 2
    assert replayed.record(add_up).results == [111.0] * 3


def test_a_failure_is_kept(three: LiveRunner, lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cell("fails", monkeypatch)
    with pytest.raises(RankError) as live:
        recorded(three).record(alone)
    with pytest.raises(RankError) as replayed:
        ReplayRunner(kept(lab), "why.").record(alone)
    assert str(replayed.value) == str(live.value)


def test_paths_are_left_behind(three: LiveRunner, lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cell("runs", monkeypatch)
    recorded(three).record(add_up)
    found = kept(lab)
    (trace,) = found.traces(found.entries[0])
    assert str(Path(__file__).parent) not in repr(trace) + (found.folder / index.FILE).read_text()
    assert found.cells.keys() == {"walks", "runs", "fails"}  # those that call, whether they ran or not


def test_without_ranks_nothing_is_written(lab: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="08_small has had no ranks to record: `lockstep doctor` says why"):
        lab_recorder.end(tmp_path / "out")
    assert not (tmp_path / "out").exists()
    with pytest.raises(ValueError, match=r"begin\(notebook\) comes first"):
        lab_recorder.end(tmp_path / "out")


def test_a_cell_of_nowhere_is_refused(three: LiveRunner, lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lab_recorder, "running", lambda: (digest("other"), "1"))
    with pytest.raises(ValueError, match="this cell is none of 08_small.ipynb"):
        recorded(three).step(add_up)
