"""Every wrong solution is caught with the sentence meant for it; solutions pass; stubs are 'not attempted'."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from kit.check import Verdict, exercise, solutions, specs
from tests.mutants import (
    stubs,
    wrong_all_reduce,
    wrong_bandwidth,
    wrong_buckets,
    wrong_collectives,
    wrong_ddp,
    wrong_hooks,
    wrong_lent,
    wrong_ranks,
    wrong_zero,
)
from tests.mutants.mutant import Mutant

LISTS = (
    wrong_ranks,
    wrong_collectives,
    wrong_all_reduce,
    wrong_bandwidth,
    wrong_ddp,
    wrong_hooks,
    wrong_buckets,
    wrong_zero,
    wrong_lent,
)
MUTANTS = [mutant for each in LISTS for mutant in each.wrong.all]
IDS = list(specs.known())


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_wrong_solution_is_caught_with_its_own_sentence(judged: Callable[..., Verdict], mutant: Mutant) -> None:
    verdict = judged(mutant.function)
    assert verdict.status == "failed", str(verdict)
    assert verdict.stage == mutant.stage, str(verdict)
    missing = [words for words in mutant.words if words not in verdict.sentence]
    assert not missing, f"{missing} not in: {verdict}"


@pytest.mark.parametrize("identity", IDS)
@pytest.mark.parametrize("seed", [1, 2])
def test_a_solution_passes(judged: Callable[..., Verdict], identity: str, seed: int) -> None:
    verdict = judged(exercise(identity)(solutions.function(specs.find(identity))), seed)
    assert verdict.passed, str(verdict)
    assert verdict.worlds == (2, 3, 4)
    assert verdict.run is not None and verdict.target is not None


@pytest.mark.parametrize("identity", IDS)
def test_a_stub_is_not_attempted_and_the_target_is_there(judged: Callable[..., Verdict], identity: str) -> None:
    verdict = judged(stubs.STUBS[identity])
    assert not verdict.attempted
    assert str(verdict) == f"{identity}: not attempted"
    assert verdict.run is None
    assert verdict.target is not None and verdict.target.meta.world == 4
    assert "Traceback" not in verdict._repr_html_()


def test_every_exercise_has_three_wrong_solutions_or_more() -> None:
    counts = Counter(mutant.exercise for mutant in MUTANTS)
    assert {identity: counts[identity] for identity in IDS if counts[identity] < 3} == {}


def test_stubs_and_solutions_take_the_same_arguments() -> None:
    for identity, stub in stubs.STUBS.items():
        solution = solutions.function(specs.find(identity))
        assert stub.__name__ == solution.__name__
        assert (
            stub.__code__.co_varnames[: stub.__code__.co_argcount]
            == (solution.__code__.co_varnames[: solution.__code__.co_argcount])
        )
