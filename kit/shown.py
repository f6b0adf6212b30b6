"""How a result finds what draws it, without importing it.

A session, a recording or a sweep lies in a lower package than its panel. It asks here: `shown.panel(self)`. What draws
says for which results it does (`@shown.panel_of(Session)`); the face, or a topic, names the modules to look in.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeVar

Draw = TypeVar("Draw", bound=Callable[..., Any])

_panels: dict[type, Callable[..., Any]] = {}
_plots: dict[type, Callable[..., Any]] = {}
_modules: list[str] = []  # that draw, and are imported when something is shown for the first time


def look_in(module: str) -> None:
    """Names a module that says, when it is imported, what it draws."""
    _modules.append(module)


def panel_of(*kinds: type) -> Callable[[Draw], Draw]:
    """Marks what makes the panel of these results: a function of the result and of what `.panel(...)` was given."""
    return _keeper(_panels, kinds)


def plot_of(*kinds: type) -> Callable[[Draw], Draw]:
    """Marks what makes the plot of these results: a function of the result and of what `.plot(...)` was given."""
    return _keeper(_plots, kinds)


def panel(result: object, *how: Any, **named: Any) -> Any:
    """The panel of a result, as a widget. TypeError for one that nothing draws."""
    return _drawn(_panels, result)(result, *how, **named)


def plot(result: object, *how: Any, **named: Any) -> Any:
    """The plot of a result, as a widget. TypeError for one that nothing draws."""
    return _drawn(_plots, result)(result, *how, **named)


def _keeper(known: dict[type, Callable[..., Any]], kinds: tuple[type, ...]) -> Callable[[Draw], Draw]:
    def keep(draw: Draw) -> Draw:
        known.update(dict.fromkeys(kinds, draw))
        return draw

    return keep


def _drawn(known: dict[type, Callable[..., Any]], result: object) -> Callable[..., Any]:
    for module in _modules:
        import_module(module)
    for kind in type(result).__mro__:
        if kind in known:
            return known[kind]
    raise TypeError(f"nothing draws a {type(result).__name__}")
