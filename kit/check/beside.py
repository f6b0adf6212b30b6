"""Two runs next to each other: who sent how much, and which collectives were called."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from itertools import groupby

from kit.check.spec import Draw
from kit.check.words import size
from kit.trace.facts import Operation, Trace

_RANKS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#8c959f")
_INK, _PAPER, _DARK = "#1f2328", "#ffffff", ("#0072B2",)  # numbers in paper on the dark ones, as in `kit.views.palette`


def rows(trace: Trace) -> list[tuple[int, int, int, str]]:
    """For each rank: (rank, messages sent, wire bytes sent, its collectives in order)."""
    table = []
    for part in trace.ranks:
        sent = [operation for operation in part.operations if operation.name == "send"]
        calls = [operation for operation in part.operations if operation.name not in ("send", "recv")]
        table.append((part.rank, len(sent), sum(operation.payload for operation in sent), _in_order(calls)))
    return table


def _in_order(calls: Iterable[Operation]) -> str:
    """'broadcast', '7 × all_reduce of 120 bytes in all': those of one name that follow one another are counted."""
    parts = []
    for name, found in groupby(calls, lambda operation: operation.name):
        row = list(found)
        total = sum(operation.payload for operation in row)
        parts.append(f"{len(row)} × {name}{f' of {size(total)} in all' if total else ''}" if len(row) > 1 else name)
    return ", ".join(parts)


def text(name: str, trace: Trace) -> str:
    """The table of one run, for a terminal."""
    lines = [f"{name} ({trace.meta.world} ranks)"]
    for rank, messages, nbytes, calls in rows(trace):
        lines.append(f"  rank {rank}: {messages} sent, {size(nbytes)}{', ' + calls if calls else ''}")
    return "\n".join(lines)


def page(runs: Sequence[tuple[str, Trace]], draw: Draw | None = None) -> str:
    """The tables of several runs side by side as HTML, each under its picture where `draw` can make one.

    Bars have one scale over all runs, so that lengths can be compared.
    """
    tables = [rows(trace) for _, trace in runs]
    most = max((nbytes for table in tables for _, _, nbytes, _ in table), default=0)
    columns = []
    for (name, trace), table in zip(runs, tables, strict=True):
        inside = f"<b>{escape(name)}</b>{draw(trace) if draw else ''}{_table(table, most)}"
        columns.append(f'<div style="flex:1 1 300px;min-width:260px">{inside}</div>')
    return f'<div style="display:flex;flex-wrap:wrap;gap:16px;margin-top:6px">{"".join(columns)}</div>'


_CELL = "text-align:left;font-weight:normal;padding:1px 8px 1px 0"
_CHIP = "display:inline-block;min-width:16px;border-radius:8px;text-align:center"
_BAR = "display:inline-block;height:8px;border-radius:2px"


def _table(table: list[tuple[int, int, int, str]], most: int) -> str:
    called = any(calls for *_, calls in table)
    sent = any(messages for _, messages, *_ in table) or not called
    heads = ["rank", *(["sent", "bytes", ""] if sent else []), *(["collectives"] if called else [])]
    lines = []
    for rank, messages, nbytes, calls in table:
        cells = [_chip(rank)]
        cells += [str(messages), size(nbytes), _bar(rank, nbytes, most)] if sent else []
        cells += [escape(calls)] if called else []
        lines.append(f"<tr>{''.join(map(_cell, cells))}</tr>")
    head = "".join(_cell(text, "th") for text in heads)
    body = f"<thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody>"
    return f'<table style="border-collapse:collapse;margin:4px 0;font-size:inherit;color:inherit">{body}</table>'


def _cell(content: str, tag: str = "td") -> str:
    return f'<{tag} style="{_CELL}">{content}</{tag}>'


def _chip(rank: int) -> str:
    fill = _RANKS[rank % len(_RANKS)]
    return f'<span style="{_CHIP};color:{_PAPER if fill in _DARK else _INK};background:{fill}">{rank}</span>'


def _bar(rank: int, nbytes: int, most: int) -> str:
    width = round(80 * nbytes / most) if most else 0
    return f'<span style="{_BAR};width:{width}px;background:{_RANKS[rank % len(_RANKS)]}"></span>'
