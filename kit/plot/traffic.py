"""Bytes every rank sent and received, one block per kind of bytes, because kinds are never mixed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from kit.plot.figure import Axes, Axis, Boxes, Column, Figure, pixels, values
from kit.plot.markup import size_text

if TYPE_CHECKING:
    from kit.trace.trace import Trace

Kind = Literal["payload", "algorithmic", "wire"]
KINDS: dict[Kind, str] = {
    "wire": "wire bytes: messages as observed",
    "algorithmic": "algorithmic bytes: what the standard algorithm of a collective moves",
    "payload": "payload bytes: tensors handed in",
}
_ROW, _HEAD, _LEFT, _RIGHT = 22, 20, 52, 182  # px; right: 333.3 MB sent · 333.3 MB received


@dataclass(frozen=True, slots=True)
class Flow:
    """One rank's bytes of one kind."""

    rank: int
    kind: Kind
    sent: float
    received: float


def traffic_figure(trace: Trace, kinds: tuple[Kind, ...] | None = None) -> Figure:
    """Bars per rank: filled is sent, outlined is received; the sizes stand beside them.

    kinds: None takes wire and algorithmic bytes as far as the run has any. ValueError for a kind that is none.
    """
    found = flows(trace, kinds)
    axis = Axis(0.0, max([max(flow.sent, flow.received) for flow in found]) or 1.0)
    blocks = [[flow for flow in found if flow.kind == kind] for kind in dict.fromkeys(flow.kind for flow in found)]
    words = "; ".join(f"{KINDS[block[0].kind]}: " + ", ".join(map(_words, block)) for block in blocks)
    column = Column(tuple(_block(block, axis) for block in blocks), _LEFT, _RIGHT)
    return Figure("traffic", "Traffic by rank", (column,), words, note="filled sent · outlined received", width=460)


def flows(trace: Trace, kinds: tuple[Kind, ...] | None = None) -> list[Flow]:
    """Bytes by kind and rank."""
    chosen = kinds if kinds is not None else ("wire", "algorithmic")
    for kind in chosen:
        if kind not in KINDS:
            raise ValueError(f"there is no kind of bytes {kind!r}: choose from {', '.join(KINDS)}")
    found = []
    for kind in chosen:
        block = []
        for rank in range(len(trace.ranks)):
            sent, received = trace.bytes_sent(rank), trace.bytes_received(rank)
            block.append(Flow(rank, kind, float(getattr(sent, kind)), float(getattr(received, kind))))
        if kinds is not None or any(flow.sent or flow.received for flow in block):
            found += block
    return found or [Flow(rank, "wire", 0.0, 0.0) for rank in range(len(trace.ranks))]


def _block(block: list[Flow], axis: Axis) -> Axes:
    sent = _bars(block, [flow.sent for flow in block], "sent", 1)
    received = _bars(block, [flow.received for flow in block], "received", 10, outline=True)
    numbers = tuple(
        (_ROW * flow.rank + 10.0, f"{size_text(flow.sent)} sent · {size_text(flow.received)} received")
        for flow in block
    )
    ranks = tuple((_ROW * flow.rank + 10.0, f"rank {flow.rank}") for flow in block)
    height = _ROW * len(block)
    title = KINDS[block[0].kind]
    return Axes(axis, pixels(height, ranks), (sent, received), height, head=_HEAD, subtitle=title, right=numbers)


def _bars(block: list[Flow], sizes: list[float], verb: str, down: float, outline: bool = False) -> Boxes:
    drawn = [(flow, size) for flow, size in zip(block, sizes, strict=True) if size]  # else an edge would be seen
    top = values([_ROW * flow.rank + down for flow, _ in drawn])
    return Boxes(
        left=np.zeros(len(drawn)),
        right=values([size for _, size in drawn]),
        top=top,
        bottom=top + 8,
        kind=np.arange(len(drawn)),
        kinds=tuple(f"rank {flow.rank}" for flow, _ in drawn),
        told=[f"rank {flow.rank} {verb} {size_text(size)} ({flow.kind})" for flow, size in drawn],
        outline=outline,
    )


def _words(flow: Flow) -> str:
    return f"rank {flow.rank} sent {size_text(flow.sent)} and received {size_text(flow.received)}"
