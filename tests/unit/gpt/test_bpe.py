"""GPT-2's tokenizer on a vocabulary of our own: which pairs merge, where words are cut, that every text comes back."""

from __future__ import annotations

import builtins
import json
from pathlib import Path
from typing import Any

import pytest

from kit.gpt.bpe import BytePairs, TikToken, _letters, _words

MERGES = ["Ġ t", "h e", "Ġt he", "i n", "Ġt h", "in g"]  # Ġ: a blank; 'Ġt he' was learnt before 'Ġt h'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tokens = [*_letters(), *(merge.replace(" ", "") for merge in MERGES)]
    (tmp_path / "vocab.json").write_text(json.dumps({token: number for number, token in enumerate(tokens)}))
    (tmp_path / "merges.txt").write_text("\n".join(["#version: 0.2", *MERGES]) + "\n")
    return tmp_path


def test_pairs_merge_in_the_order_they_were_learnt(folder: Path) -> None:
    pairs = BytePairs.read(folder)
    assert pairs.size == 256 + len(MERGES)

    def tokens(text: str) -> list[str]:
        return [pairs.decode(row) for row in pairs.encode(text).split(1)]

    assert tokens("in the thing") == ["in", " the", " th", "ing"]
    assert tokens("thehe") == ["t", "he", "he"]


@pytest.mark.parametrize("text", ["", "the thing", "naïve – 東京 🙂\n\n\ttabs", "in²the ½ 3rd_thing's"])
def test_every_text_comes_back(folder: Path, text: str) -> None:
    pairs = BytePairs.read(folder)
    assert pairs.decode(pairs.encode(text)) == text


def test_text_is_cut_as_gpt2_cuts_it() -> None:
    """Contractions, letters, numbers and the rest, each with one blank before; the last of several goes to a word."""
    found = _words().findall("We'll see  2 cats² a_b  \n x... 東京12")
    assert found == ["We", "'ll", " see", " ", " 2", " cats", "²", " a", "_", "b", "  \n", " x", "...", " 東京", "12"]


def test_a_vocabulary_that_is_not_there_is_said(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"is not here: name a folder with its vocab\.json and merges\.txt"):
        BytePairs.read(folder / "nowhere")
    (folder / "merges.txt").write_text("q z\n")
    with pytest.raises(ValueError, match="lacks 'qz'"):
        BytePairs.read(folder)
    found = builtins.__import__

    def without(name: str, *how: Any, **more: Any) -> Any:
        if name == "tiktoken":
            raise ImportError(name)
        return found(name, *how, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ValueError, match="or install tiktoken"):
        TikToken()
