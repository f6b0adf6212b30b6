"""Tables, in text for a terminal and in HTML for a notebook: of numbers by row, and of facts by name."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from html import escape

Facts = Sequence[tuple[str, str]]  # (name, what is so)
Rows = Sequence[Sequence[str]]  # the first one is the heading; cells beyond the first column are numbers


class Table(ABC):
    """What is read as a table: text in a terminal, HTML in a notebook."""

    @abstractmethod
    def table(self) -> tuple[str, Rows, Sequence[str]]:
        """The title above ('' for none), the rows, the notes below."""

    def __str__(self) -> str:
        return text_table(*self.table())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return html_table(*self.table())


def text_table(title: str, rows: Rows, notes: Sequence[str] = ()) -> str:
    """The first column to the left, the others to the right; the title above, the notes below."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = (
        "  ".join(cell.rjust(widths[i]) if i else cell.ljust(widths[i]) for i, cell in enumerate(row)) for row in rows
    )
    return "\n".join([*([title] if title else []), *(line.rstrip() for line in lines), *notes])


def html_table(title: str, rows: Rows, notes: Sequence[str] = ()) -> str:
    """The same as HTML; every text is escaped."""

    def line(cells: Sequence[str], tag: str) -> str:
        sides = ("left" if i == 0 else "right" for i in range(len(cells)))
        texts = map(_unbroken, cells)
        inner = (f"<{tag} style='text-align:{s}'>{escape(c)}</{tag}>" for s, c in zip(sides, texts, strict=True))
        return f"<tr>{''.join(inner)}</tr>"

    head, *body = rows
    lines = line(head, "th") + "".join(line(row, "td") for row in body)
    return _html(title, title, lines) + "".join(f"<div>{escape(note)}</div>" for note in notes)


def _unbroken(text: str) -> str:
    """A number and its unit stay in one line."""
    return re.sub(r"(?<=\d) (?=[A-Za-zµ%×])", "\u00a0", text)


def text_facts(title: str, facts: Facts) -> str:
    """A fact in each line, the names in a column of their own."""
    width = max(len(name) for name, _ in facts)
    return "\n".join([title, *(f"  {name.ljust(width)}  {value}" for name, value in facts)])


def html_facts(title: str, label: str, facts: Facts, note: str = "") -> str:
    """The same as HTML; every text is escaped. label: of the table, for screen readers. note: HTML under the title."""
    style = "text-align:left;vertical-align:top"
    lines = "".join(
        f"<tr><th style='{style}'>{escape(name)}</th><td style='{style}'>{escape(value)}</td></tr>"
        for name, value in facts
    )
    return f"<div class='ls-report'>{_html(title, label, lines, note)}</div>"


def _html(title: str, label: str, lines: str, note: str = "") -> str:
    head = f"<div class='ls-report-title' style='font-weight:600;margin-bottom:4px'>{escape(title)}</div>" * bool(title)
    return f"{head}{note}<table aria-label='{escape(label, quote=True)}'>{lines}</table>"
