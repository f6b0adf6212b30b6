"""Every usual mistake is caught with the sentence meant for it; solutions pass; stubs are 'not attempted'."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kit.grade import answers, discovery
from kit.grade.answers import exercise
from kit.grade.exercise import Exercise, Mistake
from kit.grade.notebooks import stubs_in
from kit.grade.verdict import Verdict

EXERCISES = discovery.exercises()
MISTAKES = [
    pytest.param(each, mistake, id=f"{each.id}/{mistake.name.replace(' ', '-')}")
    for each in EXERCISES.values()
    for mistake in each.mistakes
]
STUBS = [pytest.param(lab, name, id=name) for lab in discovery.labs().values() for name in stubs_in(lab.notebook)]


def stub(lab: discovery.Lab, name: str) -> Callable[..., Any]:
    """A stub as the notebook has it, untouched."""
    source = stubs_in(lab.notebook)[name]
    each = EXERCISES[name]
    names = {**answers.solution_of(each).__globals__, "exercise": exercise, "NotAttempted": answers.NotAttempted}
    exec(source, names)
    found: Callable[..., Any] = names[each.function]
    return found


@pytest.mark.parametrize(("each", "mistake"), MISTAKES)
def test_a_mistake_is_caught_with_its_own_sentence(
    judged_on: Callable[..., Verdict], each: Exercise, mistake: Mistake, request: pytest.FixtureRequest
) -> None:
    """On four ranks, as a notebook has them; on three where these are enough to see it, but in the full matrix."""
    wrong = answers.mistaken(each, mistake)
    for ranks in (4,) if request.config.getoption("--full-matrix") else (3, 4):
        verdict = judged_on(each, wrong, ranks)
        missed = mistake.missed_by(verdict.stage, verdict.sentence)
        if missed is None:
            break
    assert missed is None, str(verdict)


@pytest.mark.parametrize("identity", EXERCISES)
def test_a_solution_passes(judged: Callable[..., Verdict], identity: str) -> None:
    verdict = judged(exercise(identity)(answers.solution_of(EXERCISES[identity])))
    assert verdict.passed, str(verdict)
    assert verdict.worlds == (2, 3, 4, *EXERCISES[identity].beyond)
    assert verdict.run is not None and verdict.target is not None


@pytest.mark.parametrize(("lab", "name"), STUBS)
def test_a_stub_is_not_attempted_and_the_target_is_there(
    judged: Callable[..., Verdict], lab: discovery.Lab, name: str
) -> None:
    verdict = judged(stub(lab, name))
    assert not verdict.attempted
    assert str(verdict) == f"{name}: not attempted"
    assert verdict.run is None
    assert verdict.target is not None and verdict.target.meta.world == 4
    assert "Traceback" not in verdict._repr_html_()


@pytest.mark.parametrize(("lab", "name"), STUBS)
def test_a_stub_and_its_solution_take_the_same_arguments(lab: discovery.Lab, name: str) -> None:
    mine, solution = (function.__code__ for function in (stub(lab, name), answers.solution_of(EXERCISES[name])))
    assert (mine.co_name, mine.co_varnames[: mine.co_argcount]) == (
        solution.co_name,
        solution.co_varnames[: solution.co_argcount],
    )


def test_there_is_a_stub_for_every_exercise() -> None:
    assert {param.id for param in STUBS} == set(EXERCISES)


@pytest.mark.parametrize("number", sorted({lab[:2] for lab in discovery.labs()}))
def test_every_lab_has_fifteen_mistakes_or_more(number: str) -> None:
    assert sum(len(each.mistakes) for each in EXERCISES.values() if each.lab.startswith(number)) >= 15


@pytest.mark.parametrize("each", EXERCISES.values(), ids=EXERCISES)
def test_every_exercise_has_three_mistakes_or_more_that_differ(each: Exercise) -> None:
    assert len({mistake.name for mistake in each.mistakes}) == len(each.mistakes) >= 3
