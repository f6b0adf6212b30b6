"""Every wish that cannot be had is refused with a ValueError that says what to do."""

from __future__ import annotations

import os
import socket
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kit.clusters import request
from kit.clusters.folder import RunFolder
from kit.clusters.request import Request, checked, free_port


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A short name: that of a socket inside has a limit."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def test_what_is_asked_for_is_what_is_checked(tmp_path: Path) -> None:
    assert checked() == Request(4)
    assert checked(np.int64(2), "cpu", "gloo", folder=tmp_path) == Request(2, "cpu", "gloo", folder=str(tmp_path))


@pytest.mark.parametrize(
    ("wish", "remedy"),
    [
        ({"ranks": 0}, "at least one rank, not 0: write ranks=4"),
        ({"ranks": -2}, "at least one rank, not -2"),
        ({"ranks": "4"}, "ranks must be a whole number, not '4': write ranks=4"),
        ({"ranks": 2.0}, "ranks must be a whole number, not 2.0"),
        ({"ranks": True}, "ranks must be a whole number, not True"),
        ({"ranks": [0, 1]}, "ranks must be a whole number"),
        ({"ranks": 10**7}, "GB free: ask for .* ranks at most, or look at a predicted trace"),
        ({"device": "gpu"}, "write device='cuda'"),
        ({"device": 0}, "device must be one of 'auto', 'cpu', 'cuda', 'xpu', not 0: write device='auto'"),
        ({"backend": "mpi"}, "backend must be one of .*: write backend='auto'"),
        ({"port": "29500"}, "port must be a whole number, not '29500': write port=29500"),
        ({"port": 0}, "between 1 and 65535, not 0: leave port out"),
        ({"port": 70000}, "between 1 and 65535"),
        ({"folder": 3}, "folder must be a path, not 3"),
        ({"folder": "/no/such/folder"}, "there is no folder '/no/such/folder': create it first, or leave folder out"),
        ({"engines": "slurm"}, "ask the scheduler for one node"),
    ],
)
def test_refusals_name_the_remedy(wish: dict[str, Any], remedy: str) -> None:
    with pytest.raises(ValueError, match=remedy):
        checked(**wish)


def test_a_port_in_use_is_refused_and_a_free_one_is_not() -> None:
    port = free_port()
    assert checked(port=port).port == port
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        taken.listen()
        with pytest.raises(ValueError, match=f"port {port} cannot be had .*: leave port out"):
            checked(port=port)


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # the tests may run as root, who can write anywhere
    with pytest.raises(ValueError, match="cannot be written to: name one of your own"):
        checked(folder=tmp_path)


def test_other_systems_are_told_where_to_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request.sys, "platform", "darwin")
    with pytest.raises(ValueError, match="needs Linux, this is 'darwin': use WSL, a container or Binder"):
        checked(2)


def test_a_system_without_process_descriptors_is_told_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(pid: int) -> int:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(os, "pidfd_open", refuse)
    with pytest.raises(ValueError, match="Function not implemented.*Linux 5.3 or later"):
        checked(2)


def test_the_run_folder_is_private_and_goes_when_told(tmp_path: Path) -> None:
    folder = RunFolder(str(tmp_path))
    assert folder.path.parent == tmp_path and stat.S_IMODE(folder.path.stat().st_mode) == 0o700
    (folder.profile / "log" / "ipengine.log").write_text("one\ntwo\nthree\n")
    assert folder.log_tail(lines=2) == "two\nthree"
    folder.remove()
    assert not list(tmp_path.iterdir())
    folder.remove()


def test_the_run_folder_falls_back_and_says_when_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "missing"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder = RunFolder()
    assert folder.path.parent == tmp_path
    folder.remove()
    assert not capsys.readouterr().err
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / ("long" * 25)))
    monkeypatch.setattr("kit.clusters.folder.LAST_RESORT", str(tmp_path))
    folder = RunFolder()
    assert folder.path.parent == tmp_path and "it has too long a name for a socket" in capsys.readouterr().err
    folder.remove()
    monkeypatch.setattr("kit.clusters.folder.LAST_RESORT", str(tmp_path / "missing too"))
    with pytest.raises(ValueError, match=r"no private folder can be made in .*missing or .*name a folder of your own"):
        RunFolder()


def test_what_a_killed_kernel_left_is_swept_and_what_is_in_use_is_not(tmp_path: Path) -> None:
    used, left = RunFolder(str(tmp_path)), RunFolder(str(tmp_path))
    left._owner.close()  # as the system does for a process that was killed
    new = RunFolder(str(tmp_path))
    assert used.path.exists() and new.path.exists() and not left.path.exists()
    new.remove()
    used.remove()


def test_a_folder_too_long_for_a_socket_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    long = tmp_path / ("x" * 100)
    long.mkdir()
    with pytest.raises(ValueError, match=r"too long a name for a socket\): .*folder='/tmp'"):
        RunFolder(str(long))
    assert not list(long.iterdir())
