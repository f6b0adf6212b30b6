"""What a check found, as words and as a card in the notebook."""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape
from typing import Literal

from kit.check import beside
from kit.check.spec import Draw
from kit.check.words import html_of
from kit.trace.facts import Trace

Status = Literal["not attempted", "failed", "passed"]
Stage = Literal["", "values", "traffic", "cost"]
_LOOK = {  # colour and head word of the card
    "not attempted": ("#8c959f", "not attempted"),
    "failed": ("#D55E00", "not yet"),
    "passed": ("#009E73", "right"),
}
_last: dict[str, Verdict] = {}


@dataclass(frozen=True)
class Verdict:
    """The outcome of a check. `str()` is what a person reads; a notebook shows the card."""

    exercise: str
    status: Status
    stage: Stage = ""  # where it failed
    sentence: str = ""  # the first thing that is wrong, or what a passed check says
    seed: int = 0
    worlds: tuple[int, ...] = ()  # the world sizes on which the values are right
    run: Trace | None = field(default=None, repr=False)  # the learner's, of the case the sentence is about
    target: Trace | None = field(default=None, repr=False)  # the solution's, on the same kind of input
    draw: Draw | None = field(default=None, repr=False)
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

    def __str__(self) -> str:
        told = "not attempted" if not self.attempted else self.sentence
        if self.status == "failed":
            told = f"{self._values()}{self.stage.capitalize()}: {told}"
        return f"{self.exercise}: {told}\n{self.detail}" if self.detail else f"{self.exercise}: {told}"

    def side_by_side(self) -> str:
        """My run beside the target as plain text: per rank, what was sent and which collectives were called."""
        columns = [("my run", self.run), ("target", self.target)]
        return "\n\n".join(beside.text(name, trace) for name, trace in columns if trace is not None)

    def __repr__(self) -> str:  # what a notebook without HTML, and papermill, show
        return str(self)

    def _repr_html_(self) -> str:
        colour, head = _LOOK[self.status]
        lines = [f'<div><code>{escape(self.exercise)}</code> <b style="color:{colour}">{head}</b></div>']
        if self.passed:
            lines.append(f"<div>{html_of(_capital(self.sentence))}</div>")
        elif self.attempted:
            stage, sentence = escape(self.stage.capitalize()), html_of(self.sentence)
            lines.append(f"<div>{escape(self._values())}<b>{stage}:</b> {sentence}</div>")
        if self.detail:
            lines.append(f'<div style="color:{_SOFT};font-size:90%">{escape(self.detail)}</div>')
        lines.append(self._pictures())
        names = f"ls-verdict ls-verdict-{self.status.replace(' ', '-')}"
        return f'<div class="{names}" role="status" style="{_CARD};border-left-color:{colour}">{"".join(lines)}</div>'

    def _values(self) -> str:
        return f"Values: right on {', '.join(map(str, self.worlds))} ranks. " if self.worlds else ""

    def _pictures(self) -> str:
        if self.target is None:
            return ""
        if self.run is None:
            picture = beside.page([("target", self.target)], self.draw)
            return f"<div>The target, on {self.target.meta.world} ranks:</div>{picture}"
        both = beside.page([("my run", self.run), ("target", self.target)], self.draw)
        return f'<details class="ls-beside"><summary>Show my run beside the target</summary>{both}</details>'


_SOFT = "var(--jp-ui-font-color2, #57606a)"
_CARD = ";".join(
    (
        "font-family:var(--jp-ui-font-family, system-ui, sans-serif)",
        "font-size:13px;line-height:1.5;max-width:840px;padding:8px 12px",
        "background:var(--jp-layout-color1, #fff);color:var(--jp-ui-font-color1, #1f2328)",
        "border:1px solid var(--jp-border-color2, #d0d7de);border-left-width:4px;border-radius:6px",
    )
)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def remember(verdict: Verdict) -> Verdict:
    """Keep the latest verdict of each exercise, so that its solution can be shown beside the learner's run."""
    _last[verdict.exercise] = verdict
    return verdict


def latest(identity: str) -> Verdict | None:
    """The latest verdict of an exercise in this kernel."""
    return _last.get(identity)
