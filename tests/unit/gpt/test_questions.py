"""Questions with endings: losses by hand, what is masked, how a score is shared out, and the format of the file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from kit.gpt.data import Characters
from kit.gpt.model import GPT, GPTConfig
from kit.gpt.questions import Question, Score, ask, ending_losses, read_questions

CHARACTERS = Characters(" abcdefghijklmnopqrstuvwxyz")

# As in HellaSwag's own files, whose other fields are not asked for; the texts are of our own making.
LINES = [
    {"ind": 1, "ctx_a": "x", "ctx": "the bell rings", "endings": ["and we go in", "blue", "of of", "q"], "label": 0},
    {"ind": 2, "split": "val", "ctx": "rain fell all day", "endings": ["a", "so the road is wet"], "label": 1},
    {"ind": 3, "ctx": "she took the key", "endings": ["zzz", "and opened the door", "no"], "label": "1"},
]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "questions.jsonl"
    path.write_text("\n".join(map(json.dumps, LINES)) + "\n")
    return path


class Favours:
    """A model to which one character has a loss of `low` wherever it stands, and any other one about `high`."""

    def __init__(self, character: str, low: float, high: float) -> None:
        chances = torch.full((CHARACTERS.size,), -high)
        chances[CHARACTERS.vocabulary.index(character)] = -low
        self.logits = chances

    def __call__(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.logits.expand(*tokens.shape, CHARACTERS.size)


def test_the_file_is_read_as_it_is_published(file: Path) -> None:
    questions = read_questions(file)
    assert questions[0] == Question("the bell rings", ("and we go in", "blue", "of of", "q"), 0)
    assert [len(question.endings) for question in questions] == [4, 2, 3] and questions[2].label == 1


def test_a_loss_is_that_of_the_ending_alone() -> None:
    """Ending by ending with the model itself, one sequence at a time and without a mask."""
    torch.manual_seed(0)
    model = GPT(GPTConfig(2, 2, 16, 32, CHARACTERS.size)).eval()
    question = Question("the bell rings", ("and we go in", "blue", "q"), 0)
    total, mean = ending_losses(lambda tokens: model(tokens)[0], CHARACTERS.encode, question, 32)
    for number, ending in enumerate(question.endings):
        whole = CHARACTERS.encode(f"{question.context} {ending}")
        chances = model(whole[None, :-1])[0][0].log_softmax(-1)  # (T, V)
        places = range(len(question.context) - 1, len(whole) - 1)
        by_hand = -sum(chances[t, whole[t + 1]] for t in places)
        torch.testing.assert_close(total[number], by_hand)
        torch.testing.assert_close(mean[number], by_hand / (len(ending) + 1))


def test_normalised_and_raw_answers_may_differ() -> None:
    """Of 'a' and 'aaa' the first is cheaper as a whole, the second by character, since each begins with a blank."""
    questions = [Question("b", ("a", "aaa"), 0), Question("b", ("a", "aaa"), 1), Question("b", ("aaa", "zzz"), 0)]
    assert ask(Favours("a", 1.0, 5.0), CHARACTERS.encode, questions, 8) == Score(asked=3, raw=2, normalised=2)
    assert ask(Favours("a", 1.0, 5.0), CHARACTERS.encode, questions[1:], 8) == Score(asked=2, raw=1, normalised=2)
    assert str(Score(3, 1, 2)) == "2 of 3 right = 66.67% (raw 1)"


def test_a_long_context_begins_later_and_a_long_ending_is_refused() -> None:
    torch.manual_seed(0)
    model = GPT(GPTConfig(1, 2, 16, 8, CHARACTERS.size)).eval()

    def losses(context: str, ending: str) -> torch.Tensor:
        question = Question(context, (ending,), 0)
        return ending_losses(lambda tokens: model(tokens)[0], CHARACTERS.encode, question, 8)[0]

    assert torch.equal(losses("some words before the", "bell"), losses(" the", "bell"))
    assert not torch.equal(losses("the", "bell"), losses(" the", "bell"))
    with pytest.raises(ValueError, match="an ending of 9 tokens after a context has no place in a block of 8"):
        losses("z", "eeeeeeee")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"ctx": "a", "endings": ["b"]}', "line 1 is no question"),
        ('{"ctx": "a", "endings": ["b"], "label": 0}\nno json', "line 2 is no question"),
        ('{"ctx": "a", "endings": ["b"], "label": 1}', "number 1 of 1"),
        ("\n", "has no questions"),
    ],
)
def test_what_is_no_question_is_said(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "wrong.jsonl").write_text(text)
    with pytest.raises(ValueError, match=message):
        read_questions(tmp_path / "wrong.jsonl")
    with pytest.raises(ValueError, match="name a file of HellaSwag's"):
        read_questions(tmp_path / "nowhere")


def test_a_rank_without_a_question_of_its_own_calls_the_model_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others may wait for it; its answer does not count."""
    monkeypatch.setattr("torch.distributed.all_reduce", lambda *_, **__: None)
    called = []

    def logits_of(tokens: torch.Tensor) -> torch.Tensor:
        called.append(tokens.shape)
        return Favours("a", 1.0, 5.0)(tokens)

    only = [Question("b", ("a",), 0)]
    scores = [ask(logits_of, CHARACTERS.encode, only, 8, part=part, parts=2) for part in range(2)]
    assert scores == [Score(1, 1, 1), Score(0, 0, 0)] and len(called) == 2
