"""`kit.options(...)`: how a function is run, said before it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kit.run.call import Call
from kit.run.runner import Runner, RunOptions

if TYPE_CHECKING:
    from kit.run.cursor import Steppable
    from kit.run.results import Recording


@dataclass(frozen=True, kw_only=True)
class Options(RunOptions):
    """How a function is run: `kit.options(ranks=2, memory=True).record(fn, *args)`. All that is left out is as usual.

    ranks: the first so many of the cluster's; with `threads` any number up to 128, which the machine need not have.
    threads: ranks are threads of one process, a fork of the cluster's, on the CPU. One works at a time, until it waits
    for others, so values, messages and bytes are those of so many processes; times are not, and the trace says so. The
    function's own classes and modules are each rank's; what it writes into an installed package is there for all.
    patience: seconds that one such thread may work without talking to another before the run is given up.
    limit: seconds after which a recorded run is given up, with a sentence that says who still runs and who waits. None:
    never; who runs and who waits is shown while it lasts, and Ctrl-C ends it.
    memory: every rank accounts for what it holds, by kind: parameters, gradients, optimizer state, activations,
    communication buffers, other. Times are longer than without. Kinds are found by what is done with a storage; an
    object with a method `tensors_held()`, which gives a dict of kind -> tensors, says its own.
    kinds: for a kind of memory the names of the function's variables that hold it, {"optimizer state": ["m", "v"]}.
    link: `kit.link(...)`, links slowed for these runs alone.
    cluster: whose ranks; None: those of this kernel.

    Raises ValueError, with the fix in its text, for what cannot be.
    """

    cluster: Runner | None = None

    def step(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Steppable:
        """Steps `function(*args, **kwargs)`: see `kit.step`. ValueError for ranks, threads, memory and limit."""
        if self.ranks is not None or self.threads or self.memory or self.limit is not None:
            raise ValueError(
                "ranks, threads, memory and limit are options of a record: kit.options(...).record(fn); a session "
                "steps all ranks of its cluster"
            )
        return self._runner().open_session(Call(function, args, kwargs), self)

    def record(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Recording:
        """Runs `function(*args, **kwargs)` at full speed: see `kit.record`."""
        return self._runner().run(Call(function, args, kwargs), self)

    def _runner(self) -> Runner:
        from kit.run import current

        return self.cluster or current.runner()
