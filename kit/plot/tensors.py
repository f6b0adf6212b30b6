"""Tensors of every rank as cells, one row of the picture per rank."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kit.plot.cells import Cell, Traffic, began_with_powers, cell, elements, format_value, overlap, span_of, traffic
from kit.plot.exchange import region_label
from kit.plot.markup import chip, escape, heading, rank_class
from kit.plot.moment import pending, position_at
from kit.plot.variables import Held, default_name, holdings, item_label, tensor_names
from kit.trace.facts import Summary, TensorFact
from kit.trace.text import size
from kit.trace.trace import Trace

__all__ = ["tensor_names", "tensors_height", "tensors_html"]

_ELEMENTS = 16  # up to here a vector shows every element
_COLUMNS = 8  # cells beside each other
_STRIP = 40  # elements drawn as a strip


def tensors_html(trace: Trace, position: int, name: str | None = None) -> str:
    """What every rank holds under one name: chunks of a list, elements, small matrices, or a summary when large.

    `name` is one of `tensor_names(trace, position)`; None picks the most telling one, and a name that no rank has here
    shows empty rows. Boxes: yellow has changed since the position before, an accent ring is being sent, a dashed edge
    awaits data. Where the ranks began with powers of ten each digit of a sum names a contributor.
    """
    moment = position_at(trace, position)
    world = len(moment.states)
    chosen = name if name is not None else default_name(trace, position)
    if chosen is None:
        return _area("Tensors", "", _empty("No tensor in scope yet."), world, "")
    held = holdings(trace, position, chosen)
    index = position % len(trace.positions)
    earlier = {h.rank: h for h in holdings(trace, index - 1, chosen)} if index > 0 else {}
    decode = began_with_powers(trace)
    rows = [_Row(h, earlier.get(h.rank), traffic(trace, position, h.rank), world, decode and _numeric(h)) for h in held]
    title = f"{chosen}, per rank"
    columns = sorted({key for h in held for key in h.items if key is not None})
    example = next((fact for h in held for fact in h.items.values()), None)
    if example is None:
        return _area(title, "", _empty(f"No rank has {chosen} here."), world, _elsewhere(trace, position, held))
    if columns:
        body, key = _table(rows, [(c, item_label(f"{chosen}[{c}]")) for c in columns[:_ELEMENTS]]), _key(decode)
    else:
        body, key = _single(rows, chosen, example), _key(decode, example)
    return _area(title, key, body, world, _elsewhere(trace, position, held))


def tensors_height(world: int) -> int:
    """Height in px of the cells of `world` ranks, whatever they show; more rows than eight scroll."""
    return 20 + (46 if world <= 4 else 33) * min(world, 8)


class _Row:
    """One rank's part of the picture."""

    def __init__(self, held: Held, before: Held | None, flow: Traffic, world: int, decode: bool) -> None:
        self.rank, self.items, self.flow, self.world, self.decode = held.rank, held.items, flow, world, decode
        self.before = before.items if before else {}

    def cell(self, key: int | None) -> Cell | None:
        fact = self.items.get(key)
        return None if fact is None else cell(fact, self.before.get(key), self.flow, self.world, self.decode)

    def elements(self, room: int) -> list[Cell]:
        fact = self.items.get(None)
        if fact is None or fact.values is None:
            return []
        return elements(fact, self.before.get(None), self.flow, self.world, self.decode, room)


def _single(rows: list[_Row], name: str, example: TensorFact) -> str:
    """One tensor per rank: every element, a small matrix, or a summary."""
    shown = [row.items[None] for row in rows if None in row.items]
    small = all(fact.values is not None for fact in shown)
    largest = max(shown, key=lambda fact: fact.values.size if fact.values is not None else 0)
    if small and all(len(f.shape) == 2 and 1 < f.shape[0] <= 8 and f.shape[1] <= 8 for f in shown):
        room = _room(2 * max(fact.shape[1] for fact in shown) if all(f.shape[1] <= 4 for f in shown) else 8)
        return _matrices([(row.rank, row.items.get(None), row.elements(room)) for row in rows])
    count = largest.values.size if largest.values is not None else 0
    if small and not count:
        return _table(rows, [(None, name)])
    if small and count <= _ELEMENTS:
        labels = [(i, f"{name}[{i}]" if example.shape else name) for i in range(count)]
        return _element_table(rows, labels)
    return _summaries([(row.rank, row.items.get(None), row.cell(None)) for row in rows])


def _table(rows: list[_Row], columns: Sequence[tuple[int | None, str]]) -> str:
    """Rows are ranks, columns are the items of a list."""
    short = len(columns) > 5
    lines = [_tr(row, [row.cell(key) for key, _ in columns], len(columns)) for row in rows]
    return _grid([(str(key) if short else label, label) for key, label in columns], lines, "ls-small" if short else "")


def _element_table(rows: list[_Row], columns: list[tuple[int, str]]) -> str:
    count = len(columns)
    fold = count if count <= _COLUMNS else (count + 1) // 2  # more than eight elements take two lines of small cells
    lines = []
    for row in rows:
        cells: list[Cell | None] = [*row.elements(_room(fold))]
        cells += [None] * (count - len(cells))
        lines.append(_tr(row, cells, count) if fold == count else _two_lines(row, cells, fold))
    heads = [(str(i) if count > 4 else label, label) for i, label in columns[:fold]]
    return _grid(heads, lines, "ls-fine" if fold != count else "ls-small" if fold > 5 else "")


