"""What a host must have for ranks: what is missing is named before anything is started, with what helps."""

from __future__ import annotations

import resource
import socket
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from kit.clusters import needs
from kit.clusters.doctor import host, software
from kit.clusters.errors import Lacking
from kit.clusters.lifecycle import Lifecycle
from kit.clusters.processes import raise_open_files
from kit.clusters.request import Request


@pytest.mark.parametrize(
    ("hard", "fix"), [(64, "ask the administrator for it"), (110, "1 ranks can be had"), (1024, None), (-1, None)]
)
def test_open_files(hard: int, fix: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (min(hard, 64), hard))
    found = host.open_files(4)
    if fix is None:
        assert found.status == "ok" and needs.open_files(4) == hard
    else:
        assert found.status == "problem" and f"{hard} files open" in found.found and fix in found.fix


def test_children_may_open_as_many_files_as_there_are_to_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    set_to: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "setrlimit", lambda kind, limits: set_to.append(limits))
    for limits in ((64, 4096), (1024, -1), (4096, 4096), (-1, -1)):
        monkeypatch.setattr(resource, "getrlimit", lambda kind, limits=limits: limits)
        raise_open_files()
    assert set_to == [(4096, 4096), (1 << 16, -1)]


@pytest.mark.parametrize(("found", "words"), [({}, "does not exist"), ({"lo": False}, "is down")])
def test_no_loopback(found: dict[str, bool], words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "net_if_stats", lambda: {name: SimpleNamespace(isup=up) for name, up in found.items()})
    with pytest.raises(Lacking, match=f"{words}: bring it up as the administrator"):
        needs.interface()


def test_few_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    real, left = socket.create_server, [1, 2, 3]

    def create_server(address: tuple[str, int]) -> socket.socket:
        if not left:
            raise OSError(98, "Address already in use")
        left.pop()
        return real(address)

    monkeypatch.setattr(socket, "create_server", create_server)
    found = host.ports(4)
    assert (found.status, found.found) == (
        "problem",
        "4 ranks need 8 free ports on 127.0.0.1, and 3 could be had (Address already in use)",
    )
    assert found.fix.startswith("End what holds them, or have the administrator widen the range: sysctl")


def test_nothing_is_started_where_something_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (64, 64))
    monkeypatch.setattr("kit.clusters.lifecycle.Launched", None)
    with pytest.raises(Lacking, match="64 files open here"):
        Lifecycle(Request(4))._begin()


def test_a_folder_that_was_deleted_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(ValueError, match=r"was deleted: change to another with os\.chdir"):
        Lifecycle(Request(1))._begin()


def test_labs_run_without_papermill_and_checking_does_not() -> None:
    found = software.papermill({}.get)
    assert found.status == "warning" and "`lockstep check`" in found.found and "pip install papermill" in found.fix
