"""What comes of running a function at full speed: a recording, and several of them side by side."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kit import shown
from kit.tables import Rows, Table

if TYPE_CHECKING:
    from kit.protocol.parcels import Parcel
    from kit.run.call import Call
    from kit.trace.memory import Holdings, Peak
    from kit.trace.trace import Trace

Formula = float | Mapping[str, float]  # bytes; or several of them, each with its name
SHOWN = 16  # elements of a tensor that are written out


class Recording:
    """What `kit.record` returns: `trace`, `results` (a list by rank), `panel()`, `plot()`, `export(path)`."""

    def __init__(self, trace: Trace, results: Callable[[], list[Any]], call: Call, about: str = "") -> None:
        self.trace = trace
        self.about = about  # what a reader must know first: that this was recorded elsewhere
        self._read = results
        self._call = call

    @staticmethod
    def of(trace: Trace, results: Callable[[], list[Any]], call: Call, about: str = "") -> Recording:
        """A recording, with `holdings` where ranks accounted for their memory. results(): what each rank returned."""
        accounted = any(rank.account for rank in trace.ranks)
        return (MemoryRecording if accounted else Recording)(trace, results, call, about)

    @cached_property
    def results(self) -> list[Any]:
        """What the function returned, by rank."""
        return self._read()

    def export(self, path: str | Path) -> Path:
        """Writes a plain script, without kit, that torchrun or mpiexec starts with the same function and arguments."""
        from kit.run.export import write

        return write(path, *self._call, world=self.trace.meta.world)

    def panel(self, predicted: Trace | Callable[[Trace], Trace] | None = None) -> Any:
        """Traffic and time by rank, `predicted` above measured; words and a still picture outside a notebook."""
        return shown.panel(self, predicted)

    def plot(self) -> Any:
        """What every rank did when."""
        return shown.plot(self)

    def __repr__(self) -> str:
        meta = self.trace.meta
        lines = format_results(self.results)
        return "\n".join([f"{meta.function} on {meta.world} ranks ({meta.backend})", *lines])


class MemoryRecording(Recording):
    """A recording whose ranks accounted for their memory: `holdings`, `peak(rank)`; `plot()` shows areas by kind."""

    @cached_property
    def holdings(self) -> Holdings:
        return self.trace.holdings()

    def peak(self, rank: int, kinds: Collection[str] | None = None) -> Peak:
        """When a rank held most, of some kinds of memory together (None: of all)."""
        return self.holdings.peak(rank, kinds)

    def plot(self, formula: Formula | None = None) -> Any:
        """What each rank held, as stacked areas; `formula` (bytes, or name -> bytes) as lines over them."""
        return shown.plot(self, formula)

    def __repr__(self) -> str:
        meta = self.trace.meta
        lines = [f"{meta.function} on {meta.world} ranks, memory by {self.holdings.method}"]
        for rank in range(meta.world):
            peak = self.peak(rank)
            parts = ", ".join(f"{kind} {size:,}" for kind, size in peak.parts)
            where = f" in {peak.within}" if peak.within else ""
            lines.append(f"rank {rank}: {peak.nbytes:,} bytes at most{where} ({parts})")
        return "\n".join(lines)


class Comparison(Table):
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

    def table(self) -> tuple[str, Rows, Sequence[str]]:
        head = ("run", "ranks", "payload sent", "longest wait", "most held")
        return "", [head, *(_cells(name, run) for name, run in self.runs.items())], ()


def _cells(name: str, run: Recording) -> tuple[str, ...]:
    ranks = range(run.trace.meta.world)
    sent = max(run.trace.bytes_sent(rank).payload for rank in ranks)
    waited = max(run.trace.waiting_time(rank) for rank in ranks)
    held = max(run.peak(rank).nbytes for rank in ranks) if isinstance(run, MemoryRecording) else None
    most = "" if held is None else f"{held:,} B"
    return name, str(len(ranks)), f"{sent:,} B", f"{waited * 1e3:.2f} ms", most


def opened(results: Mapping[int, Parcel]) -> list[Any]:
    """What each rank returned, by rank. ValueError for what only the ranks can have."""
    try:
        return [results[rank].opened() for rank in sorted(results)]
    except Exception as error:  # whatever an object does as it is made anew, without the groups of its rank
        raise ValueError(
            f"what the function returned is of no use outside its ranks ({type(error).__name__}: {error}): return "
            "tensors or plain data, of a wrapped model its state_dict()"
        ) from error


def format_results(results: Sequence[Any]) -> list[str]:
    """A line for each rank, 'rank 2: [111, 111]', or nothing when no rank returned anything."""
    if all(result is None for result in results):
        return []
    return [f"rank {rank}: {format_value(result)}" for rank, result in enumerate(results)]


def format_value(value: Any) -> str:
    """A returned value as a person reads it: numbers without trailing zeros, large tensors by shape and dtype."""
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(format_value(item) for item in value)}]"
    if hasattr(value, "numel") and hasattr(value, "tolist"):
        return _tensor(value)
    return repr(value)


def _tensor(tensor: Any) -> str:
    if tensor.numel() <= SHOWN:
        return format_value(tensor.tolist())
    return f"{' x '.join(map(str, tensor.shape))} of {str(tensor.dtype).removeprefix('torch.')}"
