"""Settings as a file has them, made fit for a dataclass: names that there are, and values of their kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from difflib import get_close_matches
from typing import Any, Literal, get_args, get_origin, get_type_hints

_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text in quotes"}


def settings(kind: type, found: Mapping[str, Any], where: str, also: Sequence[str] = ()) -> dict[str, Any]:
    """What was found, by the names of a dataclass's fields; a list becomes the tuple that a field wants.

    where: it was found, for sentences. also: names that are known beside the fields, whatever their values. Raises
    ValueError for a name that there is not, with the nearest that there is, and for a value of another kind.
    """
    hints = get_type_hints(kind)
    known = [*also, *(each.name for each in fields(kind))]
    fit = {}
    for name, value in found.items():
        if name not in known:
            near = get_close_matches(name, known, n=1)
            meant = f"did you mean {near[0]!r}? It" if near else "it"
            raise ValueError(f"{where} says {name!r}: {meant} may say {', '.join(known)}")
        if name not in also and not _fits(value, hints[name]):
            raise ValueError(f"{where}: {name} is {_words(hints[name])}, not {value!r}")
        fit[name] = tuple(value) if name in hints and get_origin(hints[name]) is tuple else value
    return fit


def _fits(value: Any, wanted: Any) -> bool:
    choices = get_args(wanted)
    match get_origin(wanted):
        case None if wanted in (int, float):
            return isinstance(value, int | wanted) and not isinstance(value, bool)
        case None:
            return isinstance(value, wanted)
        case kind if kind is Literal:
            return value in choices
        case kind if kind is tuple:
            pairs = isinstance(value, list | tuple) and len(value) == len(choices)
            return pairs and all(map(_fits, value, choices))
        case kind if isinstance(kind, type) and issubclass(kind, Mapping):
            return isinstance(value, Mapping)
    return any(_fits(value, choice) for choice in choices)  # one or another


def _words(wanted: Any) -> str:
    choices = get_args(wanted)
    match get_origin(wanted):
        case None:
            return _WORDS.get(wanted, "a table")
        case kind if kind is Literal:
            return " or ".join(map(repr, choices))
        case kind if kind is tuple:
            return f"a list of {len(choices)} numbers"
        case kind if isinstance(kind, type) and issubclass(kind, Mapping):
            return "a table"
    return " or ".join(_words(choice) for choice in choices if choice is not type(None))
