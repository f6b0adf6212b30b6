"""Are the results right? Compares with a stated tolerance, and names the usual mistakes by their own sentence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from kit.grade.traffic import never_waited

if TYPE_CHECKING:
    import torch

    from kit.grade.exercise import Diagnosis, Exercise, Run


def judge(exercise: Exercise, run: Run) -> str | None:
    """The first sentence that says what is wrong with the results of a run, or None.

    Order: was all that was begun waited for, the exercise's own rules (input changed, printed too much), then every
    rank's result beside the oracle's; where they differ the diagnoses speak first, and the plain difference if none of
    them knows the mistake. Where all agree, what the exercise looks at afterwards (the input itself was returned).
    """
    for rule in (never_waited, *exercise.before):
        wrong = rule(run)
        if wrong:
            return wrong
    expected = exercise.oracle(run.case)
    differences = [difference(got, right, exercise.tolerance) for got, right in zip(run.results, expected, strict=True)]
    if not any(differences):
        return next((wrong for rule in exercise.after if (wrong := rule(run))), None)
    for diagnosis in exercise.diagnoses:
        wrong = diagnosis(run, expected)
        if wrong:
            return wrong
    rank = next(rank for rank, text in enumerate(differences) if text)
    return f"rank {rank} returned {differences[rank]}"


def difference(got: Any, right: Any, tolerance: float = 1e-5) -> str | None:
    """How a result differs from the right one, to stand behind 'rank 1 returned'; None when they agree.

    tolerance: of tensors, relative to the largest right value.
    """
    if is_tensor(right):
        return _tensor_difference(got, right, tolerance)
    if is_tensor(got):
        if right is None:
            return f"a tensor {_shape(got)} where None is right"
        return f"a tensor where {_short(right)} is right: `.item()` gives a tensor's only number"
    if isinstance(right, float) and isinstance(got, int | float) and not isinstance(got, bool):
        return None if abs(got - right) <= tolerance * max(abs(right), 1e-12) else f"{got} where {right} is right"
    if isinstance(right, tuple) and isinstance(got, list):
        got = tuple(got)
    if type(got) is type(right) and got == right:
        return None
    if isinstance(got, float) and isinstance(right, int) and got == right:
        return f"{got}, a float, where {right}, an int, is right"
    return f"{_short(got)} where {_short(right)} is right"


def _tensor_difference(got: Any, right: torch.Tensor, tolerance: float) -> str | None:
    if got is None:
        return "nothing: the function ends without a return on this rank"
    if isinstance(got, list | tuple) and got and all(map(is_tensor, got)):
        return f"a {type(got).__name__} of {len(got)} tensors where one {_shape(right)} is right: torch.cat joins them"
    if not is_tensor(got):
        return f"{_short(got)} where a tensor {_shape(right)} is right"
    if got.shape != right.shape:
        return f"a tensor {_shape(got)} where one {_shape(right)} is right"
    if got.dtype != right.dtype:
        return f"a {_dtype(got)} tensor where {_dtype(right)} is right"
    wrong = ~close(got, right, tolerance)
    if not bool(wrong.any()):
        return None
    index = wrong.nonzero()[0].tolist()
    here = tuple(index)
    where = f"[{', '.join(map(str, index))}]" if index else ""
    count = int(wrong.sum())
    more = f", and {count - 1} more of {right.numel()} differ" if count > 1 else ""
    return (
        f"{_number(got[here])} at {where or 'its only element'} where {_number(right[here])} is right{more} (tolerance"
        f" {tolerance:g})"
    )


def close(got: torch.Tensor, right: torch.Tensor, tolerance: float) -> torch.Tensor:
    """Element by element, equal up to tolerance x the largest right value; a bool tensor of their shape."""
    got, right = got.detach().cpu(), right.detach().cpu()
    if not right.is_floating_point():
        return got == right
    scale = float(right.abs().max()) if right.numel() else 0.0
    return (got.double() - right.double()).abs() <= tolerance * max(scale, 1e-12)


def same(got: Any, right: Any, tolerance: float = 1e-5) -> bool:
    """Whether two results agree."""
    return difference(got, right, tolerance) is None


def all_same(results: Sequence[Any], expected: Sequence[Any]) -> bool:
    """Whether every rank's result agrees with its right one."""
    return all(same(got, right) for got, right in zip(results, expected, strict=True))


def on_each_result(look: Callable[[Run, int, Any, Any], str | None]) -> Diagnosis:
    """A diagnosis that looks at one wrong result after the other: look(run, rank, got, right)."""

    def diagnosis(run: Run, expected: Sequence[Any]) -> str | None:
        for rank, (got, right) in enumerate(zip(run.results, expected, strict=True)):
            if not same(got, right) and (said := look(run, rank, got, right)):
                return said
        return None

    return diagnosis


def is_tensor(value: Any) -> bool:
    """Whether a value is a torch tensor, without importing torch for one that is not."""
    return type(value).__module__.partition(".")[0] == "torch" and hasattr(value, "numel")


def _short(value: Any) -> str:
    if is_tensor(value):
        return f"a tensor {_shape(value)}"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _shape(tensor: torch.Tensor) -> str:
    return f"of shape {tuple(tensor.shape)}"


def _dtype(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _number(element: torch.Tensor) -> str:
    return f"{element.item():.6g}"
