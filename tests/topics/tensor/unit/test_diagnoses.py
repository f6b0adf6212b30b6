"""Each sentence about a wrong part is told of what it says, and of nothing else."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
import torch

from kit.grade.exercise import Exercise, Run
from kit.grade.values import same
from kit.topics.tensor.exercises import EXERCISES
from tests.unit.grade.made import run

WITH_PARTS = [each for each in EXERCISES if hasattr(each.diagnoses[-1], "__wrapped__") and each.id != "dropout-seeds"]
Parts = list[dict[str, torch.Tensor]]


def run_of(exercise: Exercise, case: Any, parts: Parts) -> Run:
    results = tuple(torch.cat([x.flatten() for x in one.values()]) for one in parts)
    return run(case.world, arguments=case.arguments, results=results, **case.facts)


@pytest.mark.parametrize("exercise", WITH_PARTS, ids=lambda each: each.id)
def test_a_sentence_is_told_of_what_it_says(exercise: Exercise) -> None:
    diagnosis: Any = exercise.diagnoses[-1]
    case = next(exercise.cases(3, Random(1)))
    right: Parts = case.facts["right"]
    candidates = list(diagnosis.__wrapped__(run_of(exercise, case, right)))
    assert len(candidates) >= 5
    for name, sentence, would_be in candidates:
        wrong = [{**parts, name: x} for parts, x in zip(right, would_be, strict=True)]
        assert not all(same(a[name], b[name]) for a, b in zip(wrong, right, strict=True)), sentence
        assert diagnosis(run_of(exercise, case, wrong), exercise.oracle(case)) == sentence


def test_what_nobody_foresaw_names_the_part_and_the_rank() -> None:
    exercise = WITH_PARTS[0]
    case = next(exercise.cases(3, Random(1)))
    wrong = [dict(parts) for parts in case.facts["right"]]
    wrong[2]["dw"] = wrong[2]["dw"] + 1
    said = exercise.diagnoses[-1](run_of(exercise, case, wrong), exercise.oracle(case))
    assert said is not None and said.startswith("rank 2's dw is wrong, it has ")
    wrong[2]["dw"] = wrong[2]["dw"] * 0
    said = exercise.diagnoses[-1](run_of(exercise, case, wrong), exercise.oracle(case))
    assert said is not None and said.startswith("rank 2's dw is 0")
