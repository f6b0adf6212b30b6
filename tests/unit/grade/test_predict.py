"""A committed guess beside the truth: right, wrong with its reason, or not made."""

from __future__ import annotations

import pytest

from kit.grade import discovery
from kit.grade.predict import Prediction
from kit.grade.question import Answer


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


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> dict[str, Answer]:
    """What the questions of a lab are answered with, instead of those of the shipped labs."""
    of_a_lab: dict[str, Answer] = {}
    monkeypatch.setattr(discovery, "answers", lambda: of_a_lab)
    return of_a_lab


def test_a_lab_has_the_right_choice_and_the_reasons_outside_of_its_cells(answers):
    answers["wait"] = Answer("it waits", {"it returns": "A sum needs all."}, then="Such a rank is called late.")
    guess = first_wait()
    assert str(guess.reveal()) == "No guess yet. Commit one above, then run this cell again."
    guess.commit("it returns")
    assert guess.reveal().sentences == (
        "You said: it returns. It was: it waits. A sum needs all.",
        "Such a rank is called late.",
    )
    guess.commit("it waits")
    assert guess.reveal().sentences == ("Right: it waits.", "Such a rank is called late.")


def test_reasons_are_told_by_facts_of_the_run(answers):
    answers["traffic"] = Answer(why=lambda mb: {("rank_0", 3 * mb): "Sends count too.", "last": f"{mb} MB come back."})
    guess = traffic()
    guess.commit(rank_0=3, last=1)
    reveal = guess.reveal(rank_0=6.0, last=2.0, mb=1)
    assert [sentence.split(". ")[-1] for sentence in reveal.sentences] == ["Sends count too.", "1 MB come back."]


def test_one_reason_may_do_for_every_wrong_guess(answers):
    answers["wait"] = Answer(why=lambda ms: f"It took {ms} ms.")
    guess = first_wait()
    guess.commit("it returns")
    assert "It took 3 ms." in str(guess.reveal("it waits", ms=3))


@pytest.mark.parametrize("facts", [{}, {"gb": 1}, {"mb": 1, "gb": 1}])
def test_a_fact_that_is_missing_or_unknown_is_told_before_anybody_guesses(answers, facts):
    answers["traffic"] = Answer(why=lambda mb: f"{mb} MB")
    with pytest.raises(ValueError, match="the reasons are told by mb, not by"):
        traffic().reveal(rank_0=6.0, last=2.0, **facts)


def test_a_reason_for_what_nobody_can_guess_is_refused():
    with pytest.raises(ValueError, match="has reasons for it explodes, which nobody can guess"):
        first_wait().reveal("it waits", why={"it explodes": "never said"})
