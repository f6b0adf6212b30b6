"""Names that a package imports when they are first used (PEP 562), so that importing it loads nothing else."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from typing import Any


def names(package: str, homes: Mapping[str, str] | None = None) -> Callable[[str], Any]:
    """The `__getattr__` of a package. A rank that imports a module of the package does not load the rest.

    homes: module below it -> the names that it gives, with blanks between them. None: what the package imports for a
    type checker alone.
    """

    @cache
    def home() -> dict[str, str]:
        if homes is None:
            return _imports(package)
        return {name: f"{package}.{module}" for module, given in homes.items() for name in given.split()}

    def fetch(name: str) -> Any:
        if name.startswith("__") or name not in home():
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, _, there = home()[name].partition(":")
        return getattr(import_module(module), there or name)

    return fetch


def _imports(package: str) -> dict[str, str]:
    """name -> 'module:name there', read off a package's own source."""
    import ast
    import inspect

    tree = ast.walk(ast.parse(inspect.getsource(sys.modules[package])))
    found = (node for node in tree if isinstance(node, ast.ImportFrom))
    return {alias.asname or alias.name: f"{node.module}:{alias.name}" for node in found for alias in node.names}
