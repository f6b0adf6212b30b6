"""What a check found: words, a card in the notebook, and the learner's run beside the target."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal

from kit.grade.words import html_of, size
from kit.plot.palette import COMMUNICATE, RANKS, rank_color, text_on, word_in
from kit.trace.facts import Operation
from kit.trace.trace import Trace

if TYPE_CHECKING:
    from kit.grade.exercise import Stage

Status = Literal["not attempted", "failed", "passed"]
Runs = Sequence[tuple[str, Trace]]  # what each is called, and what it did
_LOOK = {  # colour and head word of the card
    "not attempted": ("#8c959f", "not attempted"),
    "failed": (COMMUNICATE, "not yet"),
    "passed": (RANKS[2], "right"),
}
_last: dict[str, Verdict] = {}
_listeners: list[Callable[[Verdict, Callable[..., Any]], None]] = []


@dataclass(frozen=True)
class Verdict:
    """The outcome of a check. `str()` is what a person reads; a notebook shows the card."""

    exercise: str
    status: Status
    stage: Stage | Literal[""] = ""  # where it failed
    sentence: str = ""  # the first thing that is wrong, or what a passed check says
    seed: int = 0
    worlds: tuple[int, ...] = ()  # the world sizes on which the values are right
    run: Trace | None = field(default=None, repr=False)  # the learner's, of the case the sentence is about
    target: Trace | None = field(default=None, repr=False)  # the solution's, on the same kind of input
    note: str = ""  # what else a reader must know
    no_ranks: str = ""  # why there were none to run on: nothing was tried

    @property
    def passed(self) -> bool:
        return self.status == "passed"

    @property
    def attempted(self) -> bool:
        return self.status != "not attempted"

    @property
    def detail(self) -> str:
        """How to repeat a failure with the same inputs, and what else a reader must know."""
        again = f"check(..., seed={self.seed}) draws the same inputs again." if self.status == "failed" else ""
        return " ".join(text for text in (again, self.note) if text)

    @property
    def runs(self) -> Runs:
        """The learner's run and the target's, those of them that there are."""
        both = (("my run", self.run), ("target", self.target))
        return [(name, trace) for name, trace in both if trace is not None]

    def __str__(self) -> str:
        told = "not attempted" if not self.attempted else self.sentence
        if self.status == "failed":
            told = f"{self._values()}{self.stage.capitalize()}: {told}"
        return f"{self.exercise}: {told}\n{self.detail}" if self.detail else f"{self.exercise}: {told}"

    def side_by_side(self) -> str:
        """My run beside the target as plain text: per rank, what was sent and which collectives were called."""
        return "\n\n".join(runs_text(name, trace) for name, trace in self.runs)

    def __repr__(self) -> str:  # what a notebook without HTML, and papermill, show
        return str(self)

    def _repr_html_(self) -> str:
        colour, head = _LOOK[self.status]
        lines = [f'<div><code>{escape(self.exercise)}</code> <b style="color:{word_in(colour)}">{head}</b></div>']
        if self.passed:
            lines.append(f"<div>{html_of(_capital(self.sentence))}</div>")
        elif self.attempted:
            stage, sentence = escape(self.stage.capitalize()), html_of(self.sentence)
            lines.append(f"<div>{escape(self._values())}<b>{stage}:</b> {sentence}</div>")
        if self.detail:
            lines.append(f'<div style="color:{_SOFT};font-size:90%">{escape(self.detail)}</div>')
        lines.append(self._pictures())
        return card("".join(lines), colour, f"ls-verdict ls-verdict-{self.status.replace(' ', '-')}")

    def _values(self) -> str:
        return f"Values: right on {', '.join(map(str, self.worlds))} ranks. " if self.worlds else ""

    def _pictures(self) -> str:
        if self.target is None:
            return ""
        if self.run is None:
            return f"<div>The target, on {self.target.meta.world} ranks:</div>{runs_page(self.runs)}"
        summary = "<summary>Show my run beside the target</summary>"
        return f'<details class="ls-beside">{summary}{runs_page(self.runs)}</details>'


_SOFT = "var(--jp-ui-font-color2, #57606a)"
_CARD = ";".join(
    (
        "font-family:var(--jp-ui-font-family, system-ui, sans-serif)",
        "font-size:13px;line-height:1.5;max-width:840px;padding:8px 12px",
        "background:var(--jp-layout-color1, #fff);color:var(--jp-ui-font-color1, #1f2328)",
        "border:1px solid var(--jp-border-color2, #d0d7de);border-left-width:4px;border-radius:6px",
    )
)


def card(inside: str, colour: str, names: str) -> str:
    """A card with a coloured edge, which screen readers announce. names: its CSS classes."""
    return f'<div class="{names}" role="status" style="{_CARD};border-left-color:{colour}">{inside}</div>'


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def remember(verdict: Verdict, function: Callable[..., Any]) -> Verdict:
    """Keep the latest verdict of each exercise, so that its solution can be shown beside the learner's run."""
    _last[verdict.exercise] = verdict
    for listener in _listeners:
        listener(verdict, function)
    return verdict


