"""A committed guess beside the truth: right, wrong with its reason, or not made."""

from __future__ import annotations

import pytest

from kit.grade.predict import Prediction


def traffic() -> Prediction:
    return Prediction("traffic", "How many MB?", units={"rank_0": "MB", "last": "MB"})


def first_wait() -> Prediction:
    return Prediction("wait", "What happens?", choices=["it waits", "it returns"])


def test_without_a_guess_the_answer_stays_hidden():
    reveal = traffic().reveal(rank_0=6.0, last=2.0)
    assert reveal.right is None
    assert "6" not in str(reveal)


def test_right_numbers_within_five_percent():
    guess = traffic()
    guess.commit(rank_0=6.2, last=2)
    reveal = guess.reveal(rank_0=6.0, last=2.0, why={("rank_0", 6.2): "never said"})
    assert reveal.right is True
    assert str(reveal) == "rank 0: right, 6 MB.\nlast: right, 2 MB."


def test_a_usual_wrong_number_gets_its_reason():
    guess = traffic()
    guess.commit(rank_0=3, last=1)
    reveal = guess.reveal(
        rank_0=6.0, last=2.0, why={("rank_0", 3.0): "Sends count too.", "last": "The sum comes back."}
    )
    assert reveal.right is False
    assert reveal.sentences[0] == "rank 0: you said 3 MB, it was 6 MB. Sends count too."
    assert reveal.sentences[1] == "last: you said 1 MB, it was 2 MB. The sum comes back."


def test_an_unusual_wrong_number_gets_the_truth_alone():
    guess = traffic()
    guess.commit(rank_0=17, last=2)
    assert (
        guess.reveal(rank_0=6.0, last=2.0, why={("rank_0", 3.0): "Sends count too."})
        .sentences[0]
        .endswith("it was 6 MB.")
    )


def test_choices():
    guess = first_wait()
    guess.commit("it returns")
    reveal = guess.reveal("it waits", why={"it returns": "A sum needs all."})
    assert str(reveal) == "You said: it returns. It was: it waits. A sum needs all."
    guess.commit("it waits")
    assert guess.reveal("it waits").right is True


def test_text_of_a_field_becomes_a_number():
    guess = traffic()
    guess.commit(rank_0=" 2,5 ", last="2")
    assert guess.numbers == {"rank_0": 2.5, "last": 2.0}


@pytest.mark.parametrize(
    "numbers",
    [{"rank_0": 1}, {"rank_0": "much", "last": 1}, {"rank_0": "", "last": 1}, {"rank_0": "nan", "last": 1}, {"x": 1}],
)
def test_what_is_no_guess_is_refused(numbers):
    guess = traffic()
    with pytest.raises(ValueError, match="number"):
        guess.commit(**numbers)
    assert not guess.committed


def test_a_choice_there_is_not_is_refused():
    with pytest.raises(ValueError, match="it waits; it returns"):
        first_wait().commit("it explodes")
    with pytest.raises(ValueError, match="not one of the choices"):
        first_wait().reveal("it explodes")


@pytest.mark.parametrize("asked", [{}, {"choices": ["a", "b"], "units": {"x": ""}}, {"choices": ["a", "a"]}])
def test_a_question_needs_one_kind_of_answer(asked):
    with pytest.raises(ValueError, match="prediction 'q'"):
        Prediction("q", "?", **asked)


def test_text_is_escaped_on_the_card():
    guess = Prediction("q", "?", choices=["<b>", "c"])
    guess.commit("<b>")
    assert "<b>" not in guess.reveal("c")._repr_html_()
