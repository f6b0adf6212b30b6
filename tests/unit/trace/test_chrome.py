"""The Chrome export: what Perfetto needs to draw it, checked by its format's rules."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kit.trace.chrome import events
from kit.trace.trace import Trace
from tests.traces import example

EXAMPLES = [example.ring, example.held_ring, example.via_root, example.deadlock, example.failure, example.overlap]


def by_phase(trace: Trace, phase: str) -> list[dict[str, Any]]:
    return [event for event in events(trace, trace.spans()) if event["ph"] == phase]


def test_the_file_is_plain_json(tmp_path: Path) -> None:
    trace = example.ring()
    path = trace.chrome(tmp_path / "ring.json")
    content = json.loads(path.read_text(encoding="utf-8"))
    assert content["traceEvents"] == json.loads(json.dumps(events(trace, trace.spans())))
    assert content["otherData"] == {"function": "ring_all_reduce", "mode": "step", "backend": "gloo"}


@pytest.mark.parametrize("build", EXAMPLES, ids=lambda build: build.__name__)
def test_a_track_per_rank_and_a_slice_per_span(build: Any) -> None:
    trace = build()
    names = {e["tid"]: e["args"]["name"] for e in by_phase(trace, "M") if e["name"] == "thread_name"}
    assert [name for name in names.values() if "hidden" not in name] == [f"rank {r}" for r in range(trace.meta.world)]
    slices = by_phase(trace, "X")
    assert len(slices) == len(trace.spans())
    assert {event["tid"] for event in slices} <= set(names)
    assert all(event["dur"] > 0 and event["ts"] >= 0 for event in slices)


def test_every_delivered_message_is_an_arrow_between_two_tracks() -> None:
    trace = example.ring()
    starts, ends = by_phase(trace, "s"), by_phase(trace, "f")
    assert len(starts) == len(ends) == len(trace.messages()) == 24
    for message, start, end in zip(trace.messages(), starts, ends, strict=True):
        assert start["id"] == end["id"] and start["name"] == "8 B" and end["bp"] == "e"
        assert (start["tid"] // 1000, end["tid"] // 1000) == (message.source, message.destination)
        assert start["ts"] < end["ts"]


@pytest.mark.parametrize("build", EXAMPLES, ids=lambda build: build.__name__)
def test_arrows_touch_slices(build: Any) -> None:
    """An arrow whose end lies in no slice of its track is not drawn."""
    trace = build()
    slices = by_phase(trace, "X")
    for event in by_phase(trace, "s") + by_phase(trace, "f"):
        touched = [
            s for s in slices if s["tid"] == event["tid"] and s["ts"] - 1e-3 <= event["ts"] <= s["ts"] + s["dur"] + 1e-3
        ]
        assert touched, event


def test_what_is_still_on_its_way_has_no_arrow() -> None:
    assert len(by_phase(example.held_ring(), "s")) == 2
    assert any(event["args"].get("not over") for event in by_phase(example.held_ring(), "X"))
