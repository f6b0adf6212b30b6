"""Rows of cells as a table: in text for a terminal, in HTML for a notebook."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

Rows = Sequence[Sequence[str]]  # the first one is the heading; cells beyond the first column are numbers


def text_table(title: str, rows: Rows, notes: Sequence[str] = ()) -> str:
    """The first column to the left, the others to the right; the title above, the notes below."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = (
        "  ".join(cell.rjust(widths[i]) if i else cell.ljust(widths[i]) for i, cell in enumerate(row)) for row in rows
    )
    return "\n".join([title, *(line.rstrip() for line in lines), *notes])


def html_table(title: str, rows: Rows, notes: Sequence[str] = ()) -> str:
    """The same as HTML; every text is escaped."""

    def line(cells: Sequence[str], tag: str) -> str:
        sides = ("left" if i == 0 else "right" for i in range(len(cells)))
        inner = (f"<{tag} style='text-align:{s}'>{escape(c)}</{tag}>" for s, c in zip(sides, cells, strict=True))
        return f"<tr>{''.join(inner)}</tr>"

    head, *body = rows
    return (
        f"<div style='font-weight:600;margin-bottom:4px'>{escape(title)}</div>"
        f"<table aria-label='{escape(title, quote=True)}'>{line(head, 'th')}{''.join(line(r, 'td') for r in body)}"
        f"</table>{''.join(f'<div>{escape(note)}</div>' for note in notes)}"
    )
