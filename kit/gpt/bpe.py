"""GPT-2's tokens: pieces of text that were often beside each other, made of bytes, so that no text is without tokens.

R. Sennrich and others, Neural machine translation of rare words with subword units (2016), on bytes: Radford and others
(2019), section 2.2. The vocabulary is not here: it is read from a local folder as Hugging Face has it (vocab.json and
merges.txt), or by tiktoken, where that is installed and has it.
"""

from __future__ import annotations

import json
import re
import sys
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

Pair = tuple[str, str]
_ABSENT = "GPT-2's vocabulary is not here: name a folder with its vocab.json and merges.txt"


@dataclass(frozen=True)
class BytePairs:
    """A tokenizer by merges: bytes of a word become one token pair by pair, those merged first that were learnt first.

    numbers: token -> its number; ranks: pair -> when it was learnt. Tokens are written with a letter for each byte.
    """

    numbers: Mapping[str, int]
    ranks: Mapping[Pair, int]

    @staticmethod
    def read(folder: str | Path) -> BytePairs:
        """Of vocab.json and merges.txt in a folder. Raises ValueError where they are not there or make no sense."""
        try:
            numbers = json.loads((Path(folder) / "vocab.json").read_text(encoding="utf-8"))
            lines = (Path(folder) / "merges.txt").read_text(encoding="utf-8").splitlines()
        except (OSError, ValueError) as error:
            raise ValueError(f"{_ABSENT} ({error})") from error
        pairs = [tuple(line.split(" ")) for line in lines if line and not line.startswith("#version")]
        ranks = {(pair[0], pair[-1]): rank for rank, pair in enumerate(pairs)}
        missing = [letter for letter in _letters() if letter not in numbers]
        missing += ["".join(pair) for pair in ranks if "".join(pair) not in numbers]
        if missing:
            raise ValueError(
                f"the vocabulary in {folder} lacks {missing[0]!r}: vocab.json and merges.txt belong together"
            )
        return BytePairs(numbers, ranks)

    @property
    def size(self) -> int:
        """V."""
        return len(self.numbers)

    @property
    def vocabulary(self) -> str:
        """What a checkpoint calls it."""
        return f"{self.size} byte pairs"

    def encode(self, text: str) -> torch.Tensor:
        """Tokens (T,) of int64."""
        letters, known = _letters(), dict[str, list[int]]()
        found: list[int] = []
        for word in _words().findall(text):
            if word not in known:
                merged = self._merged([letters[byte] for byte in word.encode()])
                known[word] = [self.numbers[token] for token in merged]
            found += known[word]
        return torch.tensor(found, dtype=torch.int64)

    def decode(self, tokens: torch.Tensor | Sequence[int]) -> str:
        """The text of a row of tokens (T,); bytes that are no character yet become question marks."""
        tokens_of = {number: token for token, number in self.numbers.items()}
        byte_of = {letter: byte for byte, letter in enumerate(_letters())}
        numbers = tokens.tolist() if isinstance(tokens, torch.Tensor) else tokens
        content = bytes(byte_of[letter] for number in numbers for letter in tokens_of[number])
        return content.decode("utf-8", errors="replace")

    def _merged(self, parts: list[str]) -> list[str]:
        while len(parts) > 1:
            pairs = list(zip(parts, parts[1:], strict=False))
            first = min(pairs, key=lambda pair: self.ranks.get(pair, sys.maxsize))
            if first not in self.ranks:
                break
            joined: list[str] = []
            for part in parts:
                if joined and (joined[-1], part) == first:
                    joined[-1] += part
                else:
                    joined.append(part)
            parts = joined
        return parts


class TikToken:
    """The same vocabulary by tiktoken. Raises ValueError where it is not installed, or can reach no vocabulary."""

    vocabulary = "50257 byte pairs"

    def __init__(self) -> None:
        try:
            import tiktoken  # type: ignore[import-not-found]  # of those who have it
        except ImportError as error:
            raise ValueError(f"{_ABSENT}, or install tiktoken") from error
        try:
            self._encoding: Any = tiktoken.get_encoding("gpt2")
        except Exception as error:  # of requests, which tiktoken downloads with: no network, a proxy, a time-out
            raise ValueError(f"tiktoken has no vocabulary here ({error}), and found no network to get it by") from error
        self.size: int = self._encoding.n_vocab

    def encode(self, text: str) -> torch.Tensor:
        """Tokens (T,) of int64."""
        return torch.tensor(self._encoding.encode_ordinary(text), dtype=torch.int64)

    def decode(self, tokens: torch.Tensor | Sequence[int]) -> str:
        """The text of a row of tokens (T,)."""
        text: str = self._encoding.decode(list(map(int, tokens)))
        return text


@lru_cache(maxsize=1)
def _letters() -> list[str]:
    """A letter for each byte: its own where it has one that shows, else one from 256 on."""
    shows = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    others = iter(range(256, 512))
    return [chr(byte if byte in shows else next(others)) for byte in range(256)]


@lru_cache(maxsize=1)
def _words() -> re.Pattern[str]:
    """Words with the blank before them, as GPT-2 cuts text before it merges; `re` has no class for all numbers."""
    number = "".join(chr(c) for c in range(sys.maxunicode + 1) if unicodedata.category(chr(c)).startswith("N"))
    letter = rf"[^\W_{number}]"
    return re.compile(rf"'(?:s|t|re|ve|m|ll|d)| ?{letter}+| ?[{number}]+| ?(?:[^\s\w]|_)+|\s+(?!\S)|\s+")
