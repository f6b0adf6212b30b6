"""Tensors of every rank as cells, one row of the picture per rank."""

from __future__ import annotations

from collections.abc import Sequence

from kit.trace.facts import TensorFact, Trace
from kit.trace.sentences import size
from kit.views.cells import Cell, Traffic, began_with_powers, cell, elements, overlap, span_of, traffic
from kit.views.exchange import region_label
from kit.views.markup import chip, escape, heading, rank_class
from kit.views.moment import pending, position_at
from kit.views.summary import matrix_html, summary_html
from kit.views.variables import Held, default_name, holdings, item_label, tensor_names

__all__ = ["tensor_names", "tensors_height", "tensors_html"]

_ELEMENTS = 16  # up to here a vector shows every element
_COLUMNS = 8  # cells beside each other


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

    def elements(self, precision: int = 3) -> list[Cell]:
        fact = self.items.get(None)
        if fact is None or fact.values is None:
            return []
        return elements(fact, self.before.get(None), self.flow, self.world, self.decode, precision)


def _single(rows: list[_Row], name: str, example: TensorFact) -> str:
    """One tensor per rank: every element, a small matrix, or a summary."""
    shown = [row.items[None] for row in rows if None in row.items]
    small = all(fact.values is not None for fact in shown)
    largest = max(shown, key=lambda fact: fact.values.size if fact.values is not None else 0)
    if small and all(len(f.shape) == 2 and 1 < f.shape[0] <= 8 and f.shape[1] <= 8 for f in shown):
        return matrix_html([(row.rank, row.items.get(None), row.elements(precision=2)) for row in rows])
    count = largest.values.size if largest.values is not None else 0
    if small and not count:
        return _table(rows, [(None, name)])
    if small and count <= _ELEMENTS:
        labels = [(i, f"{name}[{i}]" if example.shape else name) for i in range(count)]
        return _element_table(rows, labels)
    return summary_html([(row.rank, row.items.get(None), row.cell(None)) for row in rows])


def _table(rows: list[_Row], columns: Sequence[tuple[int | None, str]]) -> str:
    """Rows are ranks, columns are the items of a list."""
    short = len(columns) > 5
    head = "".join(f'<th title="{escape(label)}">{key if short else escape(label)}</th>' for key, label in columns)
    body = "".join(_tr(row, [row.cell(key) for key, _ in columns], len(columns)) for row in rows)
    fine = " ls-small" if len(columns) > 5 else ""
    top = f'<thead><tr><th class="ls-who"></th>{head}</tr></thead>'
    return f'<table class="ls-grid{fine}">{top}<tbody>{body}</tbody></table>'


def _element_table(rows: list[_Row], columns: list[tuple[int, str]]) -> str:
    count = max(1, len(columns))
    fold = count if count <= _COLUMNS else (count + 1) // 2  # more than eight elements take two lines of small cells
    short = len(columns) > 4
    labels = [str(i) if short else label for i, label in columns[:fold]]
    head = "".join(f"<th>{escape(label)}</th>" for label in labels)
    body = []
    for row in rows:
        cells: list[Cell | None] = [*row.elements(3 if fold <= 6 else 2)]
        cells += [None] * (count - len(cells))
        if fold == count:
            body.append(_tr(row, cells, count))
        else:
            body.append(_two_lines(row, cells, fold))
    fine = " ls-fine" if fold != count else " ls-small" if fold > 5 else ""
    return (
        f'<table class="ls-grid{fine}"><thead><tr><th class="ls-who"></th>{head}</tr></thead>'
        f"<tbody>{''.join(body)}</tbody></table>"
    )


def _tr(row: _Row, cells: list[Cell | None], columns: int) -> str:
    boxes = "".join(cell_html(box, columns, row.world) for box in cells)
    return f'<tr class="ls-rank-row"><th class="ls-who" scope="row">{chip(row.rank)}</th>{boxes}</tr>'


def _two_lines(row: _Row, cells: list[Cell | None], fold: int) -> str:
    lines = [cells[:fold], cells[fold:] + [None] * (2 * fold - len(cells))]
    boxes = ["".join(cell_html(box, 99, row.world) for box in line) for line in lines]
    return (
        f'<tr class="ls-half"><th class="ls-who" scope="row" rowspan="2">{chip(row.rank)}</th>{boxes[0]}</tr>'
        f'<tr class="ls-half">{boxes[1]}</tr>'
    )


def cell_html(box: Cell | None, columns: int, world: int) -> str:
    """One box; with digits each digit stands over the pip of the rank it names, rank 0 rightmost as in the number."""
    if box is None:
        return '<td class="ls-none"></td>'
    classes = [
        c for c, on in (("ls-changed", box.changed), ("ls-sending", box.sending), ("ls-awaiting", box.awaiting)) if on
    ]
    told = [box.whole or box.text]
    told += [
        word
        for word, on in (("changed", box.changed), ("being sent", box.sending), ("awaits data", box.awaiting))
        if on
    ]
    if box.digits:
        inner = _digits(box.digits, wide=columns * world <= 24)
        told.insert(1, "from ranks " + ", ".join(str(r) for r, count in enumerate(box.digits) if count))
    else:
        inner = f'<span class="ls-value">{escape(box.text)}</span>'
        if box.writers and columns < 99:
            inner += _writers(box.writers)
            told.append("last written from " + ", ".join(f"rank {r}" for r in box.writers))
    attribute = f' class="{" ".join(classes)}"' if classes else ""
    return f'<td{attribute} title="{escape("; ".join(told))}">{inner}</td>'


def _digits(digits: tuple[int, ...], wide: bool) -> str:
    columns = []
    for rank in reversed(range(len(digits))):
        count = digits[rank]
        pip = f"ls-pip {rank_class(rank)}" if count else "ls-pip"
        mark = str(count) if count > 1 and wide else ""  # counted more than once: the pip says how often
        number = f"<b>{count}</b>" if wide else ""
        columns.append(f'<span class="ls-digit">{number}<i class="{pip}">{mark}</i></span>')
    return f'<span class="ls-digits{"" if wide else " ls-narrow"}">{"".join(columns)}</span>'


def _writers(writers: tuple[int, ...]) -> str:
    pips = "".join(f'<i class="ls-pip {rank_class(rank)}"></i>' for rank in writers[:8])
    return f'<span class="ls-writers">{pips}</span>'


def _key(decode: bool, example: TensorFact | None = None) -> str:
    what = "" if example is None else size(example.shape, example.dtype).replace(" x ", " × ")
    if decode:
        return "from 10ʳ: digits say who is in"
    return what or "colour: last written from"


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
