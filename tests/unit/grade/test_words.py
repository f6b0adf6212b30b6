from __future__ import annotations

from kit.grade.hints import Hint, Solution
from kit.grade.predict import Prediction
from kit.grade.verdict import Verdict
from kit.grade.words import html_of


def test_backticks_become_code_and_the_rest_is_escaped() -> None:
    assert html_of("under `if a < b`, x < y") == "under <code>if a &lt; b</code>, x &lt; y"
    card = Verdict("ring", "failed", "values", "call it outside `if rank == 0`")._repr_html_()
    assert "<code>if rank == 0</code>" in card and "`" not in card


def test_without_html_a_hint_and_a_solution_read_as_text() -> None:
    assert repr(Hint("ring", 1, "Look left.")) == "hint 1 of 3: Look left."
    assert repr(Solution("ring", "def ring(x): ...", None)) == "def ring(x): ..."


def test_a_number_may_carry_its_unit() -> None:
    guess = Prediction("root", "how much?", units={"rank_0": "MB"})
    guess.commit(rank_0="3,5 MB")  # type: ignore[arg-type]  # what a form hands over is text
    assert guess.numbers == {"rank_0": 3.5}
