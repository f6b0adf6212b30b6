"""Text of others as it can stand on a page: on its line, no longer than it may be, and nothing but text."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape

from kit.grade.words import html_of, on_one_line, shown
from kit.resources import LabName

NAME, SENTENCE = 80, 1200  # letters of a name and of a sentence that a page shows


def cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def plain(text: str, most: int = NAME) -> str:
    """Escaped, on one line."""
    return escape(cut(on_one_line(text[: 8 * most]), most))


def name(text: str) -> str:
    """A name, which is written in its own direction and turns that of nothing beside it."""
    return f"<bdi>{plain(text) or '(no name)'}</bdi>"


def names(texts: Iterable[str]) -> str:
    return ", ".join(map(name, texts))


def sentence(text: str) -> str:
    """A sentence of a check, with a capital letter and a stop; its lines stay lines."""
    said = cut(shown(text[: 8 * SENTENCE]).strip(), SENTENCE)
    said = said[:1].upper() + said[1:]
    return html_of(said if said.endswith((".", "!", "?", "…")) else f"{said}.") if said else ""


def share(part: int, whole: int) -> str:
    """'34 of 70 (49 %)'."""
    return f"{part} of {whole} ({part / whole:.0%})".replace("%", " %") if whole else "0 of 0"


def lasted(seconds: float) -> str:
    """'0.4 s', '48 s', '12 min'."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


def lab_called(lab: str) -> str:
    """'01a · data parallel' for '01a_data_parallel', escaped."""
    found = LabName.read(lab)
    return plain(f"{found.label} · {found.topic.replace('_', ' ')}" if found else lab)


def file_names(keys: Sequence[str]) -> dict[str, str]:
    """A name of a file for each key, of letters that every system takes; no two are the same for any of them."""
    slugs = {key: re.sub(r"[^A-Za-z0-9_-]+", "-", key[:60]).strip("-") for key in keys}
    often = Counter(slug.casefold() for slug in slugs.values())
    return {
        key: slug
        if slug == key and often[slug.casefold()] == 1
        else f"{slug or 'student'}-{hashlib.sha256(key.encode('utf-8', 'backslashreplace')).hexdigest()[:8]}"
        for key, slug in slugs.items()
    }
