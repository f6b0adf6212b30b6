"""The set-up behind `python3 labs` and `python3 tests`, with pip and the network replaced by a record of requests."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import urllib.error
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def set_up(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("set_up", ROOT / "binder" / "set_up.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def asked(set_up: ModuleType, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The pip commands that the set-up wanted to run; the environment is an empty folder with a python in it."""
    commands: list[list[str]] = []

    def installer(folder: Path, python: Path) -> list[str]:
        python.parent.mkdir(parents=True, exist_ok=True)
        python.touch()
        return ["pip"]

    monkeypatch.setattr(set_up, "_installer", installer)
    monkeypatch.setattr(set_up, "_torch_index", list)
    monkeypatch.setattr(set_up, "_pip", lambda command, log: commands.append(command))
    return commands


def test_second_run_installs_nothing(set_up: ModuleType, asked: list[list[str]], tmp_path: Path) -> None:
    python = set_up.environment(tmp_path)
    assert set_up.environment(tmp_path) == python
    assert len(asked) == 1


def test_labs_after_tests_install_nothing_and_tests_after_labs_do(
    set_up: ModuleType, asked: list[list[str]], tmp_path: Path
) -> None:
    set_up.environment(tmp_path)
    set_up.environment(tmp_path, extras=("dev",))
    set_up.environment(tmp_path)
    assert [command[3] for command in asked] == [str(ROOT), f"{ROOT}[dev]"]


def test_changed_constraints_install_again(
    set_up: ModuleType, asked: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_up.environment(tmp_path / "venv")
    other = tmp_path / "constraints.txt"
    other.write_text("torch==0.0\n")
    monkeypatch.setattr(set_up, "CONSTRAINTS", other)
    set_up.environment(tmp_path / "venv")
    assert len(asked) == 2


def test_set_up_that_was_cut_short_is_done_again(set_up: ModuleType, asked: list[list[str]], tmp_path: Path) -> None:
    set_up.environment(tmp_path)
    (tmp_path / set_up.STAMP).write_text(json.dumps({"checkout": str(ROOT)})[:-4])
    set_up.environment(tmp_path)
    assert len(asked) == 2


def test_no_gpu_takes_the_cpu_builds_where_they_can_be_reached(
    set_up: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Answer:
        def __enter__(self) -> None: ...
        def __exit__(self, *_: object) -> None: ...

    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(set_up, "_has_gpu", lambda: False)
    monkeypatch.setattr(set_up.urllib.request, "urlopen", lambda *_, **__: Answer())
    assert set_up._torch_index() == ["--extra-index-url", set_up.CPU_BUILDS]
    monkeypatch.setattr(set_up, "_has_gpu", lambda: True)
    assert set_up._torch_index() == []


def test_cpu_builds_out_of_reach_are_said(
    set_up: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise urllib.error.URLError("no route")

    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(set_up, "_has_gpu", lambda: False)
    monkeypatch.setattr(set_up.urllib.request, "urlopen", refuse)
    assert set_up._torch_index() == []
    assert "cannot be reached" in capsys.readouterr().out


def test_failing_pip_ends_with_its_errors_and_what_to_do(set_up: ModuleType, tmp_path: Path) -> None:
    program = "import sys; print('Collecting x'); print('ERROR: No matching distribution'); sys.exit(1)"
    with pytest.raises(SystemExit) as ended:
        set_up._pip([sys.executable, "-c", program], tmp_path / "log")
    assert "ERROR: No matching distribution" in str(ended.value)
    assert "Collecting" not in str(ended.value)
    assert "package index" in str(ended.value)


def test_python_that_can_make_no_environment_says_what_is_missing(
    set_up: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(set_up.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(set_up, "_works", lambda command: False)
    with pytest.raises(SystemExit, match="apt install python3-venv"):
        set_up._installer(tmp_path / "venv", tmp_path / "venv" / "bin" / "python")


def test_without_ensurepip_the_pip_of_this_python_fills_the_environment(
    set_up: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(set_up.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(set_up, "_works", lambda command: command[0] == sys.executable)
    python = tmp_path / "venv" / "bin" / "python"
    assert set_up._installer(tmp_path / "venv", python) == [sys.executable, "-m", "pip", "--python", str(python)]
    assert python.exists()


@pytest.mark.parametrize(
    ("arguments", "value", "rest"),
    [
        (["--venv", "x", "-k", "y"], "x", ["-k", "y"]),
        (["-k", "y", "--venv=x"], "x", ["-k", "y"]),
        (["-k", "y"], ".venv", ["-k", "y"]),
    ],
)
def test_option_is_taken_and_the_rest_passed_on(
    set_up: ModuleType, arguments: list[str], value: str, rest: list[str]
) -> None:
    assert set_up.take_option(arguments, "--venv", ".venv") == value
    assert arguments == rest


@pytest.mark.parametrize("folder", ["labs", "tests"])
def test_old_python_gets_a_sentence(folder: str) -> None:
    program = (
        "import runpy, sys\n"
        "sys.version_info = (3, 8, 18, 'final', 0)\n"
        f"runpy.run_path({str(ROOT / folder)!r}, run_name='__main__')"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ended.returncode == 1
    assert (
        ended.stderr.strip()
        == f"Lockstep needs Python 3.11 or newer; this is 3.8. Try for instance: python3.12 {folder}"
    )
