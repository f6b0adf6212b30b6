"""The command line: what it answers, what it copies, and what it starts."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kit import __version__, cli, resources
from kit.grade.lab_recordings import BUDGET
from kit.grade.marks import PASSED, Mark
from kit.grade.notebooks import Notebook
from kit.grade.report import Outcome


def run(*arguments: str) -> int:
    """The exit code, whether it is returned or raised."""
    try:
        return cli.main(arguments)
    except SystemExit as ended:
        if not isinstance(ended.code, int):
            raise
        return ended.code


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--version") == 0
    assert capsys.readouterr().out == f"lockstep {__version__}\n"


def test_command_is_installed() -> None:
    said = subprocess.run([sys.executable, "-m", "kit.cli", "--version"], capture_output=True, text=True, check=True)
    assert said.stdout == f"lockstep {__version__}\n"


@pytest.mark.parametrize("arguments", [[], ["--help"]])
def test_help_names_the_commands(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*arguments) == 0
    said = capsys.readouterr().out
    assert "copy the labs to your folder" in said and "run labs without a browser" in said


def test_help_of_record_says_when_and_how_large(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("record", "--help") == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "for machines that can have no cluster" in said and f"a budget of {BUDGET // 1000} kB" in said
    assert "whenever a test says that a lab has changed" in said


def test_recordings_are_not_put_into_an_installed_wheel(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(resources, "assets", lambda: Path("/site/kit/_carried/assets"))
    assert run("record", "00") == 2
    assert "name a folder of your own with --into DIR" in capsys.readouterr().err


def test_help_of_check_says_what_exit_codes_mean_and_gives_examples(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("check", "--help") == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "exit code is 0 only if all is as expected" in said
    assert "lockstep check handed-in/*.ipynb" in said


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["dance"], "invalid choice: 'dance'"),
        (["check", "--dance"], "unrecognized arguments: --dance"),
        (["check", "99"], "There is no lab '99'"),
        (["check", "gone.ipynb"], "There is no notebook gone.ipynb here"),
        (["check", "--ranks", "four"], "whole number from 2 on, not 'four'"),
        (["check", "--ranks", "1"], "whole number from 2 on, not '1'"),
        (["check", "--ranks", "-3"], "whole number from 2 on, not '-3'"),
        (["check", "--jobs", "0"], "whole number from 1 on, not '0'"),
        (["check", "--cell-limit", "0"], "a number of seconds above 0, not '0'"),
        (["check", "--lab-limit", "inf"], "a number of seconds above 0, not 'inf'"),
        (["check", "--lab-limit", "nan"], "a number of seconds above 0, not 'nan'"),
        (["check", "--json"], "expected one argument"),
        (["check", "--json", "/dev/null/marks.json"], "cannot be made"),
        (["check", "00", "--json", "/"], "/ cannot be written (Is a directory): name another file"),
        (["lab", "--dir", "/dev/null/labs"], "name another folder with --dir"),
        (["record", "99"], "There is no lab '99'"),
    ],
)
def test_nonsense_gets_one_sentence_and_exit_code_2(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*arguments) == 2
    said = capsys.readouterr()
    assert words in said.err
    assert said.err.startswith("lockstep")
    assert said.err.count("\n") == 1
    assert said.out == ""


def test_marks_outlive_an_interrupt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Seventy notebooks take hours: what is known is in the file after each of them."""

    def one_then_interrupted(notebooks: list[Notebook], *how: Any) -> Iterator[Outcome]:
        yield Outcome(notebooks[1], (Mark("ring", PASSED, "right", 1.0),), None, 1.0, solutions=False)
        raise KeyboardInterrupt

    monkeypatch.setattr("kit.grade.run.run_all", one_then_interrupted)
    marks = tmp_path / "marks.json"
    assert run("check", "00", "01a", "--json", str(marks)) == 130
    assert "interrupted" in capsys.readouterr().err
    page = json.loads(marks.read_text())
    assert [lab["lab"] for lab in page["labs"]] == ["01a_collectives"]
    assert (page["notebooks"], page["as_expected"], page["labs"][0]["passed"]) == (2, False, 1)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands `lockstep lab` would have become."""
    commands: list[list[str]] = []
    monkeypatch.setenv("JUPYTER_CONFIG_PATH", "/etc/site")
    monkeypatch.setattr(os, "execv", lambda program, command: commands.append(command))
    return commands


def test_lab_copies_the_labs_and_opens_the_first(started: list[list[str]], tmp_path: Path) -> None:
    run("lab", "--dir", str(tmp_path / "mine"), "--no-browser", "--", "--port", "9999")
    shipped = {path.name for path in resources.labs().glob("*.ipynb")}
    assert {path.name for path in (tmp_path / "mine" / "labs").iterdir()} == shipped
    assert (tmp_path / "mine" / "assets" / "jupyter").is_dir()
    (command,) = started
    assert command[1:3] == ["-m", "jupyterlab"]
    assert f"--ServerApp.root_dir={tmp_path / 'mine'}" in command
    assert "--LabApp.default_url=/lab/tree/labs/00_ranks.ipynb" in command
    assert "--log-level=ERROR" in command, "the address stands alone"
    assert command[-2:] == ["--port", "9999"] and "--no-browser" in command
    ours, site = os.environ["JUPYTER_CONFIG_PATH"].split(os.pathsep)
    assert (Path(ours) / "jupyter_lab_config.json").is_file()
    assert site == "/etc/site"


def test_kernels_of_the_lab_speak_where_no_other_user_can_listen(
    started: list[list[str]], monkeypatch: pytest.MonkeyPatch, short_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    usual = short_path / "runtime"
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(usual))
    run("lab", "--dir", str(short_path))
    assert "--KernelManager.transport=ipc" in started[0]
    assert os.environ["JUPYTER_RUNTIME_DIR"] == str(usual) and not list(usual.iterdir())
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(short_path / ("long" * 20)))
    run("lab", "--dir", str(short_path))
    instead = Path(os.environ["JUPYTER_RUNTIME_DIR"])
    assert instead.stat().st_mode & 0o777 == 0o700 and len(str(instead)) < 60
    assert f"runtime files are in {instead}: " in capsys.readouterr().out
    shutil.rmtree(instead)


def test_lab_never_overwrites(started: list[list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("lab", "--dir", str(tmp_path))
    mine, gone = tmp_path / "labs" / "01a_collectives.ipynb", tmp_path / "labs" / "00_ranks.ipynb"
    mine.write_text("my work")
    gone.unlink()
    capsys.readouterr()
    run("lab", "--dir", str(tmp_path))
    assert mine.read_text() == "my work"
    assert gone.read_bytes() == (resources.labs() / "00_ranks.ipynb").read_bytes()
    assert "(1 files copied; " in capsys.readouterr().out


def test_solutions_are_not_copied(tmp_path: Path) -> None:
    copied, kept = resources.copy_to(tmp_path)
    assert copied and not kept
    assert not any("solutions" in path.parts for path in copied)
    assert all(path.is_file() for path in copied)
