"""Which code is the learner's own: modules that neither Python, nor an installed package, nor the kit brought."""

from __future__ import annotations

import linecache
import os
import sys
import sysconfig
from functools import cache
from types import ModuleType

KIT = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_INSTALLED = tuple(
    {os.path.realpath(sysconfig.get_paths()[k]) + os.sep for k in ("stdlib", "platstdlib", "purelib", "platlib")}
)


_others: dict[str, object] = {}  # modules that are not own, by the name they were last found under


def own_modules() -> dict[str, ModuleType]:
    """Those that are loaded, by name, without the one that is `__main__`."""
    own = {}
    for name, module in list(sys.modules.items()):
        if _others.get(name) is module or name == "__main__":
            continue
        if is_own(module):
            own[name] = module
        else:
            _others[name] = module
    return own


def is_own(module: object) -> bool:
    if not isinstance(module, ModuleType):
        return False
    file = getattr(module, "__file__", None)
    if file is None:  # a package that is a folder and nothing more
        try:
            file = next((f"{folder}/.py" for folder in getattr(module, "__path__", ())), None)
        except KeyError:  # the package it is in was let go, as only the learner's are
            return True
    return isinstance(file, str) and is_own_file(file)


@cache  # asked of every module that is loaded
def is_own_file(file: str) -> bool:
    if not file.endswith(".py") or "site-packages" in file or "dist-packages" in file:
        return False
    return os.path.isabs(file) and not os.path.realpath(file).startswith((*_INSTALLED, KIT))


def source_lines(file: str) -> tuple[str, ...]:
    """None where it cannot be read."""
    return tuple(line.rstrip("\n") for line in linecache.getlines(file))
