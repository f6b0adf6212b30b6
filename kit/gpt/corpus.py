"""Text to train on: what every Python carries, Shakespeare where there is a network, or a file of your own."""

from __future__ import annotations

import os
import urllib.request
from pathlib import Path

SHAKESPEARE = "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt"
CHARACTERS, DISTINCT = 1_115_394, 65  # of Shakespeare, to know that it arrived whole
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
            found: bytes = answer.read()
    except OSError as error:  # no network, no such name, a time-out, an answer that is no page
        raise ConnectionError(f"Shakespeare could not be downloaded ({error}): {_OFFLINE}") from error
    return found.decode("utf-8", errors="replace")  # what is not the text, `_checked` tells


def _checked(text: str, source: str) -> str:
    if (len(text), len(set(text))) != (CHARACTERS, DISTINCT):
        raise ValueError(
            f"{source} has {len(text):,} characters, {len(set(text))} distinct, where Shakespeare has"
            f" {CHARACTERS:,} and {DISTINCT}: delete it if it is a file, or else {_OFFLINE}"
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
            f"{str(path)!r} is no file, and no text is named so: corpus takes 'python', 'shakespeare' or a path"
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
