"""What the text of a wrong answer tells."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
import torch.distributed as dist

from kit.grade.reading import race, remark

ranks = 4
TOLD = False


def uses_nothing(x: Any) -> Any:
    y: Any = dist.all_reduce(x)
    return y


def uses_the_sender(x: Any) -> Any:
    def inner() -> Any:
        return dist.recv(x, 0)

    return inner()


def counts_the_notebook(x: Any) -> Any:
    return [x / ranks for _ in range(2)]


def counts_in_a_closure(x: Any) -> Any:
    def inner() -> Any:
        return x / ranks

    return inner()


def sound(x: Any, group: Any = None) -> Any:
    calls: Counter[str] = Counter()
    work = dist.all_reduce(x, async_op=True)
    dist.all_reduce(x)
    work.wait()  # type: ignore[union-attr]
    calls["all_reduce"] += 2
    return torch.cat([x]) / dist.get_world_size(group) if not TOLD else x


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (
            uses_nothing,
            f"Line {uses_nothing.__code__.co_firstlineno + 1} uses what dist.all_reduce returns, which is None:",
        ),
        (uses_the_sender, "uses what dist.recv returns, which is the number of the rank that sent:"),
        (counts_the_notebook, "`ranks` is a variable of the notebook, 4 on every rank and in every world:"),
        (counts_in_a_closure, "`ranks` is a variable of the notebook"),
    ],
)
def test_a_slip_that_no_result_shows_is_named(function: Any, words: str) -> None:
    assert words in remark(function)


def test_of_sound_code_and_of_code_without_text_nothing_is_said() -> None:
    names: dict[str, Any] = {}
    exec("def untold(x):\n    return x", names)
    assert remark(sound) == remark(names["untold"]) == ""


def divides_under_way(x: Any) -> None:
    def hook(y: Any) -> None:
        work: Any = dist.all_reduce(y.grad, async_op=True)
        y.grad /= dist.get_world_size()
        work.wait()

    hook(x)


def divides_in_time(x: Any, others: Any) -> None:
    x /= 2
    work: Any = dist.all_reduce(x, async_op=True)
    for other in others:
        other /= 2
    work.wait()
    x /= 2
    dist.all_reduce(x, async_op=True).wait()  # type: ignore[union-attr]
    x += 1
    work = dist.all_reduce(x, async_op=True)
    x = others[0]
    x += 1
    work.wait()


def test_a_tensor_that_changes_under_way_is_named_with_both_lines() -> None:
    first = divides_under_way.__code__.co_firstlineno
    assert f"line {first + 3} changes y.grad while the all_reduce of line {first + 2} is under way" in race(
        divides_under_way
    )


def test_what_is_changed_before_or_afterwards_and_what_only_has_the_name_is_not_under_way() -> None:
    assert race(divides_in_time) == race(sound) == ""
