"""`kit.cluster(..., replay=LAB)` where no cluster can be had: the lab's calls are answered from its recordings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from kit.clusters.links import Link
from kit.run.cursor import Replay, Steppable
from kit.run.errors import NoRanks, NotFinished, RankError
from kit.run.record import print_output
from kit.run.recordings import index, values
from kit.run.recordings.cell import announce, running, source_of
from kit.run.recordings.index import KEPT, RECORD, STEP, SWEEP, Entry, RecordingIndex
from kit.run.results import Recording
from kit.run.runner import Runner, RunOptions, SweepPlan
from kit.tables import html_facts, text_facts

if TYPE_CHECKING:
    from kit.cost.sweep import Sweep
    from kit.protocol.messages import How
    from kit.run.call import Call
    from kit.run.slow_links import SlowLinks
    from kit.trace.facts import Position
    from kit.trace.trace import Trace

REMEDY = "'lockstep doctor' looks for what can be mended; after that restart the kernel."


@dataclass(frozen=True)
class ReplayReport:
    """What the recordings were made on, in the fields of a cluster's report: text, and a card in a notebook."""

    sentence: str
    ranks: int
    backend: str
    devices: tuple[str, ...]
    links: tuple[Link, ...]
    software: str

    def __str__(self) -> str:
        return text_facts(f"{self._title()}\n{self.sentence}", self._lines())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        said = f"<div class='ls-recorded' role='note' style='max-width:840px'>{escape(self.sentence)}</div>"
        return html_facts(self._title(), "What the recordings were made on", self._lines(), said)

    def _title(self) -> str:
        return "No ranks here: recordings stand in for them"

    def _lines(self) -> list[tuple[str, str]]:
        made_on = f"{self.ranks} ranks on {', '.join(dict.fromkeys(self.devices))}, {self.backend}"
        links = [("link", f"{link.between}: {link.kind}") for link in self.links]
        return [("recorded", made_on), *links, ("software", self.software)]


class ReplaySession(Replay, Steppable):
    """A session whose ranks have gone this way before. A motion goes where the same motion led when it was recorded.

    Motions that were not made then go one position on. `about` is the sentence that says what this is.
    """

    def __init__(self, entry: Entry, traces: Sequence[Trace], call: Call, about: str) -> None:
        super().__init__(traces[0])
        self._entry, self._lives, self._call = entry, list(traces), call
        self.about = about

    @property
    def ended(self) -> str | None:
        return "a recording"

    def reset(self) -> Position:
        """Before the first line, in the record of what the lab did from there on."""
        announce(self.about)
        if len(self._lives) > 1:
            self._lives.pop(0)
            self._trace = self._lives[0]
        return self.seek(0)

    def before_reset(self, listener: Callable[[], None]) -> None:
        """A recording is never lost."""

    def close(self) -> None:
        """There are no ranks to be let go."""

    @property
    def results(self) -> list[Any]:
        announce(self.about)
        if self._entry.results is None:
            raise NotFinished("not every rank had finished when this was recorded: there are no results")
        return [values.decode(result) for result in self._entry.results]

    def export(self, path: str | Path) -> Path:
        from kit.run.export import write

        announce(self.about)
        return write(path, *self._call, world=self._trace.meta.world)

    def _move(
        self, how: How, ranks: Sequence[int] | None, timeout: float, line: int = 0, file: str | None = None
    ) -> Position:
        announce(self.about)
        later = range(self._position + 1, len(self._trace.positions))
        led_to = (index for index in later if self._trace.positions[index].motion.partition(" ")[0] == how)
        found = next(led_to, None)
        if found is not None:
            return self.seek(found)
        return self.seek(-1) if how == "finish" else self.forward()

    def __repr__(self) -> str:
        return f"Recorded session of {self._trace.meta.function}: position {self._position}\n{self.state}"


