"""A function with its arguments, and what a trace says of running it."""

from __future__ import annotations

import platform
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from kit.probe.shipping import Package, PerRank
from kit.trace.text import size

if TYPE_CHECKING:
    from kit.protocol.links import Links


class Call(NamedTuple):
    """A function, and what it is called with on every rank."""

    function: Callable[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = {}

    @property
    def name(self) -> str:
        return getattr(self.function, "__name__", type(self.function).__name__)


class Described(Protocol):
    """Where a function runs. devices: by rank."""

    @property
    def backend(self) -> str: ...

    @property
    def devices(self) -> tuple[str, ...]: ...


def describe(cluster: Described, package: Package, call: Call, world: int, links: Links | None) -> dict[str, Any]:
    """The fields of Meta that a run on this cluster shares with every other of the same function."""
    notes = [links.in_words()] if links is not None else []
    notes += [f"the source of {file} could not be read" for file, lines in package.sources.items() if not lines]
    return {
        "world": world,
        "backend": cluster.backend,
        "devices": cluster.devices[:world],
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "arguments": arguments(*call),
        "versions": _versions(),
        "notes": tuple(notes),
    }


@cache  # to look torch's up takes a millisecond
def _versions() -> tuple[tuple[str, str], ...]:
    return ("python", platform.python_version()), ("torch", metadata.version("torch"))


def arguments(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """The tensors handed in, as 'x: 8 x float32, w: 4 x 4 x float32'."""
    code = getattr(function, "__code__", None)
    names = list(code.co_varnames[: code.co_argcount]) if code else []
    named = [*zip([*names, *["argument"] * len(args)], args, strict=False), *kwargs.items()]
    return ", ".join(f"{name}: {text}" for name, value in named if (text := _tensor_text(value)))


def _tensor_text(value: Any) -> str:
    if isinstance(value, PerRank):
        value = value.values[0] if value.values else None
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    return "" if shape is None or dtype is None else size(shape, str(dtype).removeprefix("torch."))
