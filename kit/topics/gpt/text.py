"""What a training reads: a text as characters or byte pairs, or shards of tokens; a tenth is to validate with."""

from __future__ import annotations

import json
from pathlib import Path

from kit.gpt.bpe import BytePairs, TikToken
from kit.gpt.data import Characters, Tokenizer, Tokens, corpus, split
from kit.gpt.shards import Shards, open_shards, write_shards

_ABOUT = "tokens.json"


def tokenizer_of(tokens: str, text: str) -> Tokenizer:
    """tokens: 'characters' (those of the text), 'gpt2' (tiktoken's), or a folder with vocab.json and merges.txt.

    Raises ValueError for one that cannot be had.
    """
    if tokens == "characters":
        return Characters.of(text)
    return TikToken() if tokens == "gpt2" else BytePairs.read(tokens)


def read(text: str, tokens: str = "characters") -> tuple[Tokenizer | None, Tokens, Tokens]:
    """Who reads the tokens, those to train on, and those to validate with.

    Of a folder of shards nothing is read here but their sizes, and what `write` said they are. Raises ValueError for
    what cannot be read, or holds nothing to learn.
    """
    if Path(text).is_dir():
        shards = open_shards(text)
        cut = int(0.9 * len(shards))
        return _noted(Path(text)), Shards(shards.paths, 0, cut), Shards(shards.paths, cut)
    found = corpus(text)
    tokenizer = tokenizer_of(tokens, found)
    if tokenizer.size < 2:
        raise ValueError(f"{text} is one character over and over: there is nothing to learn, take another text")
    return tokenizer, *split(tokenizer.encode(found))


def write(text: str, folder: str | Path, tokens: str = "characters", size: int = 10_000_000) -> Shards:
    """A text's tokens as shards of `size`, with a note of what they are, so that they can be read again.

    Raises ValueError for a text or tokens that cannot be had, and for a folder that holds shards already.
    """
    found = corpus(text)
    tokenizer = tokenizer_of(tokens, found)
    shards = write_shards(tokenizer.encode(found), folder, size)
    note = {"tokens": tokens, "vocabulary": tokenizer.vocabulary}
    (Path(folder) / _ABOUT).write_text(json.dumps(note), encoding="utf-8")
    return shards


def _noted(folder: Path) -> Tokenizer | None:
    """None where shards were written by somebody else."""
    note = folder / _ABOUT
    if not note.is_file():
        return None
    said = json.loads(note.read_text(encoding="utf-8"))
    return Characters(said["vocabulary"]) if said["tokens"] == "characters" else tokenizer_of(said["tokens"], "")
