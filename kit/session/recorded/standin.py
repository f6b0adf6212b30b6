"""What `kit.cluster(..., replay=LAB)` returns where no cluster can be had: its face, answered from recordings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from html import escape
from typing import Any

from kit.cluster.links import Link
from kit.cost.sweep import Sweep
from kit.session.meta import Call
from kit.session.record import Recording, print_output
from kit.session.recorded import placeholders, shelf, values
from kit.session.recorded.cell import announce, running
from kit.session.recorded.sessions import NoRanks, RecordedError, RecordedRun, RecordedSession, changed
from kit.session.recorded.shelf import RECORD, STEP, SWEEP, Entry, Shelf
from kit.trace.facts import Trace

REMEDY = "'lockstep doctor' looks for what can be mended; after that restart the kernel."


@dataclass(frozen=True)
class RecordedReport:
    """What the recordings were made on, in the fields of a cluster's report: text, and a card in a notebook."""

    sentence: str
    ranks: int
    backend: str
    devices: tuple[str, ...]
    links: tuple[Link, ...]
    software: str

    def __str__(self) -> str:
        lines = [f"  {name.ljust(9)}  {value}" for name, value in self._lines()]
        return "\n".join([self._title(), self.sentence, *lines])

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        style = "text-align:left;vertical-align:top"
        rows = "".join(
            f"<tr><th style='{style}'>{name}</th><td style='{style}'>{escape(value)}</td></tr>"
            for name, value in self._lines()
        )
        return (
            f"<div class='ls-report'><div style='font-weight:600;margin-bottom:4px'>{escape(self._title())}</div>"
            f"<div class='ls-recorded' role='note' style='max-width:840px'>{escape(self.sentence)}</div>"
            f"<table aria-label='What the recordings were made on'>{rows}</table></div>"
        )

    def _title(self) -> str:
        return "No ranks here: recordings stand in for them"

    def _lines(self) -> list[tuple[str, str]]:
        made_on = f"{self.ranks} ranks on {', '.join(dict.fromkeys(self.devices))}, {self.backend}"
        links = [("link", f"{link.between}: {link.kind}") for link in self.links]
        return [("recorded", made_on), *links, ("software", self.software)]


class RecordedSweep(Sweep):
    """A sweep with the sentence that says what it is, `about`."""

    about = ""

    @classmethod
    def made_of(cls, sweep: Sweep, about: str) -> RecordedSweep:
        made = cls(**{part.name: getattr(sweep, part.name) for part in fields(sweep)})
        object.__setattr__(made, "about", about)
        return made


class NoLink:
    """What `kit.link` returns: the recordings were made with the links that the lab asks for."""

    def off(self) -> None:
        """Nothing to be undone."""

    def __enter__(self) -> NoLink:
        return self

    def __exit__(self, *problem: object) -> None:
        return None

    def __repr__(self) -> str:
        return "links as they were when this was recorded"


