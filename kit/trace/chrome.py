"""The time axis in Chrome's trace event format, which chrome://tracing and ui.perfetto.dev open.

Format: "Trace Event Format", the Chromium project's document of 2016: complete events ('X'), flows ('s', 'f') and
names ('M'). Times are microseconds.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kit.trace.facts import Record
from kit.trace.match import messages
from kit.trace.timeline import Span

LANES = 1000  # track number = rank * LANES + lane


def events(record: Record, spans: Sequence[Span]) -> list[dict[str, Any]]:
    """A track per rank (and one for each lane of hidden communication), a slice per span, an arrow per message."""
    sizes = {op.match: op.payload for rank in record.ranks for op in rank.operations}
    found = [_name("process_name", 0, f"{record.meta.function} · {record.meta.mode}")]
    for rank in range(record.meta.world):
        lanes = {span.lane for span in spans if span.rank == rank} | {0}
        for lane in sorted(lanes):
            track = rank * LANES + lane
            found.append(_name("thread_name", track, f"rank {rank}" if lane == 0 else f"rank {rank} · hidden {lane}"))
            found.append(
                {"ph": "M", "pid": 0, "tid": track, "name": "thread_sort_index", "args": {"sort_index": track}}
            )
    found += [_slice(span, sizes.get(span.match or "")) for span in spans]
    return found + _flows(record, spans)


def write(record: Record, spans: Sequence[Span], path: str | Path) -> Path:
    """Write the events as a JSON file; returns its path. Raises OSError where that cannot be done."""
    path = Path(path)
    content = {
        "traceEvents": events(record, spans),
        "displayTimeUnit": "ms",
        "otherData": {"function": record.meta.function, "mode": record.meta.mode, "backend": record.meta.backend},
    }
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def _name(kind: str, track: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "pid": 0, "tid": track, "name": kind, "args": {"name": name}}


def _slice(span: Span, payload: int | None) -> dict[str, Any]:
    details: dict[str, Any] = {"kind": span.kind}
    if span.match is not None:
        details |= {"operation": span.match, "payload bytes": payload}
    if span.place is not None:
        details["line"] = span.place.line
    if span.open:
        details["not over"] = True
    return {
        "ph": "X",
        "pid": 0,
        "tid": span.rank * LANES + span.lane,
        "ts": span.start * 1e6,
        "dur": (span.end - span.start) * 1e6,
        "name": span.label,
        "cat": span.kind,
        "args": details,
    }


def _flows(record: Record, spans: Sequence[Span]) -> list[dict[str, Any]]:
    """An arrow from the sender's slice to the receiver's: an arrow must begin and end inside a slice to be drawn."""
    moving = {(span.rank, span.match): span for span in reversed(spans) if span.match and span.kind == "communicate"}
    found: list[dict[str, Any]] = []
    for number, message in enumerate(messages(record)):
        source = moving.get((message.source, message.match))
        target = moving.get((message.destination, message.match))
        if target is None:
            continue
        begin = source.start if source else target.start
        tracks = (message.source * LANES + (source.lane if source else 0), message.destination * LANES + target.lane)
        common = {"pid": 0, "cat": "message", "name": f"{message.nbytes} B", "id": number}
        found.append({**common, "ph": "s", "tid": tracks[0], "ts": begin * 1e6})
        found.append({**common, "ph": "f", "bp": "e", "tid": tracks[1], "ts": max(begin, target.end) * 1e6})
    return found
