"""Trace files: one zip of `trace.json` (tables of facts) and `values.bin` (the numbers of all tensors, end to end).

Every data class becomes a table; equal facts share one row, so a tensor that does not change for a hundred stops is
written once. Fields are stored under their names and checked against their annotations when read. A file can say
nothing but strings, numbers and arrays, and nothing is unpickled: one from a stranger can be wrong but not harmful.
Opening one takes 16 MB and 600 times its size at most: `UNPACKED` limits what it unpacks to, and no count that a file
names is believed before so much is there. What Lockstep writes takes a tenth of that.
"""

from __future__ import annotations

import json
import os
import struct
import types
import zipfile
import zlib
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from math import prod
from operator import index
from pathlib import Path
from typing import Any, BinaryIO, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
import numpy.typing as npt

from kit.trace.facts import Record
from kit.trace.text import size_text

SCHEMA = "lockstep-trace"
VERSION = 4  # 2: passes, accounts of memory; 3: stretches that code has named; 4: GPUs' workspaces and errors of clocks
READS = (1, 2, 3, 4)
RENAMED = {"MemorySample": "Holding", "samples": "holdings"}  # what files go on calling by its first name
OLDEST = (1980, 1, 1, 0, 0, 0)  # the date of every member: equal traces make equal files
TABLES, VALUES = "trace.json", "values.bin"
UNPACKED = {TABLES: (1 << 16, 16), VALUES: (1 << 24, 20)}  # at most: so many bytes, and so many times the file's size
ARRAY_KINDS = "biufc"  # booleans, integers, floats, complex numbers: nothing that could hold an object
Kind = Literal["fact", "pair", "list", "array", "float", "word", "plain"]
Array = npt.NDArray[Any]
Fact = TypeVar("Fact")
Run = TypeVar("Run", bound=Record)


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
    if origin is np.ndarray:
        return Hint("array", optional, np.ndarray)
    kinds: dict[Any, Kind] = {float: "float"}
    return Hint(kinds.get(annotation, "fact" if is_dataclass(annotation) else "plain"), optional, annotation)


@dataclass(frozen=True, slots=True)
class Column:
    """A field of a data class, as a column of its table."""

    name: str  # in files
    field: str
    hint: Hint
    required: bool


@cache
def _columns(cls: Any) -> tuple[Column, ...]:
    hints = get_type_hints(cls)
    return tuple(
        Column(
            RENAMED.get(f.name, f.name),
            f.name,
            _hint(hints[f.name]),
            f.default is MISSING and f.default_factory is MISSING,
        )
        for f in fields(cls)
    )


def _table(cls: type) -> str:
    return RENAMED.get(cls.__name__, cls.__name__)


class Encoder:
    """Collects tables while it turns a fact into the number of its row."""

    def __init__(self) -> None:
        self.rows: dict[type, dict[tuple[Any, ...], int]] = {}
        self.arrays: dict[tuple[str, tuple[int, ...], bytes], int] = {}
        self._known: dict[int, tuple[Any, int]] = {}  # id -> (the object, kept alive, its row)

    def row(self, fact: Any) -> int:
        if id(fact) in self._known:
            return self._known[id(fact)][1]
        cls: type = type(fact)
        row = tuple([self._value(getattr(fact, column.field), column.hint) for column in _columns(cls)])
        table = self.rows.setdefault(cls, {})
        number = table.setdefault(row, len(table))
        self._known[id(fact)] = (fact, number)
        return number

    def tables(self) -> dict[str, Any]:
        return {
            _table(cls): {"fields": [column.name for column in _columns(cls)], "rows": list(rows)}
            for cls, rows in sorted(self.rows.items(), key=lambda item: _table(item[0]))
        }

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

    def _array(self, array: Array) -> int:
        if array.dtype.kind not in ARRAY_KINDS:
            raise ValueError(f"a trace cannot hold an array of dtype {array.dtype}: convert it to numbers first")
        key = (array.dtype.str, array.shape, array.tobytes())
        return self.arrays.setdefault(key, len(self.arrays))


class Decoder:
    """Turns rows into facts, each row once, so that what was shared is shared again."""

    def __init__(self, tables: Any, arrays: list[Array]) -> None:
        if not isinstance(tables, dict):
            raise Broken("its tables are missing")
        self.tables, self.arrays = tables, arrays
        self._known: dict[tuple[str, int], Any] = {}
        self._seen: dict[str, list[Column]] = {}

    def fact(self, cls: type[Fact], number: Any) -> Fact:
        if type(number) is not int:
            raise Broken(f"a row of {cls.__name__} is named by {str(number)[:40]!r}")
        key = (cls.__name__, number)
        if key not in self._known:
            self._known[key] = self._build(cls, number)
        found: Fact = self._known[key]
        return found

    def _build(self, cls: type[Fact], number: int) -> Fact:
        columns = self._columns_here(cls)
        rows = self.tables[_table(cls)]["rows"]
        if not 0 <= number < len(rows) or not isinstance(rows[number], list) or len(rows[number]) != len(columns):
            raise Broken(f"row {number} of {_table(cls)} is missing")
        values = zip(columns, rows[number], strict=True)
        return cls(**{column.field: self._value(value, column.hint) for column, value in values})

    def _columns_here(self, cls: type) -> list[Column]:
        """The columns that a table of this file has; older files may lack some that have defaults."""
        name = _table(cls)
        if name not in self._seen:
            table = self.tables.get(name)
            if not isinstance(table, dict) or not isinstance(table.get("rows"), list):
                raise Broken(f"it has no table of {name}")
            names = table.get("fields")
            if not isinstance(names, list) or not all(isinstance(field, str) for field in names):
                raise Broken(f"the table of {name} does not name its fields")
            columns = {column.name: column for column in _columns(cls)}
            required = {column.name for column in columns.values() if column.required}
            if not required <= set(names) <= set(columns) or len(set(names)) != len(names):
                raise Broken(f"the fields of {name} are not those of this version")
            self._seen[name] = [columns[field] for field in names]
        return self._seen[name]

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


