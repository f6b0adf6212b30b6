"""On a rank: a function that came by value, and the learner's modules that it is from.

Of such a module there is one, in `sys.modules`, whether functions, an `import` in their bodies or a pickle ask for it.
It holds what the function names; the rest is opened, all at once, when somebody asks for more: a module may import much
that no rank needs.
"""

from __future__ import annotations

import importlib.util
import pickle
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from types import FunctionType, ModuleType
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import cloudpickle

from kit.protocol.parcels import Parcel


class Described(NamedTuple):
    """What a rank must know of a module to make it."""

    name: str
    file: str | None
    path: list[str] | None  # of a package: where its modules lie


class OwnModule(ModuleType):
    """A module of the learner's, of which more may be asked for than has been opened."""

    def __init__(self, described: Described, arrival: Arrival) -> None:
        super().__init__(described.name)
        self.__file__ = described.file
        self.__spec__ = _spec(described)
        self.__package__ = described.name if described.path is not None else described.name.rpartition(".")[0]
        if described.path is not None:
            self.__path__ = described.path
        vars(self)[_ARRIVAL] = arrival

    def __getattr__(self, name: str) -> Any:
        if name not in _MACHINERY:
            vars(self)[_ARRIVAL].open_rest()
            if name in vars(self):
                return vars(self)[name]
        raise AttributeError(
            f"module {self.__name__!r} has no attribute {name!r} on a rank; what holds open files, locks or generators "
            "cannot travel there: create it inside the function"
        )

    def __dir__(self) -> list[str]:
        vars(self)[_ARRIVAL].open_rest()
        return [name for name in vars(self) if name != _ARRIVAL]


def _spec(described: Described) -> ModuleSpec | None:
    if described.file is None:
        return ModuleSpec(described.name, None, is_package=True)
    where = described.path
    return importlib.util.spec_from_file_location(described.name, described.file, submodule_search_locations=where)


_ARRIVAL = "__lockstep_arrival__"
_MACHINERY = frozenset({"__path__", "__file__", "__wrapped__", "__all__", "__bases__"})


class Arrival:
    """A function on a rank. The modules it brings are there until `leave`.

    instead: what a pickle's names (module, name) mean here, where it is not what they mean elsewhere.
    """

    def __init__(
        self, function: Parcel, rest: tuple[Parcel, ...], instead: Mapping[tuple[str, str], Callable[..., Any]]
    ) -> None:
        self.instead = {
            (__name__, arriving_module.__name__): self.module,
            (__name__, arriving_namespace.__name__): self.namespace,
            **instead,
        }
        self.modules: dict[str, OwnModule] = {}
        self._opening = threading.RLock()
        self._rest = rest
        self._unpickler: _Unpickler | None = _Unpickler(self)
        self.function: Callable[..., Any] = self._unpickler.opened(function)

    def open(self, parcel: Parcel) -> Any:
        """What was packed beside the function."""
        return _Unpickler(self).opened(parcel)

    def open_rest(self) -> None:
        """Opens all that came with the function's modules. What has a value by now keeps it."""
        with self._opening, _untraced():
            unpickler, self._unpickler = self._unpickler, None
            if unpickler is None:
                return
            for parcel in self._rest:
                module, holds = unpickler.opened(parcel)
                for name, value in holds.items():
                    vars(module).setdefault(name, value)

    def module(self, *family: Described) -> OwnModule:
        """A module, after the packages that it is in."""
        for described in family:
            if described.name not in self.modules:
                module = self.modules[described.name] = OwnModule(described, self)
                parent, _, own_name = described.name.rpartition(".")
                if sys.modules.setdefault(described.name, module) is module and parent in self.modules:
                    vars(self.modules[parent])[own_name] = module
        return self.modules[family[-1].name]

    def namespace(self, *family: Described) -> dict[str, Any]:
        return vars(self.module(*family))

    def leave(self) -> None:
        """From now on its modules are not found any more."""
        del self.function
        self._unpickler = None
        for name, module in self.modules.items():
            if sys.modules.get(name) is module:
                del sys.modules[name]


def arriving_module(*family: Described) -> ModuleType:
    """In a pickle: the module of the arrival that opens it."""
    raise AssertionError("only an arrival knows its modules")


def arriving_namespace(*family: Described) -> dict[str, Any]:
    """In a pickle: the names of that module."""
    raise AssertionError("only an arrival knows its modules")


def settle(function: FunctionType, state: tuple[Callable[..., Any], dict[str, Any], dict[str, Any]]) -> None:
    """Completes a function. Names that its module has by now keep their values: the function's are older."""
    settle_as_usual, attributes, slots = state
    known = function.__globals__
    slots["__globals__"] = {name: value for name, value in slots["__globals__"].items() if name not in known}
    settle_as_usual(function, (attributes, slots))


class _Unpickler(pickle.Unpickler):
    """Opens parcels one after the other; a later one may mean objects of an earlier one."""

    def __init__(self, arrival: Arrival) -> None:
        self._reader = _Reader()
        super().__init__(self._reader, buffers=self._reader.buffers())
        self._instead = arrival.instead

    def opened(self, parcel: Parcel) -> Any:
        self._reader.begin(parcel)
        return self.load()

    def find_class(self, module: str, name: str) -> Any:
        instead = self._instead.get((module, name))
        return super().find_class(module, name) if instead is None else instead


class _Reader:
    """What an unpickler reads from: one parcel after the other."""

    def __init__(self) -> None:
        self._left = memoryview(b"")
        self._buffers: list[memoryview] = []

    def begin(self, parcel: Parcel) -> None:
        stream, *self._buffers = parcel.parts()
        self._left = memoryview(stream)

    def read(self, size: int) -> bytes:
        data, self._left = self._left[:size], self._left[size:]
        return bytes(data)

    def readinto(self, target: bytearray) -> int:
        data, self._left = self._left[: len(target)], self._left[len(target) :]
        target[: len(data)] = data
        return len(data)

    def readline(self) -> bytes:
        return self.read(bytes(self._left).find(b"\n") + 1)

    def buffers(self) -> Iterator[memoryview]:
        while True:
            yield self._buffers.pop(0)


@contextmanager
def _untraced() -> Iterator[None]:
    """What is opened in the middle of a step is no step of the learner's."""
    tracer = sys.gettrace()
    sys.settrace(None)
    try:
        yield
    finally:
        sys.settrace(tracer)


def keep_classes_in(known: WeakValueDictionary[str, type]) -> None:
    """From now on a class that comes by value is made once for `known`: ranks of one process have each their own."""
    cloudpickle.cloudpickle._DYNAMIC_CLASS_TRACKER_BY_ID = known
