from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kit.run.recorder import label
from kit.run.session import Session


def test_a_file_is_called_by_its_path_from_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert label(str(tmp_path / "mine" / "ring.py")) == "mine/ring.py"
    assert label("/elsewhere/ring.py") == "/elsewhere/ring.py"
    assert label("<ipython-input-1>") == "your cell"


def test_a_deleted_working_folder_does_not_keep_a_run_from_being_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert label("/elsewhere/ring.py") == "/elsewhere/ring.py"


@pytest.mark.parametrize(("asked", "named"), [("0", "'0'"), ([0, "a"], "'a'"), ([9], "9"), (-1, "-1")])
def test_what_is_no_rank_is_named_as_it_was_written(asked: Any, named: str) -> None:
    session = cast(Session, SimpleNamespace(_recorder=SimpleNamespace(world=4)))
    with pytest.raises(ValueError, match=f"there is no rank {named}: the ranks are 0 to 3"):
        Session._checked(session, asked)
    assert Session._checked(session, [3, 0, 3]) == (0, 3)
