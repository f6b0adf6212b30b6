"""Comparisons, and the sentence each usual mistake gets."""

from __future__ import annotations

import pytest
import torch

from kit.grade import diagnose
from kit.grade.values import difference
from tests.unit.grade.made import run


def t(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float32)


@pytest.mark.parametrize(
    ("got", "right", "words"),
    [
        (None, t(1), "nothing"),
        (3, t(1), "3 where a tensor of shape (1,)"),
        (t(1, 2), t(1), "shape (2,) where one of shape (1,)"),
        (t(1).double(), t(1), "float64 tensor where float32"),
        (t(1, 2, 4), t(1, 3, 5), "2 at [1] where 3 is right, and 1 more of 3 differ (tolerance 1e-05)"),
        (t(1).sum(), t(2).sum(), "its only element"),
        (t(float("nan")), t(1), "nan"),
        (t(1), 3, "a tensor where 3 is right"),
        (2, 3, "2 where 3 is right"),
        (True, 1, "True where 1"),
        ((0, 2), (0, 3), "(0, 2) where (0, 3)"),
        (2.0, 3.0, "2.0 where 3.0"),
    ],
)
def test_differences_say_what_is_there_and_what_is_right(got: object, right: object, words: str) -> None:
    told = difference(got, right)
    assert told is not None and words in told


@pytest.mark.parametrize(
    ("got", "right"),
    [(t(1.0, 100.0), t(1.0, 100.0005)), ([0, 2], (0, 2)), (3, 3), (None, None), (t(), t()), (2, 2.0)],
)
def test_what_agrees_has_no_difference(got: object, right: object) -> None:
    assert difference(got, right) is None


def test_the_tolerance_is_relative_to_the_largest_right_value() -> None:
    assert difference(t(1.0, 1.1), t(1.0, 1.0), 0.2) is None
    assert difference(t(1.0, 1.1), t(1.0, 1.0), 0.01) is not None


def pieces(x: torch.Tensor, n: int) -> tuple[torch.Tensor, ...]:
    return x.tensor_split(n)


X = [t(1, 2, 3), t(10, 20, 30), t(100, 200, 400)]
INPUTS = [(x,) for x in X]
SUM = [sum(X)] * 3


@pytest.mark.parametrize(
    ("diagnosis", "results", "expected", "words"),
    [
        (diagnose.nothing_returned, [SUM[0], None, None], SUM, "ranks 1 and 2 returned nothing"),
        (diagnose.not_divided, [x * 3 for x in SUM], SUM, "not divided by the world size"),
        (diagnose.divided, [x / 3 for x in SUM], SUM, "the sum is asked for, not the mean"),
        (diagnose.wrong_source, [X[0], X[0], X[0]], [X[2]] * 3, "rank 1 has the tensor of rank 0 where rank 2"),
        (diagnose.own_input, [SUM[0], X[1], SUM[0]], SUM, "rank 1 returned what went in"),
        (diagnose.only_rank_zero, [SUM[0], X[1], X[2]], SUM, "only rank 0 is right"),
        (diagnose.same_everywhere("one seed"), [X[0]] * 3, X, "every rank returned the same"),
        (diagnose.neighbour(-1, "wrong way"), [X[1], X[2], X[0]], [X[2], X[0], X[1]], "wrong way"),
        (diagnose.not_cut, [t(*SUM[0].tolist(), 0)] * 3, SUM, "returned 4 elements where 3 are right"),
        (diagnose.chunk_order(pieces), [SUM[0].roll(1)] * 3, SUM, "chunk 2 lies where chunk 0 belongs"),
        (diagnose.contributions(pieces), [t(11, 222, 433)] * 3, SUM, "rank 0's chunk 0 of 3 lacks what rank 2 put in"),
        (
            diagnose.contributions(pieces),
            [SUM[0], SUM[0], t(111, 222, 463)],
            SUM,
            "rank 2's chunk 2 of 3 counts rank 1 twice",
        ),
    ],
)
def test_a_usual_mistake_has_its_own_sentence(diagnosis, results, expected, words) -> None:  # type: ignore[no-untyped-def]
    told = diagnosis(run(3, arguments=INPUTS, results=results, source=2), expected)
    assert told is not None and words in told


@pytest.mark.parametrize(
    "diagnosis",
    [
        diagnose.nothing_returned,
        diagnose.not_divided,
        diagnose.divided,
        diagnose.wrong_source,
        diagnose.own_input,
        diagnose.only_rank_zero,
        diagnose.same_everywhere("one seed"),
        diagnose.neighbour(-1, "wrong way"),
        diagnose.not_cut,
        diagnose.chunk_order(pieces),
        diagnose.contributions(pieces),
    ],
)
def test_no_diagnosis_speaks_of_another_mistake(diagnosis) -> None:  # type: ignore[no-untyped-def]
    results = [t(7.5, -3, 9), t(7.5, -3, 8), t(5, 5, 5)]
    assert diagnosis(run(3, arguments=INPUTS, results=results, source=2), SUM) is None


def test_a_changed_input_is_named_by_rank() -> None:
    changed = run(3, arguments=INPUTS, results=SUM, after=[INPUTS[0], (X[1] + 1,), INPUTS[2]])
    assert "rank 1 changed its input in place" in str(diagnose.input_changed(changed))
    assert diagnose.input_changed(run(3, arguments=INPUTS, results=SUM)) is None


def test_the_input_itself_is_no_new_tensor() -> None:
    given = run(3, arguments=INPUTS, results=[X[0].clone(), X[1], X[2].clone()])
    assert "rank 1 returned its input itself" in str(diagnose.input_returned(given))
    assert diagnose.input_returned(run(3, arguments=INPUTS, results=[x.clone() for x in X])) is None
