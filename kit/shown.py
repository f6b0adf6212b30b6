"""How a result finds what draws it, without importing it.

A session, a recording or a sweep lies in a lower package than its panel. It asks here: `shown.panel(self)`. What draws
says for which results it does (`@shown.panel.of(Session)`); the face, or a topic, names the modules to look in.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeVar

Draw = TypeVar("Draw", bound=Callable[..., Any])

_modules: list[str] = []  # that draw, and are imported when something is shown for the first time


def look_in(module: str) -> None:
    """Names a module that says, when it is imported, what it draws."""
    _modules.append(module)


class View:
    """What draws results of many kinds, one function for each kind."""

    def __init__(self) -> None:
        self._drawn: dict[type, Callable[..., Any]] = {}

    def of(self, *kinds: type) -> Callable[[Draw], Draw]:
        """Marks what draws these results: a function of the result, and of what else it is given."""

        def keep(draw: Draw) -> Draw:
            self._drawn.update(dict.fromkeys(kinds, draw))
            return draw

        return keep

    def __call__(self, result: object, *how: Any, **named: Any) -> Any:
        """The result as a widget. TypeError for one that nothing draws."""
        for module in _modules:
            import_module(module)
        for kind in type(result).__mro__:
            if kind in self._drawn:
                return self._drawn[kind](result, *how, **named)
        raise TypeError(f"nothing draws a {type(result).__name__}")


panel = View()  # to look into a result
plot = View()  # to look at it