class ReplayRunner(Runner):
    """Answers from recordings, and says so wherever it does. What has no recording raises NoRanks, with the reason.

    A call is found by its notebook cell, its function, and how often that cell has made it.
    """

    def __init__(self, recordings: RecordingIndex, why: str) -> None:
        self.recordings = recordings
        self.no_ranks_because = why
        self._calls: Counter[tuple[str, ...]] = Counter()  # how often each call was made, in this run of its cell

    @classmethod
    def in_place_of_ranks(cls, lab: str, problem: Exception) -> ReplayRunner:
        """The recordings of a lab, because of `problem`. ValueError, with both in its text, where there are none."""
        why = reason(problem)
        try:
            return cls(index.load(lab), why if why.endswith(".") else f"{why}.")
        except ValueError as unread:
            raise ValueError(f"{why.rstrip('.')}; nor can recordings stand in: {unread}") from problem

    def open_session(self, call: Call, options: RunOptions) -> ReplaySession:
        entry = self._find(STEP, call)
        traces = self.recordings.traces(entry)
        return ReplaySession(entry, traces, call, self._about(entry, traces[0], call))

    def run(self, call: Call, options: RunOptions, quiet: bool = False) -> Recording:
        world = options.world(self.size)
        first = None if world == self.size else world
        entry = self._find(RECORD, call, first)
        (trace,) = self.recordings.traces(entry)
        about = self._about(entry, trace, call, first)
        announce(about)
        print_output(trace)
        if entry.error:
            raise RankError(entry.error, trace, about)
        results = entry.results or ()
        return Recording.of(trace, lambda: [values.decode(result) for result in results], call, about)

    def sweep(self, plan: SweepPlan) -> Sweep:
        sweep = self.recordings.sweep(self._find(SWEEP))
        about = self._sentence(sweep.started, sweep.ranks, sweep.backend, sweep.devices, sweep.software)
        announce(about)
        return replace(sweep, about=about)

    def kept(self, name: str) -> str:
        """What `keep` was given in this cell when the lab was recorded."""
        announce(self.sentence)
        return self.recordings.kept(self._find(KEPT, name))

    def kill(self, rank: int) -> None:
        """Nobody is there to be killed; what came of it is recorded."""
        announce(self.sentence)

    @property
    def links(self) -> SlowLinks | None:
        """As the lab asked for when it was recorded: nothing is slowed here."""
        return None

    @links.setter
    def links(self, slow: SlowLinks | None) -> None:
        pass

    def reset(self) -> Self:
        announce(self.sentence)
        return self

    def stop(self) -> None:
        """There is nothing to end."""

    def report(self) -> ReplayReport:
        made_on = self.recordings
        links = tuple(Link(*link) for link in made_on.links)
        return ReplayReport(self.sentence, self.size, made_on.backend, made_on.devices, links, made_on.software)

    @property
    def size(self) -> int:
        """The number of ranks in the recordings."""
        return self.recordings.ranks

    @property
    def backend(self) -> str:
        return self.recordings.backend

    @property
    def devices(self) -> tuple[str, ...]:
        announce(self.sentence)
        return self.recordings.devices

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise AttributeError(f"cluster.{name} needs ranks, and there is {self._no_cluster}")

    def __repr__(self) -> str:
        return f"Recordings of lab {self.recordings.lab} in place of a cluster of {self.size} ranks"

    def _repr_mimebundle_(self, **ignored: Any) -> dict[str, str]:
        found = self.report()
        return {"text/plain": str(found), "text/html": found._repr_html_()}

    # the words

    @property
    def sentence(self) -> str:
        """What stands in for the ranks, and why."""
        of = self.recordings
        return self._sentence(of.made, self.size, of.backend, of.devices, of.software, "Recordings")

    def _sentence(
        self, made: str, ranks: int, backend: str, devices: Sequence[str], software: str, what: str = "A recording"
    ) -> str:
        kinds = ", ".join(dict.fromkeys(device.partition(":")[0] for device in devices))
        made_on = f"{ranks} ranks ({backend}, {kinds}; {software})"
        return f"{what}, made on {made[:10]} with {made_on}, because there is {self._no_cluster}"

    @property
    def _no_cluster(self) -> str:
        return f"no cluster here: {self.no_ranks_because} {REMEDY}"

    def _about(self, entry: Entry, trace: Trace, call: Call, first: int | None = None) -> str:
        meta = trace.meta
        software = ", ".join(f"{name} {number}" for name, number in meta.versions)
        sentence = self._sentence(meta.started, max(self.size, meta.world), meta.backend, meta.devices, software)
        text = source_of(call.function)
        if text and entry.source and text != entry.source:
            return f"{sentence} It shows the lab's version of {entry.function}, not yours."
        if values.arguments(*call[1:], first) != entry.arguments:
            return f"{sentence} It shows the call with the lab's arguments: {entry.arguments}."
        return sentence

    def _find(self, mode: str, call: Call | str = "", first: int | None = None) -> Entry:
        """call: what was run; or by its name what was kept."""
        name = call if isinstance(call, str) else call.name
        given = "" if isinstance(call, str) else values.arguments(*call[1:], first)
        cell, execution = running()
        found = self.recordings.calls(mode, name, given, cell)
        if not found:
            raise NoRanks(
                f"{name or 'This sweep'} needs ranks: lab {self.recordings.lab} has no recording of it, and there is "
                f"{self._no_cluster}"
            )
        here = any(self.recordings.cells.get(entry.cell) == cell for entry in found)
        key = (mode, name, given, execution if here else "")
        number = min(self._calls[key], len(found) - 1)
        self._calls[key] += 1
        return found[number]


def reason(problem: Exception) -> str:
    """The first and the last line of a long account, which hold what it is and what caused it."""
    lines = [line.strip() for line in str(problem).splitlines() if line.strip()]
    if not lines:
        return type(problem).__name__
    if lines[0].startswith("Traceback"):
        return lines[-1]
    return lines[0] if len(lines) == 1 else f"{lines[0].rstrip(':')} ({lines[-1]})"
