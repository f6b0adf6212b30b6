"""Small words that sentences of a check share."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import TYPE_CHECKING

from kit.trace.text import counted as counted

if TYPE_CHECKING:
    from kit.trace.facts import Operation
    from kit.trace.trace import Trace


def joined(items: Iterable[object]) -> str:
    """'2', '2 and 3', '2, 3 and 4'."""
    texts = [str(item) for item in items]
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"


def the_ranks(numbers: Iterable[int]) -> str:
    """'rank 2', 'ranks 2 and 3'."""
    numbers = list(numbers)
    return f"rank {numbers[0]}" if len(numbers) == 1 else f"ranks {joined(numbers)}"


def html_of(text: str) -> str:
    """A sentence as HTML: what stands between `backticks` is code."""
    parts = enumerate(text.split("`"))
    return "".join(f"<code>{escape(part)}</code>" if number % 2 else escape(part) for number, part in parts)


def size(nbytes: int) -> str:
    """'96 bytes', '12.0 kB', '1.5 MB' (k = 1000, as network people count)."""
    if nbytes < 1000:
        return counted(nbytes, "byte")
    return f"{nbytes / 1e3:.1f} kB" if nbytes < 1e6 else f"{nbytes / 1e6:.1f} MB"


def line(operation: Operation, trace: Trace, file: str) -> str:
    """'line 9', with the helper it stands in, or the file's name where that is not the learner's own."""
    place = operation.place
    if place is None:
        return "a line without source"
    if place.file == file:
        return (
            f"line {place.line}" if place.function == trace.meta.function else f"line {place.line} in {place.function}"
        )
    source = trace.source(place.file)
    return f"line {place.line} of {source.label if source else place.file}"
