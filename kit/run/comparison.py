"""Several runs side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kit import shown
from kit.run.record import Formula, MemoryRecording, Recording

_HEADS = ("run", "ranks", "payload sent", "longest wait", "most held")


class Comparison:
    """What `kit.compare` returns: `str()` is a table, `[name]` a run, `plot()` their memory on one axis."""

    def __init__(self, runs: Mapping[str, Recording]) -> None:
        if not runs:
            raise ValueError('name at least one run: kit.compare({"ring": kit.record(ring, x)})')
        self.runs = dict(runs)
        self.about = next((run.about for run in self.runs.values() if run.about), "")

    def __getitem__(self, name: str) -> Recording:
        if name not in self.runs:
            raise KeyError(f"nothing is called {name!r} here: choose from {', '.join(self.runs)}")
        return self.runs[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.runs)

    @property
    def accounted(self) -> dict[str, MemoryRecording]:
        """The runs, if all of them accounted for memory. ValueError, with what to do, where one did not."""
        found = {name: run for name, run in self.runs.items() if isinstance(run, MemoryRecording)}
        without = [name for name in self.runs if name not in found]
        if without:
            raise ValueError(f"{without[0]} has no account of memory: kit.options(memory=True).record(fn) makes one")
        return found

    def plot(self, formula: Formula | Mapping[str, Formula] | None = None) -> Any:
        """What ranks held in each run, as stacked areas by kind, all on one axis.

        formula: run -> bytes, or run -> name -> bytes, drawn as dashed lines. ValueError for runs without an account of
        memory, and for a formula of a run that there is not.
        """
        return shown.plot(self, formula)

    def __str__(self) -> str:
        lines = [_HEADS, *(_cells(name, run) for name, run in self.runs.items())]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        table = ("  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)).rstrip() for line in lines)
        return "\n".join(table)

    __repr__ = __str__


def _cells(name: str, run: Recording) -> tuple[str, ...]:
    ranks = range(run.trace.meta.world)
    sent = max(run.trace.bytes_sent(rank).payload for rank in ranks)
    waited = max(run.trace.waiting_time(rank) for rank in ranks)
    held = max(run.peak(rank).nbytes for rank in ranks) if isinstance(run, MemoryRecording) else None
    most = "" if held is None else f"{held:,} B"
    return name, str(len(ranks)), f"{sent:,} B", f"{waited * 1e3:.2f} ms", most
