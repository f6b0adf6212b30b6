"""Functions and arguments travel to the ranks by value, with their helpers, and their source lines with them.

The kernel calls `pack`, a rank opens the parcels. A function from a notebook cell, the learner's own module or a lab is
pickled whole; installed packages (torch, kit itself) are imported on the rank instead.
"""

from __future__ import annotations

import importlib
import inspect
import linecache
import os
import sys
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from types import FunctionType, ModuleType
from typing import Any

import cloudpickle

from kit.protocol.parcels import Parcel, packed

_KIT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_INSTALLED = tuple({os.path.realpath(sysconfig.get_paths()[k]) for k in ("stdlib", "platstdlib", "purelib", "platlib")})


class PerRank:
    """Arguments that differ by rank: rank r gets `values[r]`."""

    def __init__(self, values: Sequence[Any]) -> None:
        if isinstance(values, str) or not isinstance(values, Sequence):
            raise ValueError(f"per_rank takes a list with one value for each rank, not {type(values).__name__}")
        self.values = tuple(values)


# What makes torch load its compiler (torch._dynamo) when first used: seconds on every rank, more under the line tracer.
_LOADS_DYNAMO = (b"optim", b"DistributedDataParallel", b"fully_shard", b"torch.compile")


@dataclass(frozen=True)
class Package:
    """What the ranks need to run a function."""

    name: str
    function: Parcel
    arguments: tuple[Parcel, ...]  # one per rank: (args, kwargs)
    sources: dict[str, tuple[str, ...]]  # file -> lines, of all code shipped by value
    root_file: str  # of the function itself
    root_line: int

    @property
    def preload(self) -> tuple[str, ...]:
        """Modules that the code is likely to load, which the host agent can have ready for all ranks at once."""
        stream = bytes(self.function.stream())
        return ("torch._dynamo",) if any(name in stream for name in _LOADS_DYNAMO) else ()


def pack(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], world: int) -> Package:
    """Pickles `fn` and each rank's arguments. ValueError when something cannot travel or the number of values is
    wrong.
    """
    if not callable(fn):
        raise ValueError(f"give a function to run on the ranks, not {type(fn).__name__}: kit.step(fn, *args)")
    _runs_when_called(fn)
    for value in (*args, *kwargs.values()):
        if isinstance(value, PerRank) and len(value.values) != world:
            raise ValueError(
                f"per_rank holds {len(value.values)} values, and there are {world} ranks: give one for each"
            )
    with _by_value():
        files: set[str] = set()
        function = _packed(fn, files, "the function")
        differs = any(isinstance(v, PerRank) for v in (*args, *kwargs.values()))
        blobs = [_packed(_of_rank(args, kwargs, r), files, "an argument") for r in range(world if differs else 1)]
    code = getattr(inspect.unwrap(fn), "__code__", None)
    return Package(
        name=getattr(fn, "__name__", type(fn).__name__),
        function=function,
        arguments=tuple(blobs) if differs else tuple(blobs) * world,
        sources={file: _lines(file) for file in sorted(files)},
        root_file=code.co_filename if code else "",
        root_line=code.co_firstlineno if code else 0,
    )


def _runs_when_called(fn: Callable[..., Any]) -> None:
    name = getattr(fn, "__name__", "this")
    if inspect.iscoroutinefunction(fn):
        raise ValueError(
            f"{name} is an async function, and calling it runs nothing of it: write def, and asyncio.run(...) inside"
        )
    if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
        raise ValueError(
            f"{name} is a generator (it says yield), and calling it runs nothing of it: return a list instead, or give "
            "a function that goes through it"
        )


def show_sources(sources: dict[str, tuple[str, ...]]) -> None:
    """Makes tracebacks and `inspect.getsource` in this process show code that came by value."""
    for file, lines in sources.items():
        if lines:
            text = [line + "\n" for line in lines]
            linecache.cache[file] = (sum(map(len, text)), None, text, file)


class Pickler(cloudpickle.Pickler):
    """Leaves the values of large tensors, wherever they stand in an object, to the parcel it goes into."""

    def reducer_override(self, obj: Any) -> Any:
        if "torch" in sys.modules:  # else there is no tensor in it
            from kit.probe import storages

            reduced = storages.reduced(obj)
            if reduced is not None:
                return reduced
        return super().reducer_override(obj)


class _Shipper(Pickler):
    def __init__(self, files: set[str], *stream: Any) -> None:
        super().__init__(*stream)
        self._files = files

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, ModuleType) and sys.modules.get(obj.__name__) is obj and type(obj) is not ModuleType:
            return importlib.import_module, (obj.__name__,)  # torch.distributed.config and its kind
        reduced = super().reducer_override(obj)
        if isinstance(obj, FunctionType) and reduced is not NotImplemented:
            self._files.add(obj.__code__.co_filename)
        return reduced


def _packed(obj: Any, files: set[str], what: str) -> Parcel:
    try:
        return packed(obj, partial(_Shipper, files))
    except Exception as error:  # whatever a learner's object raises while it is pickled
        raise ValueError(
            f"{what} cannot be sent to the ranks ({type(error).__name__}: {error}). Open files, locks, widgets and "
            "generators cannot travel: create them inside the function."
        ) from error


def _of_rank(args: tuple[Any, ...], kwargs: dict[str, Any], rank: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
    def pick(value: Any) -> Any:
        return value.values[rank] if isinstance(value, PerRank) else value

    return tuple(map(pick, args)), {key: pick(value) for key, value in kwargs.items()}


def _lines(file: str) -> tuple[str, ...]:
    return tuple(line.rstrip("\n") for line in linecache.getlines(file))


@contextmanager
def _by_value() -> Iterator[None]:
    """While open, the learner's own modules are pickled whole."""
    modules = [m for m in list(sys.modules.values()) if _is_own(m) and m.__name__ != "__main__"]
    registered = []
    for module in modules:
        if module.__name__ in sys.modules and module.__name__ not in cloudpickle.list_registry_pickle_by_value():
            cloudpickle.register_pickle_by_value(module)
            registered.append(module)
    try:
        yield
    finally:
        for module in registered:
            cloudpickle.unregister_pickle_by_value(module)


def _is_own(module: object) -> bool:
    file = getattr(module, "__file__", None) if isinstance(module, ModuleType) else None
    if not isinstance(file, str) or "site-packages" in file or "dist-packages" in file:
        return False
    path = os.path.realpath(file)
    return path.endswith(".py") and not path.startswith((*_INSTALLED, _KIT + os.sep))
