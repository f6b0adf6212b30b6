"""What every rank will need, imported once in the agent before the fork, so that all ranks share the memory of it.

Some things are worth it only for those who use them: `torch._dynamo`, which every optimizer and every
DistributedDataParallel loads when the first is made, is 1 s and 70 MB. A rank that loads it says so, and the agent has
it before it forks again.
"""

from __future__ import annotations

import ctypes
import importlib
import mmap
import sys
from collections.abc import Callable, Iterable
from importlib.abc import MetaPathFinder
from typing import Any

from kit.protocol.messages import Loads

NEEDED = (
    "torch",
    "torch.distributed",
    "torch.nn.parallel",
    "numpy.random",
    "ipyparallel.engine.app",
    "ipykernel.zmqshell",
    "IPython.core.completerlib",
    "IPython.core.oinspect",
    "IPython.extensions.storemagic",
    "IPython.utils.wildcard",
    "sqlite3",
    "tornado.platform.asyncio",
    "tornado.queues",
    "kit.clusters.host.rank_process",
    "kit.probe.rank",
)

WHEN_USED = frozenset({"torch._dynamo"})


def preload() -> None:
    """Imports what ranks need. ModuleNotFoundError when the environment lacks a part of it."""
    importlib.import_module("torch")
    _leave_the_debugger_out()
    for name in NEEDED:
        importlib.import_module(name)
    _let_go_of_code()


def preload_used(names: Iterable[str]) -> None:
    """Imports what the ranks of the last generation had loaded themselves. `names`: of `WHEN_USED`."""
    for name in names:
        importlib.import_module(name)


class Overhear(MetaPathFinder):
    """Finds nothing; tells when a module of `WHEN_USED` is looked for, which happens once, as it is loaded."""

    def __init__(self, tell: Callable[[Loads], None]) -> None:
        self._tell = tell

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if name in WHEN_USED:
            self._tell(Loads(name))


def _let_go_of_code() -> None:
    """Unmaps the code that importing has run, 50 MB of libtorch that hardly anything runs again.

    What does comes back from the page cache, page by page. Only code: it is never written to, while the data of a
    library has been relocated in place and would be lost. A kernel that refuses, as for locked memory, costs memory
    alone.
    """
    libc = ctypes.CDLL(None)
    with open("/proc/self/maps") as maps:
        mappings = [line.split(maxsplit=5) for line in maps]
    for span, access, _, _, _, *path in mappings:
        if access == "r-xp" and path and path[0].startswith("/"):
            start, end = (int(address, 16) for address in span.split("-"))
            libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), mmap.MADV_DONTNEED)


def _leave_the_debugger_out() -> None:
    """ipykernel would load debugpy into each rank, 10 MB and 0.4 s that nothing uses; learners can still import it."""
    hidden = sys.modules.get("debugpy")
    sys.modules["debugpy"] = None  # type: ignore[assignment]
    try:
        importlib.import_module("ipykernel.debugger")
    finally:
        del sys.modules["debugpy"]
        if hidden is not None:
            sys.modules["debugpy"] = hidden
