"""From a text to batches: a token for each character, a part kept for validation, windows of the rest.

Letters: B batch, T sequence (one window), N ranks. Tokens lie on the CPU in one flat row: a tensor, a numpy array, or
the files of `kit.gpt.shards`. Batches are drawn from the arguments alone, so they can be drawn again.
"""

from __future__ import annotations

import os
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

Batch = tuple[torch.Tensor, torch.Tensor]  # tokens (B, T) and their targets (B, T): the tokens one place on


class Tokens(Protocol):
    """Whole numbers in a row that slices can be taken of."""

    def __len__(self) -> int: ...
    def __getitem__(self, places: slice, /) -> Any: ...


SHAKESPEARE = "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt"
CHARACTERS, DISTINCT = 1_115_394, 65  # of Shakespeare
SHA256 = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"  # to know that it arrived whole
CHUNK = 1 << 16  # bytes that are asked for at a time
SECONDS = 20  # until a download is given up
_OFFLINE = "corpus('python') needs no network, corpus('a/file.txt') reads a file of yours"


def corpus(name: str | Path = "python", folder: Path | None = None) -> str:
    """A text to train on, as one string.

    'python': the language reference in `pydoc_data.topics`, about 0.46 million characters; which ones exactly depends
    on the version of Python. 'shakespeare': 1,115,394 characters, 65 distinct, downloaded once and kept in `folder`
    (None: this user's cache). Anything else is the path of a UTF-8 text file.

    Only 'shakespeare' uses a network, and only the first time: fetch it before ranks read it. Raises ConnectionError
    where it cannot be downloaded; ValueError for a file that is not there, is empty or is not text, and for a
    Shakespeare that is not whole.
    """
    if name == "python":
        return _language_reference()
    if name == "shakespeare":
        return _shakespeare(_cache() if folder is None else Path(folder))
    return _read(Path(name))


def _language_reference() -> str:
    from pydoc_data.topics import topics

    return "\n\n".join(topics[topic] for topic in sorted(topics))


def _shakespeare(folder: Path) -> str:
    kept = folder / "shakespeare.txt"
    if not kept.exists():
        _keep(_checked(_download(SHAKESPEARE), SHAKESPEARE), kept)
    return _checked(_read(kept), str(kept))


def _download(address: str) -> str:
    try:
        with urllib.request.urlopen(address, timeout=SECONDS) as answer:
            found = b"".join(_chunks(answer, int(answer.headers["Content-Length"] or 0)))
    except OSError as error:  # no network, no such name, a time-out, an answer that is not a page
        raise ConnectionError(f"Shakespeare could not be downloaded ({error}): {_OFFLINE}") from error
    return found.decode("utf-8", errors="replace")  # `_checked` tells whether it is the text


def _chunks(answer: Any, size: int) -> Iterator[bytes]:
    """What comes, while a bar shows how much of it has; size 0: nobody knows of how much."""
    come = 0
    while chunk := answer.read(CHUNK):
        yield chunk
        come += len(chunk)
        bar = f"[{'#' * (20 * come // size):20}] {come / size:4.0%}" if size else f"{come:,} bytes"
        print(f"\rDownloading Shakespeare {bar}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)


def _checked(text: str, source: str) -> str:
    if sha256(text.encode()).hexdigest() != SHA256:
        raise ValueError(
            f"{source} has {len(text):,} characters, {len(set(text))} distinct, where Shakespeare has"
            f" {CHARACTERS:,} and {DISTINCT}, and the SHA-256 {SHA256[:12]}...: delete it if it is a file, or else"
            f" {_OFFLINE}"
        )
    return text


def _keep(text: str, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # into place in one move: another process may look for it now, or this one may be stopped half-way
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_bytes(text.encode())
    beside.replace(path)


def _read(path: Path) -> str:
    if not path.is_file():
        raise ValueError(
            f"there is no file {str(path)!r}, and no text of that name: corpus takes 'python', 'shakespeare' or a path"
        )
    try:
        text = path.read_bytes().decode("utf-8")  # line ends stay as they are: they count
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path} is not UTF-8 text ({error.reason} at byte {error.start}): convert it first"
        ) from error
    if not text:
        raise ValueError(f"{path} is empty: there is nothing to train on")
    return text


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lockstep"


class Tokenizer(Protocol):
    """Text to tokens and back. vocabulary: what a checkpoint knows it by."""

    @property
    def vocabulary(self) -> str: ...
    @property
    def size(self) -> int: ...
    def encode(self, text: str, /) -> torch.Tensor: ...
    def decode(self, tokens: torch.Tensor | Sequence[int], /) -> str: ...


@dataclass(frozen=True)
class Characters:
    """A tokenizer that gives every character a number: token i is `vocabulary[i]`.

    Raises ValueError for an empty vocabulary or a character that is in it twice.
    """

    vocabulary: str

    def __post_init__(self) -> None:
        if not self.vocabulary or len(set(self.vocabulary)) != len(self.vocabulary):
            raise ValueError("a vocabulary is at least one character, and each once: Characters.of(text) finds them")

    @staticmethod
    def of(text: str) -> Characters:
        """The characters of a text, sorted: the same on every rank and every machine."""
        return Characters("".join(sorted(set(text))))

    @property
    def size(self) -> int:
        """V."""
        return len(self.vocabulary)

    def encode(self, text: str) -> torch.Tensor:
        """Tokens (len(text),) of int64. Raises ValueError for a character that is not in the vocabulary."""
        try:
            return torch.tensor([self._numbers[character] for character in text], dtype=torch.int64)
        except KeyError as error:
            raise ValueError(
                f"{error.args[0]!r} is not among the {self.size} characters of this vocabulary: build it from the"
                " whole text, before splitting"
            ) from None

    def decode(self, tokens: torch.Tensor | Sequence[int]) -> str:
        """The text of a row of tokens (T,). Raises ValueError for a number outside the vocabulary."""
        numbers = tokens.tolist() if isinstance(tokens, torch.Tensor) else tokens
        wrong = [number for number in numbers if not 0 <= number < self.size]
        if wrong:
            raise ValueError(f"{wrong[0]} is not a token: this vocabulary has 0 to {self.size - 1}")
        return "".join(self.vocabulary[number] for number in numbers)

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {character: number for number, character in enumerate(self.vocabulary)}


