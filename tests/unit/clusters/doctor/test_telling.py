"""All questions together, the table, the JSON, and the command."""

from __future__ import annotations

import json
import os

import pytest

from kit import cli
from kit.clusters import doctor
from kit.clusters.doctor import examine, finding, leftovers
from kit.clusters.doctor.finding import Finding, ok, problem, warning
from kit.clusters.doctor.trial import Trial

OK = ok("fine").named("ports")
BAD = problem("there is no folder '/gone'", "Make one.").named("home")
TRIED = Trial(2, 1.0, 0.001, True, "gloo", ("cpu",) * 2, "torch 2.13", ("gloo",))


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> list[Finding]:
    """What the quick questions answer; no rank is started."""
    answers: list[Finding] = [OK]
    monkeypatch.setattr(doctor, "questions", lambda ranks: {one.name: lambda one=one: one for one in answers})
    monkeypatch.setattr(doctor.trial, "run", lambda ranks: TRIED)
    return answers


def test_a_question_that_fails_is_an_answer_and_the_others_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.trial, "run", lambda ranks: TRIED)
    found = list(examine(2, {"odd": lambda: 1 / 0, "ports": lambda: OK}))  # type: ignore[dict-item, return-value]
    assert [one.name for one in found] == ["odd", "ports", "backends", "real ranks"]
    assert found[0].status == "warning" and "ZeroDivisionError" in found[0].found


def test_without_torch_no_rank_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.trial, "run", lambda ranks: pytest.fail("ranks were started"))
    found = list(examine(2, {"torch": lambda: problem("not installed", "Install it.")}))
    assert (found[-1].name, found[-1].status, found[-1].found) == ("real ranks", "note", "none were started: see torch")


def test_the_quick_questions_have_distinct_names_and_answer_here() -> None:
    names = [doctor.answered(name, ask).name for name, ask in doctor.questions(2).items()]
    assert names == list(doctor.questions(2)) and len(set(names)) == len(names)


def test_table_puts_what_to_do_under_what_was_found() -> None:
    first, second = finding.lines(BAD, 100).splitlines()
    assert first.split() == ["home", "problem", "there", "is", "no", "folder", "'/gone'"]
    assert second.strip() == "do: Make one."
    assert max(map(len, finding.lines(ok("word " * 60).named("a"), 60).splitlines())) <= 60


@pytest.mark.parametrize(
    ("findings", "words"),
    [
        ([OK], "The labs run here."),
        ([OK, BAD], "1 problem: the labs do not run here before that is mended."),
        ([warning("b", "c").named("a")] * 2, "2 warnings: the labs run here."),
        ([BAD, warning("b", "c").named("a")], "1 problem and 1 warning: the labs do not run"),
    ],
)
def test_summary(findings: list[Finding], words: str) -> None:
    assert finding.summary(findings, 1.0).startswith(words)


def test_exit_code_is_one_with_a_problem_and_zero_without(
    machine: list[Finding], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["doctor", "--ranks", "2"]) == 0
    assert "The labs run here." in capsys.readouterr().out
    machine.append(BAD)
    assert cli.main(["doctor"]) == 1
    assert "do: Make one." in capsys.readouterr().out


def test_json_is_all_that_is_printed(machine: list[Finding], capsys: pytest.CaptureFixture[str]) -> None:
    machine.append(BAD)
    assert cli.main(["doctor", "--json", "--ranks", "2"]) == 1
    page = json.loads(capsys.readouterr().out)
    assert (page["ok"], page["ranks"], page["ended"]) == (False, 2, [])
    assert page["findings"][1] == {"name": "home", "status": "problem", "found": BAD.found, "fix": "Make one."}


@pytest.mark.parametrize("arguments", [["--ranks", "0"], ["--ranks", "two"], ["--dance"], ["now"]])
def test_nonsense_is_exit_code_two(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["doctor", *arguments])
    assert ended.value.code == 2


def test_left_over_ranks_are_ended_only_when_asked(
    machine: list[Finding], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = []
    monkeypatch.setattr(leftovers, "end", lambda: asked.append(os.getpid()) or (4711, 4712))
    cli.main(["doctor"])
    assert not asked
    cli.main(["doctor", "--end-leftovers"])
    assert asked and "Ended left-over processes 4711, 4712." in capsys.readouterr().out