class StandIn:
    """Stands for a cluster, and says so wherever it answers. What has no recording raises NoRanks, with the reason."""

    live = running = False
    lost: dict[int, str] = {}
    idle_minutes: float | None = None

    def __init__(self, recordings: Shelf, why: str) -> None:
        self.shelf = recordings
        self.why = why
        self._calls: Counter[tuple[str, ...]] = Counter()  # how often each call was made, in this run of its cell

    # what the lab asks for

    def step(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> RecordedSession:
        """The session that the lab's cell has recorded, before the first line."""
        call = (function, args, kwargs)
        entry = self._find(STEP, call)
        traces = self.shelf.traces(entry)
        return RecordedSession(entry, traces, call, self._about(entry, traces[0], call))

    def record(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Recording:
        """The run that the lab's cell has recorded. RankError where it ended in one."""
        return self._record((function, args, kwargs))

    def record_on(self, ranks: int, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Recording:
        """As `record`, of the run on the first `ranks` ranks."""
        return self._record((function, args, kwargs), None if ranks == self.size else ranks)

    def _record(self, call: Call, first: int | None = None) -> Recording:
        entry = self._find(RECORD, call, first)
        (trace,) = self.shelf.traces(entry)
        about = self._about(entry, trace, call, first)
        announce(about)
        print_output(trace)
        if entry.error:
            error = RecordedError(entry.error, trace)
            error.about = about
            raise error
        return RecordedRun(entry, trace, call, about)

    def bandwidth(self) -> Sweep:
        """The sweep that the lab's cell has recorded."""
        sweep = self.shelf.sweep(self._find(SWEEP, None))
        about = self._sentence(sweep.started, sweep.ranks, sweep.backend, sweep.devices, sweep.software)
        announce(about)
        return RecordedSweep.made_of(sweep, about)

    def link(self) -> NoLink:
        return NoLink()

    def reset(self, preload: Sequence[str] = ()) -> StandIn:
        announce(self.sentence)
        return self

    def report(self) -> RecordedReport:
        links = tuple(Link(between, kind) for between, kind in self.shelf.links)
        made_on = self.shelf
        return RecordedReport(self.sentence, self.size, made_on.backend, made_on.devices, links, made_on.software)

    # as a cluster has it

    @property
    def size(self) -> int:
        """The number of ranks in the recordings."""
        return self.shelf.ranks

    @property
    def backend(self) -> str:
        return self.shelf.backend

    @property
    def devices(self) -> tuple[str, ...]:
        announce(self.sentence)
        return self.shelf.devices

    def ensure_running(self) -> StandIn:
        return self

    def stop(self) -> None:
        """There is nothing to end."""

    def stop_when_idle(self, minutes: float | None) -> StandIn:
        return self

    def __enter__(self) -> StandIn:
        return self

    def __exit__(self, *problem: object) -> None:
        return None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise AttributeError(f"cluster.{name} needs ranks, and there is no cluster here: {self.why} {REMEDY}")

    def __repr__(self) -> str:
        return f"Recordings of lab {self.shelf.lab} in the place of a cluster of {self.size} ranks"

    def _repr_mimebundle_(self, **ignored: Any) -> dict[str, str]:
        found = self.report()
        return {"text/plain": str(found), "text/html": found._repr_html_()}

    # the words

    @property
    def sentence(self) -> str:
        made_on = self.shelf
        return self._sentence(made_on.made, self.size, made_on.backend, made_on.devices, made_on.software, "Recordings")

    def _sentence(
        self, made: str, ranks: int, backend: str, devices: Sequence[str], software: str, what: str = "A recording"
    ) -> str:
        kinds = ", ".join(dict.fromkeys(device.partition(":")[0] for device in devices))
        made_on = f"{ranks} ranks ({backend}, {kinds}; {software})"
        return f"{what}, made on {made[:10]} with {made_on}, because there is no cluster here: {self.why} {REMEDY}"

    def _about(self, entry: Entry, trace: Trace, call: Call, first: int | None = None) -> str:
        meta = trace.meta
        software = ", ".join(f"{name} {number}" for name, number in meta.versions)
        sentence = self._sentence(meta.started, max(self.size, meta.world), meta.backend, meta.devices, software)
        if changed(call[0], entry):
            return f"{sentence} It is of the lab's version of {entry.function}, not of yours."
        if _given(call, first) not in (entry.arguments, ""):
            return f"{sentence} It is of the call with the lab's arguments: {entry.arguments}."
        return sentence

    def _find(self, mode: str, call: Call | None, first: int | None = None) -> Entry:
        name = getattr(call[0], "__name__", "") if call else ""
        given = _given(call, first) if call else ""
        cell, execution = running()
        calls = self.shelf.calls(mode, name, given, cell)
        if not calls:
            what = name if name else "This sweep"
            raise NoRanks(
                f"{what} needs ranks: lab {self.shelf.lab} has no recording of it, and there is no cluster here: "
                f"{self.why} {REMEDY}"
            )
        here = any(self.shelf.cells.get(entry.cell) == cell for entry in calls)
        key = (mode, name, given, execution if here else "")
        number = min(self._calls[key], len(calls) - 1)
        self._calls[key] += 1
        return calls[number]


def _given(call: Call, first: int | None = None) -> str:
    """The arguments as a recording has them; '' where placeholders stand for some."""
    if placeholders.standing():
        return ""
    return values.arguments(call[1], call[2], first)


def stand_in(lab: str, problem: Exception) -> StandIn:
    """The recordings of a lab, because of `problem`. ValueError, with both in its text, where they cannot be read."""
    why = placeholders.where_missing() or reason(problem)
    try:
        return StandIn(shelf.load(lab), why if why.endswith(".") else f"{why}.")
    except ValueError as unread:
        raise ValueError(f"{why.rstrip('.')}; nor can recordings stand in: {unread}") from problem


def reason(problem: Exception) -> str:
    """The first and the last line of a long account, which hold what it is and what caused it."""
    lines = [line.strip() for line in str(problem).splitlines() if line.strip()]
    if not lines:
        return type(problem).__name__
    if lines[0].startswith("Traceback"):
        return lines[-1]
    return lines[0] if len(lines) == 1 else f"{lines[0].rstrip(':')} ({lines[-1]})"