def split(tokens: torch.Tensor, train: float = 0.9) -> tuple[torch.Tensor, torch.Tensor]:
    """The first `train` of the tokens (rounded down) to train on, the rest to validate with: views, in this order.

    Of Shakespeare's characters 1,003,854 and 111,540. Raises ValueError where one of the two would be empty.
    """
    cut = int(train * len(tokens))
    if not 0 < cut < len(tokens):
        raise ValueError(f"a part of {train} leaves {cut} of {len(tokens)} tokens to train on: choose between 0 and 1")
    return tokens[:cut], tokens[cut:]


def batches(
    tokens: Tokens,
    batch: int,
    block: int,
    *,
    seed: int = 0,
    rank: int = 0,
    ranks: int = 1,
    device: torch.device | str = "cpu",
) -> Iterator[Batch]:
    """Batches without end for one of N ranks: (tokens, targets), each (B, T), with T = `block`, on `device`.

    The text is cut into windows of T tokens (where, changes from one pass to the next), and `seed` puts them in an
    order, the same on all ranks. Step by step, the next N B windows are dealt out, B for each rank in turn. So within
    a pass no two ranks see the same window, and N ranks with B see together what one rank with N B sees. What is left
    at the end of a pass and does not fill a step is passed over.

    Raises ValueError, when called, for a rank outside 0 to N-1 or a text too short for one step.
    """
    step = batch * ranks
    _check(rank=rank, ranks=ranks, batch=batch, block=block)
    fewest = (len(tokens) - block) // block  # windows of T tokens and a last target, wherever the first one starts
    if fewest < step:
        raise ValueError(
            f"{len(tokens)} tokens make {max(0, fewest)} windows of {block}, and {ranks} ranks with a batch of {batch}"
            f" take {step} in a step: use a longer text, a shorter block or a smaller batch"
        )

    def dealt_out() -> Iterator[Batch]:
        for epoch in count():
            draw = np.random.default_rng([seed, epoch])  # without the rank: all draw the same
            starts = draw.integers(block) + block * draw.permutation(fewest)  # (windows,)
            for first in range(0, fewest - step + 1, step):
                mine = starts[first + rank * batch : first + (rank + 1) * batch]  # (B,)
                yield windows(tokens, mine, block, device)

    return dealt_out()


def random_batches(
    tokens: Tokens, batch: int, block: int, *, seed: int = 0, rank: int = 0, device: torch.device | str = "cpu"
) -> Iterator[Batch]:
    """Batches without end of windows that start anywhere, drawn by (seed, rank): (tokens, targets), each (B, T).

    Ranks draw differently, but nothing keeps two of them, or two steps, from drawing overlapping windows. With one
    rank given to all, as when a seed is forgotten, all ranks train on the same windows. Raises ValueError, when
    called, for a text shorter than a window.
    """
    _check(rank=rank, ranks=rank + 1, batch=batch, block=block)
    places = len(tokens) - block  # of a first token that has T - 1 after it and a last target
    if places < 1:
        raise ValueError(f"{len(tokens)} tokens are too few for a window of {block} and its last target")
    draw = np.random.default_rng([seed, rank])
    return (windows(tokens, draw.integers(places, size=batch), block, device) for _ in count())


def windows(
    tokens: Tokens, starts: Sequence[int] | np.ndarray, block: int, device: torch.device | str = "cpu"
) -> Batch:
    """The windows that begin at `starts` (B,): tokens (B, T) and targets (B, T), int64, on `device`.

    Raises ValueError for a window that reaches out of the tokens, and for tokens that are not a row of whole numbers.
    """
    outside = [int(start) for start in starts if not 0 <= start < len(tokens) - block]
    if outside:
        raise ValueError(f"{len(tokens)} tokens hold no window of {block} from {outside[0]} on, and its last target")
    rows = [np.asarray(tokens[int(start) : int(start) + block + 1]) for start in starts]
    if any(row.ndim != 1 or row.dtype.kind not in "iu" for row in rows):
        raise ValueError("tokens are whole numbers in a row: `Characters.of(text).encode(text)` makes them of a text")
    pairs = torch.from_numpy(np.stack(rows).astype(np.int64)).to(device)  # (B, T + 1)
    return pairs[:, :-1], pairs[:, 1:]  # 2 x (B, T)


def check_rank(rank: int, ranks: int) -> None:
    """Raises ValueError for a rank outside 0 to N-1."""
    if not 0 <= rank < ranks:
        raise ValueError(f"rank {rank} is not one of {ranks} ranks: they go from 0 to {ranks - 1}")


def _check(*, rank: int, ranks: int, batch: int, block: int) -> None:
    check_rank(rank, ranks)
    if batch < 1 or block < 1:
        raise ValueError(f"a batch has at least one window, a window at least one token, not {batch} and {block}")