def _grid(heads: Sequence[tuple[str, str]], lines: Sequence[str], size: str) -> str:
    """heads: (what stands over a column, its full name)."""
    head = "".join(f'<th title="{escape(label)}">{escape(short)}</th>' for short, label in heads)
    top = f'<thead><tr><th class="ls-who"></th>{head}</tr></thead>'
    return f'<table class="{f"ls-grid {size}".rstrip()}">{top}<tbody>{"".join(lines)}</tbody></table>'


def _room(columns: int) -> int:
    """Characters that a cell has room for where a panel is narrow."""
    return int((300 / columns - 6) / (7.3 if columns <= 5 else 6.1))


def _tr(row: _Row, cells: list[Cell | None], columns: int) -> str:
    boxes = "".join(_cell(box, columns, row.world) for box in cells)
    return f'<tr class="ls-rank-row"><th class="ls-who" scope="row">{chip(row.rank)}</th>{boxes}</tr>'


def _two_lines(row: _Row, cells: list[Cell | None], fold: int) -> str:
    lines = [cells[:fold], cells[fold:] + [None] * (2 * fold - len(cells))]
    boxes = ["".join(_cell(box, 99, row.world) for box in line) for line in lines]
    return (
        f'<tr class="ls-half"><th class="ls-who" scope="row" rowspan="2">{chip(row.rank)}</th>{boxes[0]}</tr>'
        f'<tr class="ls-half">{boxes[1]}</tr>'
    )


def _marks(box: Cell) -> dict[str, str]:
    """Class and word of what is to be seen of a cell beside its value."""
    marks = {}
    if box.changed:
        marks["ls-changed"] = "changed"
    if box.sending:
        marks["ls-sending"] = "being sent"
    if box.awaiting:
        marks["ls-awaiting"] = "awaits data"
    return marks


def _cell(box: Cell | None, columns: int, world: int) -> str:
    """One box; with digits each digit stands over the pip of the rank it names, rank 0 rightmost as in the number."""
    if box is None:
        return '<td class="ls-none"></td>'
    marks = _marks(box)
    told = [box.whole or box.text, *marks.values()]
    if box.digits:
        inner = _digits(box.digits, wide=columns * world <= 24)
        told.insert(1, "from ranks " + ", ".join(str(r) for r, count in enumerate(box.digits) if count))
    else:
        inner = f'<span class="ls-value">{escape(box.text)}</span>'
        if box.writers and columns < 99:
            inner += _writers(box.writers)
            told.append("last written from " + ", ".join(f"rank {r}" for r in box.writers))
    return f'<td class="{" ".join(marks)}" title="{escape("; ".join(told))}">{inner}</td>'


def _digits(digits: tuple[int, ...], wide: bool) -> str:
    columns = []
    for rank in reversed(range(len(digits))):
        count = digits[rank]
        pip = f"ls-pip {rank_class(rank)}" if count else "ls-pip"
        number = f"<b>{count}</b>" if wide else ""
        columns.append(f'<span class="ls-digit">{number}<i class="{pip}"></i></span>')
    return f'<span class="ls-digits{"" if wide else " ls-narrow"}">{"".join(columns)}</span>'


def _writers(writers: tuple[int, ...]) -> str:
    pips = "".join(f'<i class="ls-pip {rank_class(rank)}"></i>' for rank in writers[:8])
    return f'<span class="ls-writers">{pips}</span>'


def _matrices(rows: list[tuple[int, TensorFact | None, list[Cell]]]) -> str:
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


def _summaries(rows: list[tuple[int, TensorFact | None, Cell | None]]) -> str:
    """A row per rank: shape, least, mean, largest, spread, and a strip of the first elements."""
    body = []
    for rank, fact, box in rows:
        if fact is None or box is None:
            text = '<span class="ls-muted">none here</span>'
            classes = "ls-summary ls-none"
        else:
            digest = fact.summary or _digest(fact)
            text = _text(fact, digest)
            classes = " ".join(["ls-summary", *_marks(box)])
        body.append(f'<div class="ls-rank-row ls-flex">{chip(rank)}<div class="{classes}">{text}</div></div>')
    return "".join(body)


def _number(box: Cell) -> str:
    return f'<td class="{" ".join(_marks(box))}" title="{escape(box.whole)}">{escape(box.text)}</td>'


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


def _key(decode: bool, example: TensorFact | None = None) -> str:
    what = "" if example is None else size(example.shape, example.dtype).replace(" x ", " × ")
    if decode:
        return "10ʳ: digits name ranks"
    return what or "square: last writer"


def _numeric(held: Held) -> bool:
    return all(fact.dtype != "bool" for fact in held.items.values())


def _empty(text: str) -> str:
    return f'<div class="ls-empty">{escape(text)}</div>'


def _elsewhere(trace: Trace, position: int, held: list[Held]) -> str:
    """Memory on its way that the picture does not show: 'not shown: rank 0 awaits inbox'."""
    told = []
    for owner in held:
        shown = [span_of(fact) for fact in owner.items.values()]
        for op in pending(trace, position, owner.rank):
            for region in op.regions:
                if not any(overlap(span, span_of(region)) for span in shown):
                    verb = "sends" if region.role == "in" else "awaits"
                    told.append(f"rank {owner.rank} {verb} {region_label(trace, op, region)}")
    return "not shown: " + "; ".join(told) if told else ""


def _area(title: str, key: str, body: str, world: int, note: str) -> str:
    note = note or "yellow: changed · ring: being sent · dashed: awaits data"
    dense = "" if world <= 4 else " ls-dense"
    return (
        f'<div class="ls ls-tensors{dense}" role="group" aria-label="{escape(title)}">{heading(title, key)}'
        f'<div class="ls-cells" style="height:{tensors_height(world)}px">{body}</div>'
        f'<div class="ls-note" title="{escape(note)}">{escape(note)}</div></div>'
    )
