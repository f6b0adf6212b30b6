"""Trace files: one zip of `trace.json` (tables of facts) and `values.bin` (the numbers of all tensors, end to end).

Nothing is unpickled, so a file from a stranger can be wrong but not harmful.
"""

from __future__ import annotations

import json
import os
import zipfile
import zlib
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from kit.trace.codec import ARRAY_KINDS, Broken, Decoder, Encoder
from kit.trace.facts import Trace

SCHEMA = "lockstep-trace"
VERSION = 2  # 2: passes, accounts of memory
READS = (1, 2)
OLDEST = (1980, 1, 1, 0, 0, 0)  # the date of every member: equal traces make equal files


def save(trace: Trace, path: str | Path) -> Path:
    """Write a trace to one file, whole or not at all; returns its path.

    What is equal is written once. `load` gives back exactly what was saved, shared facts shared again.
    Raises ValueError for an array that is not made of numbers, OSError where the file cannot be written.
    """
    path = Path(path)
    encoder = Encoder()
    root = encoder.row(trace)
    table, parts, offset = [], [], 0
    for dtype, shape, data in encoder.arrays:
        table.append([dtype, list(shape), offset])
        parts.append(data)
        offset += len(data)
    content = {"schema": SCHEMA, "version": VERSION, "trace": root, "tables": encoder.tables(), "arrays": table}
    text = json.dumps(content, separators=(",", ":"))
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in (("trace.json", text.encode()), ("values.bin", b"".join(parts))):
                archive.writestr(zipfile.ZipInfo(name, OLDEST), data, zipfile.ZIP_DEFLATED)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
    return path


def load(path: str | Path) -> Trace:
    """Read a trace that `save` wrote. The arrays of its tensors are read-only.

    Raises ValueError, with what to do, for a file of another version or one that is damaged or no trace; OSError where
    it cannot be read.
    """
    path = Path(path)
    try:
        with zipfile.ZipFile(path) as archive:
            content = json.loads(archive.read("trace.json"))
            values = archive.read("values.bin")
        return _read(content, values, path)
    except _OtherVersion:
        raise
    except (zipfile.BadZipFile, zlib.error, KeyError, EOFError, ValueError, OverflowError, RuntimeError) as reason:
        what = str(reason) if isinstance(reason, Broken) else f"it cannot be unpacked ({reason})"
        raise ValueError(
            f"{path} is not a trace that can be read: {what}. Use a file that was written by trace.save, whole; "
            "if this one was, record the run again."
        ) from reason


class _OtherVersion(ValueError):
    pass


def _read(content: Any, values: bytes, path: Path) -> Trace:
    if not isinstance(content, dict) or content.get("schema") != SCHEMA:
        raise Broken("it does not say that it is one")
    if content.get("version") not in READS:
        raise _OtherVersion(
            f"{path} is a trace of version {content.get('version')!r}; this Lockstep reads versions {READS[0]} to "
            f"{READS[-1]}. "
            "Upgrade lockstep-labs, or record the run again."
        )
    listed = content.get("arrays")
    if not isinstance(listed, list):
        raise Broken("its arrays are missing")
    arrays = [_array(entry, values) for entry in listed]
    trace = Decoder(content.get("tables"), arrays).fact(Trace, content.get("trace"))
    assert isinstance(trace, Trace)
    _check_numbers(trace)
    return trace


def _array(entry: Any, values: bytes) -> np.ndarray:
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


def _check_numbers(trace: Trace) -> None:
    """Whatever reads a trace indexes by rank and by stop: a file must not make it stumble."""
    if [rank.rank for rank in trace.ranks] != list(range(trace.meta.world)):
        raise Broken(f"its ranks are not those of a world of {trace.meta.world}")
    for position in trace.positions:
        if [state.rank for state in position.states] != list(range(trace.meta.world)):
            raise Broken("a position does not have every rank")
        if any(not -1 <= state.stop < len(trace.ranks[state.rank].stops) for state in position.states):
            raise Broken("a position names a stop that is not there")
