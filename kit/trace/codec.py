"""Facts as tables of rows, and back: the part of a trace file that knows the data classes.

Every data class becomes a table; equal facts share one row, so a tensor that does not change for a hundred stops is
written once. Fields are stored under their names and checked against their annotations when read: a file can say
nothing but strings, numbers and arrays, and nothing in it is ever executed.
"""

from __future__ import annotations

import types
from dataclasses import MISSING, dataclass, fields, is_dataclass
from operator import index
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np

from kit.trace import facts

CLASSES: dict[str, type] = {
    name: value for name, value in vars(facts).items() if isinstance(value, type) and is_dataclass(value)
}
ARRAY_KINDS = "biufc"  # booleans, integers, floats, complex numbers: nothing that could hold an object
Kind = Literal["fact", "pair", "list", "array", "float", "word", "plain"]


class Broken(ValueError):
    """A file does not hold what it should."""


@dataclass(frozen=True, slots=True)
class Hint:
    """An annotation, read once: what may stand in a field."""

    kind: Kind  # 'pair': a tuple of fixed length; 'list': one of any length; 'word': one of a few strings
    optional: bool
    type: Any  # of a fact or a plain value; the words
    inner: tuple[Hint, ...] = ()


def _hint(annotation: Any) -> Hint:
    optional = get_origin(annotation) in (types.UnionType, Union)
    if optional:
        annotation = next(part for part in get_args(annotation) if part is not type(None))
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is tuple:
        kind: Kind = "list" if inner[-1] is ... else "pair"
        return Hint(kind, optional, tuple, tuple(_hint(part) for part in inner if part is not ...))
    if origin is Literal:
        return Hint("word", optional, inner)
    kinds: dict[Any, Kind] = {np.ndarray: "array", float: "float"}
    return Hint(kinds.get(annotation, "fact" if is_dataclass(annotation) else "plain"), optional, annotation)


FIELDS: dict[str, dict[str, Hint]] = {
    name: {f.name: _hint(get_type_hints(cls, vars(facts))[f.name]) for f in fields(cls)}
    for name, cls in CLASSES.items()
}
REQUIRED: dict[str, set[str]] = {
    name: {f.name for f in fields(cls) if f.default is MISSING and f.default_factory is MISSING}
    for name, cls in CLASSES.items()
}


class Encoder:
    """Collects tables while it turns a fact into the number of its row."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[tuple[Any, ...], int]] = {}
        self.arrays: dict[tuple[str, tuple[int, ...], bytes], int] = {}
        self._known: dict[int, tuple[Any, int]] = {}  # id -> (the object, kept alive, its row)

    def row(self, fact: Any) -> int:
        if id(fact) in self._known:
            return self._known[id(fact)][1]
        name = type(fact).__name__
        row = tuple([self._value(getattr(fact, field), hint) for field, hint in FIELDS[name].items()])
        table = self.rows.setdefault(name, {})
        number = table.setdefault(row, len(table))
        self._known[id(fact)] = (fact, number)
        return number

    def tables(self) -> dict[str, Any]:
        return {name: {"fields": list(FIELDS[name]), "rows": list(rows)} for name, rows in sorted(self.rows.items())}

    def _value(self, value: Any, hint: Hint) -> Any:
        if value is None or hint.kind == "word":
            return value
        if hint.kind == "plain":
            return index(value) if hint.type is int else value
        if hint.kind == "fact":
            return self.row(value)
        if hint.kind == "list":
            (inner,) = hint.inner
            return tuple([self._value(item, inner) for item in value])
        if hint.kind == "pair":
            return tuple([self._value(item, inner) for item, inner in zip(value, hint.inner, strict=True)])
        if hint.kind == "float":
            return repr(float(value))  # text keeps nan, infinities and -0.0 apart, and every digit
        return self._array(value)

    def _array(self, array: np.ndarray) -> int:
        if array.dtype.kind not in ARRAY_KINDS:
            raise ValueError(f"a trace cannot hold an array of dtype {array.dtype}: convert it to numbers first")
        key = (array.dtype.str, array.shape, array.tobytes())
        return self.arrays.setdefault(key, len(self.arrays))


class Decoder:
    """Turns rows into facts, each row once, so that what was shared is shared again."""

    def __init__(self, tables: Any, arrays: list[np.ndarray]) -> None:
        if not isinstance(tables, dict):
            raise Broken("its tables are missing")
        self.tables, self.arrays = tables, arrays
        self._known: dict[tuple[str, int], Any] = {}
        self._hints: dict[str, list[tuple[str, Hint]]] = {}

    def fact(self, cls: type, number: Any) -> Any:
        if type(number) is not int:
            raise Broken(f"a row of {cls.__name__} is named by {str(number)[:40]!r}")
        key = (cls.__name__, number)
        if key not in self._known:
            self._known[key] = self._build(cls, number)
        return self._known[key]

    def _build(self, cls: type, number: int) -> Any:
        hints = self._columns(cls.__name__)
        rows = self.tables[cls.__name__]["rows"]
        if not 0 <= number < len(rows) or not isinstance(rows[number], list) or len(rows[number]) != len(hints):
            raise Broken(f"row {number} of {cls.__name__} is missing")
        values = zip(hints, rows[number], strict=True)
        return cls(**{name: self._value(value, hint) for (name, hint), value in values})

    def _columns(self, name: str) -> list[tuple[str, Hint]]:
        """The fields that a table of this file has; older files may lack some that have defaults."""
        if name not in self._hints:
            table = self.tables.get(name)
            if not isinstance(table, dict) or not isinstance(table.get("rows"), list):
                raise Broken(f"it has no table of {name}")
            names = table.get("fields")
            if not isinstance(names, list) or not all(isinstance(field, str) for field in names):
                raise Broken(f"the table of {name} does not name its fields")
            if not REQUIRED[name] <= set(names) <= set(FIELDS[name]) or len(set(names)) != len(names):
                raise Broken(f"the fields of {name} are not those of this version")
            self._hints[name] = [(field, FIELDS[name][field]) for field in names]
        return self._hints[name]

    def _value(self, value: Any, hint: Hint) -> Any:
        if value is None:
            if not hint.optional:
                raise Broken("something is missing from a row")
            return None
        if hint.kind == "plain" and type(value) is hint.type:
            return value
        if hint.kind == "fact":
            return self.fact(hint.type, value)
        if hint.kind == "list" and isinstance(value, list):
            (inner,) = hint.inner
            return tuple([self._value(item, inner) for item in value])
        if hint.kind == "pair" and isinstance(value, list) and len(value) == len(hint.inner):
            return tuple([self._value(item, inner) for item, inner in zip(value, hint.inner, strict=True)])
        if hint.kind == "float" and isinstance(value, str):
            return float(value)
        if hint.kind == "array" and type(value) is int and 0 <= value < len(self.arrays):
            return self.arrays[value]
        if hint.kind == "word" and isinstance(value, str) and value in hint.type:
            return value
        raise Broken(f"{str(value)[:40]!r} stands where it does not belong")