def listen(listener: Callable[[Verdict, Callable[..., Any]], None]) -> Callable[[], None]:
    """From now on calls it with every verdict of this kernel and the function it is on; returns what ends that."""
    _listeners.append(listener)
    return lambda: _listeners.remove(listener)


def latest(identity: str) -> Verdict | None:
    """The latest verdict of an exercise in this kernel."""
    return _last.get(identity)


# ------------------------------------------------------------------------------------------ one run beside another


@dataclass(frozen=True)
class Sent:
    """What one rank of a run sent."""

    rank: int
    messages: int
    nbytes: int  # of the messages
    collectives: str  # in order: 'broadcast', '7 x all_reduce of 120 bytes in all'


def sent_by_rank(trace: Trace) -> list[Sent]:
    table = []
    for part in trace.ranks:
        messages = [operation for operation in part.operations if operation.name == "send"]
        calls = [operation for operation in part.operations if operation.name not in ("send", "recv")]
        table.append(Sent(part.rank, len(messages), sum(each.payload for each in messages), _in_order(calls)))
    return table


def runs_text(name: str, trace: Trace) -> str:
    """The table of one run, for a terminal."""
    lines = [f"{name} ({trace.meta.world} ranks)"]
    for sent in sent_by_rank(trace):
        calls = f", {sent.collectives}" if sent.collectives else ""
        lines.append(f"  rank {sent.rank}: {sent.messages} sent, {size(sent.nbytes)}{calls}")
    return "\n".join(lines)


def runs_page(runs: Runs) -> str:
    """The tables of several runs side by side as HTML, each under its picture. Bars have one scale over all runs."""
    tables = [sent_by_rank(trace) for _, trace in runs]
    most = max((sent.nbytes for table in tables for sent in table), default=0)
    columns = [
        f'<div style="flex:1 1 300px;min-width:260px"><b>{escape(name)}</b>{_picture(trace)}{_table(table, most)}</div>'
        for (name, trace), table in zip(runs, tables, strict=True)
    ]
    return f'<div style="display:flex;flex-wrap:wrap;gap:16px;margin-top:6px">{"".join(columns)}</div>'


def _in_order(calls: Iterable[Operation]) -> str:
    """Those of one name that follow one another are counted."""
    parts = []
    for name, found in groupby(calls, lambda operation: operation.name):
        row = list(found)
        total = sum(operation.payload for operation in row)
        parts.append(f"{len(row)} × {name}{f' of {size(total)} in all' if total else ''}" if len(row) > 1 else name)
    return ", ".join(parts)


def _picture(trace: Trace) -> str:
    """The last exchange of a run as SVG; nothing where nothing was sent."""
    if not trace.positions or not any(rank.operations for rank in trace.ranks):
        return ""
    from kit.plot.messages import messages_svg
    from kit.plot.style import stylesheet

    drawing = messages_svg(trace, len(trace.positions) - 1)
    caption = f'<div style="color:{_SOFT}">its last exchange; below, all that was sent</div>'
    return f'<style>{stylesheet()}</style>{caption}<div style="{_SMALLER};overflow:hidden">{drawing}</div>'


_SMALLER = "max-width:100%;--ls-label:11.2px"  # beside another a picture has nine tenths of its size: 10 px are left
_CELL = "text-align:left;font-weight:normal;padding:1px 8px 1px 0"
_CHIP = "display:inline-block;min-width:16px;border-radius:8px;text-align:center"
_BAR = "display:inline-block;height:8px;border-radius:2px"


def _table(table: Sequence[Sent], most: int) -> str:
    called = any(sent.collectives for sent in table)
    messages = any(sent.messages for sent in table) or not called
    heads = ["rank", *(["sent", "bytes", ""] if messages else []), *(["collectives"] if called else [])]
    lines = []
    for sent in table:
        fill = rank_color(sent.rank)
        width = round(80 * sent.nbytes / most) if most else 0
        cells = [f'<span style="{_CHIP};color:{text_on(fill)};background:{fill}">{sent.rank}</span>']
        if messages:
            bar = f'<span style="{_BAR};width:{width}px;background:{fill}"></span>'
            cells += [str(sent.messages), size(sent.nbytes), bar]
        cells += [escape(sent.collectives)] if called else []
        lines.append(f"<tr>{''.join(_cell(content, 'td') for content in cells)}</tr>")
    head = "".join(_cell(text, "th") for text in heads)
    body = f"<thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody>"
    return f'<table style="border-collapse:collapse;margin:4px 0;font-size:inherit;color:inherit">{body}</table>'


def _cell(content: str, tag: str) -> str:
    return f'<{tag} style="{_CELL}">{content}</{tag}>'
