"""Tensors as small matrices, and large tensors as a summary with a strip of their first elements."""

from __future__ import annotations

import numpy as np

from kit.trace.facts import Summary, TensorFact
from kit.trace.sentences import size
from kit.views.cells import Cell, format_value
from kit.views.markup import chip, escape

_STRIP = 40  # elements drawn as a strip


def matrix_html(rows: list[tuple[int, TensorFact | None, list[Cell]]]) -> str:
    """A block per rank, each a small grid of numbers."""
    blocks = []
    for rank, fact, cells in rows:
        if fact is None:
            blocks.append(f'<div class="ls-matrix">{chip(rank)}<span class="ls-muted">none here</span></div>')
            continue
        width = fact.shape[1]
        lines = [cells[i : i + width] for i in range(0, len(cells), width)]
        body = "".join("<tr>" + "".join(_number(box) for box in line) + "</tr>" for line in lines)
        blocks.append(f'<div class="ls-matrix">{chip(rank)}<table>{body}</table></div>')
    wide = any(fact is not None and fact.shape[1] > 4 for _, fact, _ in rows)
    return f'<div class="ls-matrices{" ls-wide" if wide else ""}">{"".join(blocks)}</div>'


def summary_html(rows: list[tuple[int, TensorFact | None, Cell | None]]) -> str:
    """A row per rank: shape, least, mean, largest, spread, and a strip of the first elements."""
    body = []
    for rank, fact, box in rows:
        if fact is None or box is None:
            text = '<span class="ls-muted">none here</span>'
            classes = "ls-summary ls-none"
        else:
            digest = fact.summary or _digest(fact)
            text = _text(fact, digest)
            marks = (("ls-changed", box.changed), ("ls-sending", box.sending), ("ls-awaiting", box.awaiting))
            classes = " ".join(["ls-summary", *(name for name, on in marks if on)])
        body.append(f'<div class="ls-rank-row ls-flex">{chip(rank)}<div class="{classes}">{text}</div></div>')
    return "".join(body)


def _number(box: Cell) -> str:
    marks = (("ls-changed", box.changed), ("ls-sending", box.sending), ("ls-awaiting", box.awaiting))
    classes = " ".join(name for name, on in marks if on)
    return f'<td class="{classes}" title="{escape(box.whole)}">{escape(box.text)}</td>'


def _text(fact: TensorFact, digest: Summary) -> str:
    numbers = (
        ("min", digest.minimum),
        ("mean", digest.mean),
        ("max", digest.maximum),
        ("std", digest.std),
    )
    parts = " ".join(f"<span>{name} <b>{escape(format_value(value))}</b></span>" for name, value in numbers)
    odd = [f"{count} {what}" for what, count in (("NaN", digest.nans), ("inf", digest.infs)) if count]
    warning = f' <b class="ls-bad">{", ".join(odd)}</b>' if odd else ""
    title = escape(size(fact.shape, fact.dtype).replace(" x ", " × "))
    return f'<div class="ls-shape">{title}{warning}{_strip(digest)}</div><div class="ls-stats">{parts}</div>'


def _strip(digest: Summary) -> str:
    """The first elements as a strip from faint (least) to strong (largest); greys, since colours name ranks."""
    head = np.asarray(digest.head[:_STRIP], dtype=np.float64)
    if head.size < 2:
        return ""
    spread = digest.maximum - digest.minimum
    shades = np.where(np.isfinite(head), (head - digest.minimum) / spread if spread > 0 else 0.5, 0.0)
    bars = "".join(f'<i style="opacity:{0.1 + 0.8 * float(s):.2f}"></i>' for s in np.clip(shades, 0, 1))
    return f'<span class="ls-strip" title="first {head.size} elements, faint is small">{bars}</span>'


def _digest(fact: TensorFact) -> Summary:
    """The summary of a tensor that came with all its values."""
    assert fact.values is not None
    values = np.abs(fact.values) if fact.values.dtype.kind == "c" else fact.values.astype(np.float64)
    flat = values.reshape(-1)
    finite = flat[np.isfinite(flat)]
    low, high, mean, std = (
        (float(finite.min()), float(finite.max()), float(finite.mean()), float(finite.std()))
        if finite.size
        else (float("nan"),) * 4
    )
    infinite = int(np.isinf(flat).sum())
    return Summary(low, high, mean, std, int(np.isnan(flat).sum()), infinite, tuple(float(v) for v in flat[:_STRIP]))
