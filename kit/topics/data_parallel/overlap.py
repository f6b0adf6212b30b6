"""One training function recorded under several settings, to see how much communication it hides."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from numbers import Integral
from typing import TYPE_CHECKING, Any

from kit.run.options import Options
from kit.trace.text import size_text

if TYPE_CHECKING:
    from kit.run.results import Recording
    from kit.trace.overlap import Overlap

NONE = "no overlap"


class Overlaps:
    """What `measure_overlap` returns: `runs` (name -> recording), `[name]` (an `Overlap`), `plot()`."""

    def __init__(self, runs: Mapping[str, Recording], step: int = -1) -> None:
        self.runs = dict(runs)
        self._seen: dict[str, Overlap] = {name: run.trace.overlap(step) for name, run in self.runs.items()}
        self.about = next((said for run in self.runs.values() if (said := getattr(run, "about", ""))), "")

    def __getitem__(self, name: str) -> Overlap:
        if name not in self._seen:
            raise KeyError(f"nothing was recorded as {name!r}: choose from {', '.join(self._seen)}")
        return self._seen[name]

    def __iter__(self) -> Any:
        return iter(self._seen)

    def plot(self) -> Any:
        """Computing over communication for each setting, on one time axis; what was exposed in its own colour."""
        return plot_overlap(self._seen, about=self.about)

    def __repr__(self) -> str:
        wide = max(map(len, self._seen))
        lines = [
            f"{name.ljust(wide)}  {one.worst.exposed * 1e3:8.2f} ms of {one.worst.communication * 1e3:8.2f} ms exposed"
            f" ({one.worst.exposed_share * 100:3.0f} %), step {one.seconds * 1e3:8.2f} ms"
            for name, one in self._seen.items()
        ]
        return "\n".join([*lines, next(iter(self._seen.values())).link or "links as fast as they are"])


def measure_overlap(
    function: Callable[..., Any],
    settings: Mapping[str, Any] | Sequence[Any],
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    step: int = -1,
    options: Options | None = None,
) -> Overlaps:
    """Records `function(setting, *args, **kwargs)` for each setting, and says how much communication each run hid.

    settings: name -> value, or values: bytes of a bucket, None for no overlap. step: which training step of each run
    is looked at (negative: counted from the last; the first ones warm up). options: how to record, `kit.options(...)`.
    Ranks that share processors cannot show overlap honestly, so use it with slow links: `with kit.link(latency=1e-3,
    bandwidth=5e7): ...`; only then ends of operations and passes are noted exactly. Raises as `kit.record`.
    """
    named = dict(settings) if isinstance(settings, Mapping) else {named_by(value): value for value in settings}
    if not named:
        raise ValueError("name at least one setting, for example settings=[25_000, 1_000_000, None]")
    how = options or Options()
    return Overlaps({name: how.record(function, value, *args, **(kwargs or {})) for name, value in named.items()}, step)


def plot_overlap(measured: Any, step: int = -1, about: str = "") -> Any:
    """Computing over communication in a training step, what was exposed in its own colour and as a number.

    measured: a recording, a trace or its `overlap()`; or name -> that, for several settings on one time axis.
    """
    from kit.topics.data_parallel.panels import overlap_panel

    def trace_of(one: Any) -> Any:
        return getattr(one, "trace", one)

    if not isinstance(measured, Mapping):
        return overlap_panel(trace_of(measured), step, about or getattr(measured, "about", ""))
    return overlap_panel({name: trace_of(one) for name, one in measured.items()}, step, about)


def named_by(setting: Any) -> str:
    """'buckets of 1 MB' for a number of bytes, 'no overlap' for None, else the setting as text."""
    if setting is None:
        return NONE
    whole = isinstance(setting, Integral) and not isinstance(setting, bool)
    return f"buckets of {size_text(int(setting))}" if whole else str(setting)
