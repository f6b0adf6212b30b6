"""Names that a package imports when they are first used (PEP 562), so that importing it loads nothing else."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any


def names(package: str) -> Callable[[str], Any]:
    """The `__getattr__` of a package: what it imports for a type checker alone is imported on first use.

    A rank that imports a module of the package does not load the rest.
    """

    @cache
    def homes() -> dict[str, tuple[str, str]]:
        """name -> (module, name there), read off the package's own imports."""
        import ast
        import inspect

        tree = ast.walk(ast.parse(inspect.getsource(sys.modules[package])))
        imports = (node for node in tree if isinstance(node, ast.ImportFrom) and node.module)
        return {alias.asname or alias.name: (str(node.module), alias.name) for node in imports for alias in node.names}

    def fetch(name: str) -> Any:
        if name.startswith("__") or name not in homes():
            raise AttributeError(f"{package} has no {name!r}")
        module, there = homes()[name]
        return getattr(import_module(module), there)

    return fetch