def save(record: Record, path: str | Path) -> Path:
    """Write a trace to one file, whole or not at all; returns its path.

    What is equal is written once. `load` gives back exactly what was saved, shared facts shared again.
    Raises ValueError for an array that is not made of numbers, OSError where the file cannot be written.
    """
    path = Path(path)
    encoder = Encoder()
    root = encoder.row(record)
    table, parts, offset = [], [], 0
    for dtype, shape, data in encoder.arrays:
        table.append([dtype, list(shape), offset])
        parts.append(data)
        offset += len(data)
    content = {"schema": SCHEMA, "version": VERSION, "trace": root, "tables": encoder.tables(), "arrays": table}
    text = json.dumps(content, separators=(",", ":"))
    members = {TABLES: text.encode(), VALUES: b"".join(parts)}
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        for compression in (zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED):
            with zipfile.ZipFile(partial, "w") as archive:
                for name, data in members.items():
                    archive.writestr(zipfile.ZipInfo(name, OLDEST), data, compression)
            if all(len(data) <= _most(name, partial.stat().st_size) for name, data in members.items()):
                break  # else millions of equal values have shrunk to what `load` would take for a trap
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
    return path


def load(cls: type[Run], path: str | Path) -> Run:
    """Read a trace that `save` wrote. The arrays of its tensors are read-only.

    Raises ValueError, with what to do, for a file of another version or one that is damaged or no trace; OSError where
    it cannot be read.
    """
    path = Path(path)
    with path.open("rb") as file:
        try:
            return _read(cls, *_unpacked(file), path)
        except _OtherVersion:
            raise
        except (*_UNREADABLE, OSError) as reason:
            what = str(reason) if isinstance(reason, Broken) else f"it cannot be unpacked ({reason})"
            raise ValueError(
                f"{path} is not a trace that can be read: {what}. Use a file that was written by trace.save, whole; "
                "if this one was, record the run again."
            ) from reason


_UNREADABLE = (
    *(zipfile.BadZipFile, zlib.error, struct.error, EOFError),
    *(KeyError, ValueError, OverflowError, RuntimeError, MemoryError),
)


def _unpacked(file: BinaryIO) -> tuple[Any, bytes]:
    """The tables and the values of a file. Broken where they are larger than one that `save` wrote can hold."""
    size = os.fstat(file.fileno()).st_size
    with zipfile.ZipFile(file) as archive:
        return json.loads(_member(archive, TABLES, size)), _member(archive, VALUES, size)


def _member(archive: zipfile.ZipFile, name: str, size: int) -> bytes:
    most = _most(name, size)
    if archive.getinfo(name).compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise Broken(f"{name} is packed in a way that Lockstep does not use")
    with archive.open(name) as packed:
        data = packed.read(most + 1)  # what it says of its length need not be true
    if len(data) > most:
        raise Broken(f"{name} unpacks to more than {size_text(most)}, which is too much for a file of its size")
    return data


def _most(name: str, size: int) -> int:
    """Bytes that a member of a file of `size` bytes may unpack to."""
    base, times = UNPACKED[name]
    return base + times * size


class _OtherVersion(ValueError):
    pass


def _read(cls: type[Run], content: Any, values: bytes, path: Path) -> Run:
    if not isinstance(content, dict) or content.get("schema") != SCHEMA:
        raise Broken("it does not say that it is one")
    if content.get("version") not in READS:
        raise _OtherVersion(
            f"{path} is a trace of version {content.get('version')!r}; this Lockstep reads versions "
            f"{READS[0]} to {READS[-1]}. Upgrade lockstep-labs, or record the run again."
        )
    listed = content.get("arrays")
    if not isinstance(listed, list):
        raise Broken("its arrays are missing")
    arrays = [_array(entry, values) for entry in listed]
    trace = Decoder(content.get("tables"), arrays).fact(cls, content.get("trace"))
    _check_numbers(trace)
    return trace


def _array(entry: Any, values: bytes) -> Array:
    try:
        name, shape, offset = entry
        dtype = np.dtype(name) if isinstance(name, str) else None
        count = prod(shape)
    except (TypeError, ValueError) as reason:
        raise Broken(f"an array is described by {str(entry)[:60]!r}") from reason
    whole = all(type(n) is int and n >= 0 for n in (offset, *shape))
    if dtype is None or dtype.kind not in ARRAY_KINDS or not whole or offset + count * dtype.itemsize > len(values):
        raise Broken(f"an array is described by {str(entry)[:60]!r}")
    array = np.frombuffer(values, dtype, count, offset) if count else np.empty(0, dtype)
    array = array.reshape(shape)
    array.setflags(write=False)
    return array


def _check_numbers(record: Record) -> None:
    """Whatever reads a trace indexes by rank and by stop: a file must not make it stumble."""
    world = len(record.ranks)
    if record.meta.world != world or any(rank.rank != number for number, rank in enumerate(record.ranks)):
        raise Broken(f"its ranks are not those of a world of {record.meta.world}")
    for position in {id(position): position for position in record.positions}.values():
        if len(position.states) != world or any(state.rank != rank for rank, state in enumerate(position.states)):
            raise Broken("a position does not have every rank")
        if any(not -1 <= state.stop < len(record.ranks[state.rank].stops) for state in position.states):
            raise Broken("a position names a stop that is not there")
