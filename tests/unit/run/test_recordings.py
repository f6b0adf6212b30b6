"""The recordings that come with Lockstep: each can be read, each lab that steps has all of its own, none is stale."""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path
from typing import Any

import pytest

from kit.grade.lab_recordings import BUDGET
from kit.resources import assets, labs, shipped
from kit.run.recordings.index import FILE, load
from kit.trace.trace import Trace
from tests import staleness

LABS = [notebook.stem for notebook in shipped().notebooks()]


@pytest.mark.parametrize("path", sorted((assets() / "traces").rglob("*.trace")), ids=lambda path: path.stem)
def test_every_trace_can_be_read(path: Path) -> None:
    trace = Trace.load(path)
    assert trace.positions and trace.meta.started and trace.meta.versions
    assert not any(source.file.startswith("/") for source in trace.sources)


def test_every_lab_has_its_recordings_and_none_is_stale() -> None:
    assert staleness.every(labs()) == []


def test_they_are_small() -> None:
    for folder in (assets() / "traces").iterdir():
        assert sum(path.stat().st_size for path in folder.iterdir()) <= BUDGET, folder.name


def test_nothing_of_the_machine_they_came_from_is_in_them() -> None:
    for path in (assets() / "traces").rglob("*"):
        if path.is_file():
            text = unpacked(path) if path.suffix == ".trace" else path.read_bytes()
            told = [
                word for word in (b"ipykernel_", b"site-packages", b"/tmp/", b"/home/", b"/python3") if word in text
            ]
            assert not told, path.name


def unpacked(trace: Path) -> bytes:
    with zipfile.ZipFile(trace) as archive:
        return b"".join(map(archive.read, archive.namelist()))


# a lab and its recordings that can be tampered with


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    shutil.copytree(assets() / "traces" / "00_ranks", tmp_path / "traces" / "00_ranks")
    return Path(shutil.copy(labs() / "00_ranks.ipynb", tmp_path))


def changed(notebook: Path, cell: str, change: Any) -> None:
    page = json.loads(notebook.read_text(encoding="utf-8"))
    (at,) = [i for i, found in enumerate(page["cells"]) if found["id"] == cell]
    if change is None:
        del page["cells"][at]
    else:
        page["cells"][at]["source"] = change("".join(page["cells"][at]["source"]))
    notebook.write_text(json.dumps(page), encoding="utf-8")


def complaint(notebook: Path) -> str:
    """The one complaint; it names the command that helps."""
    (told,) = staleness.complaints(notebook, notebook.parent / "traces")
    assert "`lockstep record 00`" in told
    return told


def test_a_copy_is_as_good(lab: Path) -> None:
    assert staleness.complaints(lab, lab.parent / "traces") == []


def test_prose_may_change(lab: Path) -> None:
    changed(lab, "see-who", lambda text: text + " More.")
    assert staleness.complaints(lab, lab.parent / "traces") == []


def test_a_cell_that_calls_something_else_makes_them_stale(lab: Path) -> None:
    changed(lab, "see-share-run", lambda text: text.replace("12", "16"))
    told = staleness.complaints(lab, lab.parent / "traces")
    assert told[0].startswith("the cell 'see-share-run' has changed since lab 00_ranks was recorded")


def test_a_function_defined_elsewhere_makes_them_stale(lab: Path) -> None:
    changed(lab, "measure-message-define", lambda text: text.replace("2 * times", "3 * times"))
    assert complaint(lab).startswith("the text of <measure-message-define> has changed")


def test_other_parameters_make_them_stale(lab: Path) -> None:
    changed(lab, "parameters", lambda text: text.replace("1_000_000", "2_000_000"))
    assert complaint(lab).startswith("the cell 'parameters' has changed")


def test_a_cell_without_a_recording_is_missed(lab: Path) -> None:
    changed(lab, "see-local-run", lambda text: text + "\nkit.step(who)")
    assert complaint(lab).startswith("the cell 'see-local-run' is new")


def test_a_cell_that_is_gone_is_noticed(lab: Path) -> None:
    changed(lab, "see-who-run", None)
    assert any(
        told.startswith("the cell 'see-who-run' is gone") for told in staleness.complaints(lab, lab.parent / "traces")
    )


def test_a_lab_without_recordings_is_told_how_to_get_them(lab: Path) -> None:
    shutil.rmtree(lab.parent / "traces" / "00_ranks")
    assert complaint(lab).startswith("there are no recordings of lab '00_ranks'")


def test_recordings_without_a_lab_are_strays(lab: Path) -> None:
    (lab.parent / "traces" / "07_gone").mkdir()
    (told,) = staleness.every(lab.parent, lab.parent / "traces")
    assert told.startswith("07_gone") and told.endswith("belongs to no lab: remove it")


def test_a_missing_and_a_needless_file_are_named(lab: Path) -> None:
    folder = lab.parent / "traces" / "00_ranks"
    (folder / "see-who-run.trace").rename(folder / "other.trace")
    told = staleness.complaints(lab, lab.parent / "traces")
    assert [sentence.split(" since")[0] for sentence in told] == [
        "other.trace belongs to none",
        "see-who-run.trace is missing",
    ]


def test_a_damaged_trace_gives_a_sentence(lab: Path) -> None:
    path = lab.parent / "traces" / "00_ranks" / "see-who-run.trace"
    path.write_bytes(path.read_bytes()[:300])
    assert "is not a trace that can be read" in complaint(lab)


def test_a_damaged_list_gives_a_sentence(lab: Path) -> None:
    index = lab.parent / "traces" / "00_ranks" / FILE
    index.write_text(index.read_text()[:500])
    assert "is not a list of recordings that can be read" in complaint(lab)


def test_a_list_of_another_version_gives_a_sentence(lab: Path) -> None:
    index = lab.parent / "traces" / "00_ranks" / FILE
    index.write_text(index.read_text().replace('"version": 1', '"version": 7'))
    assert "is of version 7; this Lockstep reads version 1. Upgrade lockstep-labs" in complaint(lab)


def test_a_list_cannot_name_files_elsewhere(lab: Path) -> None:
    index = lab.parent / "traces" / "00_ranks" / FILE
    index.write_text(index.read_text().replace('"see-who-run.trace"', '"../../secret.trace"'))
    with pytest.raises(ValueError, match="is not a list of recordings"):
        load("00_ranks", lab.parent / "traces")
