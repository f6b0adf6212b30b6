"""The form commits what stands in its fields, and says what is missing."""

from __future__ import annotations

from kit.panels.predict import predict


def test_fields_are_committed_by_the_button():
    guess = predict("traffic", "How many MB?", rank_0="MB", last="MB")
    guess.form()
    guess._fields["rank_0"].value = "6"
    guess.press()
    assert not guess.committed
    assert "last should be a number" in guess._notice.value
    guess._fields["last"].value = "2"
    guess.press()
    assert guess.numbers == {"rank_0": 6.0, "last": 2.0}
    assert guess._button.disabled


def test_a_choice_is_committed_by_the_button():
    guess = predict("wait", "What happens?", choices=["it waits", "it returns"])
    guess.press()
    assert "choose one of" in guess._notice.value
    guess._radio.value = "it waits"
    guess.press()
    assert guess.choice == "it waits"


def test_a_guess_from_code_stands_in_the_form():
    guess = predict("traffic", "How many MB?", rank_0="MB")
    guess.commit(rank_0=4)
    guess.form()
    assert guess._fields["rank_0"].value == "4"
    assert guess._fields["rank_0"].disabled


def test_it_shows_the_form_and_says_the_question_without_a_browser():
    bundle = predict("wait", "What happens?", choices=["it waits", "it returns"])._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in bundle
    assert bundle["text/plain"] == "What happens?\nit waits | it returns"


def test_where_no_kernel_answers_the_question_stands_as_text():
    text = predict("wait", "What <b>happens</b>?", choices=["it waits", "it returns"]).text_html()
    assert "What &lt;b&gt;happens&lt;/b&gt;?" in text and "<li>it returns</li>" in text
    assert "<li>rank 0: ? MB</li>" in predict("traffic", "How many?", rank_0="MB").text_html()
