"""A torch of placeholders, for a machine that has none: a lab's cells run on, and whatever they compute is '?'.

Only where `import torch` fails. A lab's functions are defined and read as they are, they only cannot be called here;
their recordings need no torch.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import FunctionType, ModuleType
from typing import Any

NAME = "torch"


class Placeholder:
    """Stands for a tensor, a module, a number: whatever is asked of it is another placeholder."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith(("__", "_repr_", "_ipython_")):
            raise AttributeError(name)
        return Placeholder()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        decorates = len(args) == 1 and not kwargs and isinstance(args[0], FunctionType | type)
        return args[0] if decorates else Placeholder()

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        return (Placeholder,)

    def __instancecheck__(self, instance: object) -> bool:
        return False

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *problem: object) -> None:
        return None

    def __bool__(self) -> bool:
        return False

    def __len__(self) -> int:
        return 0

    def __index__(self) -> int:
        return 0

    def __float__(self) -> float:
        return float("nan")

    def __format__(self, how: str) -> str:
        return "?"

    def __repr__(self) -> str:
        return "?"

    def __setitem__(self, key: Any, value: Any) -> None:
        return None

    def __hash__(self) -> int:
        return id(self)


def _answer(self: Any, *others: Any) -> Any:
    return Placeholder()


for _sign in (
    *("add", "radd", "iadd", "sub", "rsub", "isub", "mul", "rmul", "imul", "truediv", "rtruediv", "itruediv"),
    *("floordiv", "mod", "pow", "rpow", "matmul", "rmatmul", "neg", "abs", "invert", "and", "or", "getitem"),
    *("lt", "le", "gt", "ge"),
):
    setattr(Placeholder, f"__{_sign}__", _answer)


class _Module(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Placeholder()


class _Finder(MetaPathFinder, Loader):
    """Makes `import torch.anything` work."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        ours = name == NAME or name.startswith(f"{NAME}.")
        return ModuleSpec(name, self, is_package=True) if ours else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        return None


def where_missing() -> str:
    """Puts placeholders in torch's place where it cannot be imported, and says why; '' where it can."""
    if standing():
        return _why[0]
    try:
        import torch  # noqa: F401
    except Exception as problem:  # a build for another machine fails in its own ways
        broken = [name for name in sys.modules if name == NAME or name.startswith(f"{NAME}.")]
        for name in broken:
            del sys.modules[name]
        sys.meta_path.insert(0, _Finder())
        _why[:] = [f"torch cannot be imported ({str(problem).splitlines()[0] if str(problem) else repr(problem)})"]
        return _why[0]
    return ""


_why: list[str] = []


def standing() -> bool:
    """Whether placeholders stand in torch's place."""
    return bool(_why)
