"""Small words that sentences of a check share."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from html import escape
from typing import TYPE_CHECKING

from kit.trace.text import counted as counted

if TYPE_CHECKING:
    from kit.grade.exercise import Run
    from kit.trace.facts import Operation

_UNSEEN = frozenset({"Cc", "Cf", "Zl", "Zp"})  # categories of Unicode
_OF_A_TERMINAL = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_])?")


def shown(text: str) -> str:
    """Somebody else's text as a page of ours can hold it, lines and all: no escape of a terminal, no other control
    character, nothing that turns the direction of writing, no half of a character.
    """
    whole = _OF_A_TERMINAL.sub("", text).encode("utf-8", "backslashreplace").decode("utf-8")
    kept = (one if one == "\n" or unicodedata.category(one) not in _UNSEEN else " " for one in whole)
    return "".join(kept)


def on_one_line(text: str) -> str:
    """The same without its line ends: a row of a table stays one."""
    return " ".join(shown(text).split())


def joined(items: Iterable[object]) -> str:
    """'2', '2 and 3', '2, 3 and 4'."""
    texts = [str(item) for item in items]
    return " and ".join([", ".join(texts[:-1]), texts[-1]] if len(texts) > 1 else texts)


def html_of(text: str) -> str:
    """A sentence as HTML: what stands between `backticks` is code."""
    parts = enumerate(text.split("`"))
    return "".join(f"<code>{escape(part)}</code>" if number % 2 else escape(part) for number, part in parts)


def size(nbytes: int) -> str:
    """'96 bytes', '12.0 kB', '1.5 MB' (k = 1000, as network people count)."""
    if nbytes < 1000:
        return counted(nbytes, "byte")
    return f"{nbytes / 1e3:.1f} kB" if nbytes < 1e6 else f"{nbytes / 1e6:.1f} MB"


def line(operation: Operation, run: Run) -> str:
    """'line 9', with the helper it stands in, or the file's name where that is not the learner's own."""
    place = operation.place
    if place is None:
        return "a line without source"
    if place.file == run.file:
        return f"line {place.line}" + (f" in {place.function}" if place.function != run.trace.meta.function else "")
    source = run.trace.source(place.file)
    return f"line {place.line} of {source.label if source else place.file}"
