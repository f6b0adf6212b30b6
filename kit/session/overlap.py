"""`kit.overlap`: one training function recorded under several settings, to see how much communication it hides."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from numbers import Integral
from typing import TYPE_CHECKING, Any

import kit
from kit.cost.sweep import size_text
from kit.trace.overlap import Overlap

if TYPE_CHECKING:
    from kit.session.record import Recording

NONE = "no overlap"


class Overlaps:
    """What `kit.overlap` returns: `runs` (name -> recording), `[name]` (an `Overlap`), `plot()`."""

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
        return kit.plot_overlap(self._seen, about=self.about)

    def __repr__(self) -> str:
        wide = max(map(len, self._seen))
        lines = [
            f"{name.ljust(wide)}  {one.worst.exposed * 1e3:8.2f} ms of {one.worst.communication * 1e3:8.2f} ms exposed"
            f" ({one.worst.exposed_share * 100:3.0f} %), step {one.seconds * 1e3:8.2f} ms"
            for name, one in self._seen.items()
        ]
        return "\n".join([*lines, next(iter(self._seen.values())).link or "links as fast as they are"])


def compare(
    cluster: Any,
    function: Callable[..., Any],
    settings: Mapping[str, Any] | Sequence[Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    step: int = -1,
) -> Overlaps:
    """Records `function(setting, *args, **kwargs)` for each setting. See `kit.overlap`."""
    named = dict(settings) if isinstance(settings, Mapping) else {named_by(value): value for value in settings}
    if not named:
        raise ValueError("name at least one setting, for example settings=[25_000, 1_000_000, None]")
    return Overlaps({name: cluster.record(function, value, *args, **kwargs) for name, value in named.items()}, step)


def named_by(setting: Any) -> str:
    """'buckets of 1 MB' for a number of bytes, 'no overlap' for None, else the setting as text."""
    if setting is None:
        return NONE
    whole = isinstance(setting, Integral) and not isinstance(setting, bool)
    return f"buckets of {size_text(int(setting))}" if whole else str(setting)
