"""Names that a package imports when they are first used (PEP 562), so that importing it loads nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def names(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a package. homes: module below it -> the names that it gives, with blanks between them."""
    home = {name: module for module, given in homes.items() for name in given.split()}

    def fetch(name: str) -> Any:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{home[name]}"), name)

    return fetch
