"""What each rank put in, drawn from a trace."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kit.plot.palette import UNKNOWN, rank_color

if TYPE_CHECKING:
    from kit.trace.trace import Trace

WIDTH, ROW = 320, 24  # of the longest bar, of a row, in pixels


def payload_by_rank(trace: Trace) -> list[int]:
    """Bytes of the tensors that each rank handed to its operations."""
    return [sum(operation.payload for operation in part.operations) for part in trace.ranks]


def payload_svg(trace: Trace) -> str:
    """A bar for each rank, in its colour, with the bytes beside it, as SVG."""
    payloads = payload_by_rank(trace)
    most = max([1, *payloads])
    rows = [
        f'<rect x="60" y="{ROW * rank + 4}" width="{WIDTH * nbytes / most:.0f}" height="16" fill="{rank_color(rank)}"/>'
        f'<text x="0" y="{ROW * rank + 16}">rank {rank}</text>'
        f'<text x="{WIDTH + 70}" y="{ROW * rank + 16}">{nbytes} bytes</text>'
        for rank, nbytes in enumerate(payloads)
    ]
    words = ", ".join(f"rank {rank}: {nbytes} bytes" for rank, nbytes in enumerate(payloads))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{words}" width="{WIDTH + 180}"'
        f' height="{ROW * len(rows)}" font-family="sans-serif" font-size="13" fill="{UNKNOWN}">{"".join(rows)}</svg>'
    )
