"""Functions and arguments travel to the ranks by value, with their helpers, and their source lines with them.

A function from a notebook cell, the learner's own module or a lab is pickled whole; installed packages (torch, kit
itself) are imported on the rank instead. Of a module of the learner's there goes first what the function names; the
rest follows in parcels of its own, which a rank opens when somebody asks for more (see `arrival`).
"""

from __future__ import annotations

import importlib
import inspect
import linecache
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any

import cloudpickle

from kit.probe.arrival import Described, arriving_module, arriving_namespace, settle
from kit.probe.own import own_modules, source_lines
from kit.protocol.parcels import Parcel, packed


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
    rest: tuple[Parcel, ...]  # each of the learner's modules that travel, with all that is in it
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
    with _by_value() as own:
        shipment = _Shipment(own)
        function = shipment.given(fn, "the function", followed=True)
        differs = any(isinstance(v, PerRank) for v in (*args, *kwargs.values()))
        given = [_of_rank(args, kwargs, rank) for rank in range(world if differs else 1)]
        parcels = [shipment.given(each, "an argument", followed=False) for each in given]
        files = shipment.files | _files_behind(shipment.named, own)
        rest = shipment.rest()
    code = getattr(inspect.unwrap(fn), "__code__", None)
    return Package(
        name=getattr(fn, "__name__", type(fn).__name__),
        function=function,
        rest=rest,
        arguments=tuple(parcels) if differs else tuple(parcels) * world,
        sources={file: source_lines(file) for file in sorted(files) if not _is_generated(file)},
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


class _Shipment:
    """Parcels of which those that are followed share their objects: who opens one has opened those before it."""

    def __init__(self, own: dict[str, ModuleType]) -> None:
        self.own = own
        self.files: set[str] = set()  # of functions that travel
        self.named: set[str] = set()  # own modules that travel as such
        self.reached: dict[str, ModuleType] = {}  # own modules of which something travels
        # Functions of an own module shall have that module's names on the rank.
        self.namespaces = {id(vars(module)): _Namespace(name, self) for name, module in own.items()}
        self._before: Any = {}  # objects in the parcels until now

    def packed(self, obj: Any, followed: bool = True) -> Parcel:
        """A parcel. followed: whether the next ones may count on what is in it."""
        shippers: list[_Shipper] = []

        def shipper(*stream: Any) -> _Shipper:
            shippers.append(_Shipper(self, self._before if followed else {}, *stream))
            return shippers[0]

        parcel = packed(obj, shipper)
        if followed:
            self._before = shippers[0].memo.copy()
        return parcel

    def given(self, obj: Any, what: str, followed: bool) -> Parcel:
        """A parcel of what a person gives. ValueError, with what to do, when it cannot travel."""
        try:
            return self.packed(obj, followed)
        except Exception as error:  # whatever a learner's object raises while it is pickled
            raise ValueError(
                f"{what} cannot be sent to the ranks ({type(error).__name__}: {error}). Open files, locks, widgets and "
                "generators cannot travel: create them inside the function."
            ) from error

    def rest(self) -> tuple[Parcel, ...]:
        """For each module reached, and those that these reach: the module and all that it holds."""
        parcels: dict[str, Parcel] = {}
        while waiting := self.reached.keys() - parcels.keys():
            name = min(waiting)
            module = self.reached[name]
            holds = {key: value for key, value in vars(module).items() if _is_content(module, key, value)}
            try:
                parcels[name] = self.packed((module, holds))
            except Exception:  # whatever a learner's object raises while it is pickled: the others can travel
                kept = {key: value for key, value in holds.items() if self._travels(value)}
                parcels[name] = self.packed((module, kept))
        return tuple(parcels.values())

    def reach(self, name: str) -> tuple[Described, ...]:
        """Notes that something of an own module travels; what a rank must know of it, and of packages it is in."""
        parents = [name[:at] for at, sign in enumerate(name) if sign == "."]
        family = [each for each in (*parents, name) if each in self.own]
        self.reached |= {each: self.own[each] for each in family}
        return tuple(_described(self.own[each]) for each in family)

    def _travels(self, value: Any) -> bool:
        try:
            self.packed(value, followed=False)
        except Exception:  # whatever a learner's object raises while it is pickled
            return False
        return True


class _Shipper(Pickler):
    """Pickles one parcel of a shipment. before: objects in the others, which it need not pickle again."""

    def __init__(self, shipment: _Shipment, before: Any, *stream: Any) -> None:
        super().__init__(*stream)
        self.memo = before
        self.globals_ref.update(shipment.namespaces)
        self._shipment = shipment

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, ModuleType):
            if self._shipment.own.get(obj.__name__) is obj:
                self._shipment.named.add(obj.__name__)
                return arriving_module, self._shipment.reach(obj.__name__)
            if sys.modules.get(obj.__name__) is obj and type(obj) is not ModuleType:
                return importlib.import_module, (obj.__name__,)  # torch.distributed.config and its kind
        reduced = super().reducer_override(obj)
        if isinstance(obj, FunctionType) and reduced is not NotImplemented:
            self._shipment.files.add(obj.__code__.co_filename)
            make, arguments, state, _, _, settle_as_usual = reduced
            return make, arguments, (settle_as_usual, *state), None, None, settle
        return reduced


class _Namespace:
    """In place of the globals of functions of an own module."""

    def __init__(self, name: str, shipment: _Shipment) -> None:
        self._name = name
        self._shipment = shipment

    def __reduce__(self) -> tuple[Any, ...]:
        return arriving_namespace, self._shipment.reach(self._name)


def _is_content(module: ModuleType, name: str, value: Any) -> bool:
    """Not so what a rank makes anew with it, nor a package's modules: those that are named go by themselves."""
    inner = isinstance(value, ModuleType) and value.__name__ == f"{module.__name__}.{name}"
    return name not in _MADE_BY_IMPORT and not inner


_MADE_BY_IMPORT = frozenset(
    {"__builtins__", "__cached__", "__file__", "__loader__", "__name__", "__package__", "__path__", "__spec__"}
)


def _files_behind(names: set[str], own: dict[str, ModuleType]) -> set[str]:
    """The files of these modules and of all own code that they name in turn."""
    found: set[str] = set()
    waiting = set(names)
    while waiting:
        name = waiting.pop()
        found.add(name)
        for value in vars(own[name]).values():
            home = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
            if isinstance(home, str) and home in own and home not in found:
                waiting.add(home)
    return {file for name in found if (file := getattr(own[name], "__file__", None)) is not None}


def _described(module: ModuleType) -> Described:
    path = getattr(module, "__path__", None)
    return Described(module.__name__, getattr(module, "__file__", None), None if path is None else list(path))


def _of_rank(args: tuple[Any, ...], kwargs: dict[str, Any], rank: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
    def pick(value: Any) -> Any:
        return value.values[rank] if isinstance(value, PerRank) else value

    return tuple(map(pick, args)), {key: pick(value) for key, value in kwargs.items()}


def _is_generated(file: str) -> bool:
    """The text of what dataclasses and their like write themselves is nobody's."""
    return file == "<string>"


@contextmanager
def _by_value() -> Iterator[dict[str, ModuleType]]:
    """While open, the learner's own modules, which are given by name, are pickled whole."""
    own = own_modules()
    known = cloudpickle.list_registry_pickle_by_value()
    registered = [module for name, module in own.items() if module.__name__ == name and name not in known]
    for module in registered:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield {module.__name__: module for module in own.values()}
    finally:
        for module in registered:
            cloudpickle.unregister_pickle_by_value(module)
