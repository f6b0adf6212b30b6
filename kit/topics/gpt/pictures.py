"""Trainings as pictures: the loss of one or of several, over steps, tokens or time; a recipe's rate and the norm."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from math import ceil, floor, isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np

from kit.plot.figure import SOLID, Axes, Axis, Column, Dots, Figure, Line, Mark, Values, values
from kit.plot.layout import apart
from kit.plot.palette import RUNS
from kit.plot.timeline import round_step, time_axis
from kit.topics.gpt.history import History, Taken

if TYPE_CHECKING:
    from kit.panels.figure import FigurePanel

Over = Literal["steps", "tokens", "time"]
MOST = 300  # points of a line: a picture is not much wider in px
_HIGH, _LOW, _HEAD, _AXIS, _LEFT, _RIGHT, _LINE = 210, 74, 20, 40, 48, 16, 15  # px
_FEW = 20  # steps, for which there is room at least
_LETTER, _SAMPLE = 6.2, (1.02, 1.06)  # px; parts of the width: a piece of a line beside its name
_LEAD, _NAMED = (1.005, 1.015), 1.07


class Run(Protocol):
    """A training, whether it goes on here or elsewhere."""

    @property
    def history(self) -> History: ...


Runs = Mapping[str, "Run | History | str | Path"]


def curves(runs: Run | History | str | Path | Runs, over: Over = "steps") -> FigurePanel:
    """Losses of trainings in one picture: of a run, of a history or its file, or of several by name.

    over: 'steps', 'tokens', or 'time' (seconds that the steps took). Raises ValueError for no training, for more than
    there are colours, and for a file that is no history.
    """
    from kit.panels.figure import FigurePanel

    several = runs if isinstance(runs, Mapping) else {"": runs}
    return FigurePanel("Losses of trainings", loss_figure({name: _history(run) for name, run in several.items()}, over))


def loss_figure(runs: Mapping[str, History], over: Over = "steps") -> Figure:
    """Lines are losses of the steps' own windows, where there are many a mean of some; dots were validated.

    Raises ValueError as `curves`.
    """
    if not 1 <= len(runs) <= len(RUNS):
        raise ValueError(f"a picture shows 1 to {len(RUNS)} trainings, and there are {len(runs)}")
    if over not in ("steps", "tokens", "time"):
        raise ValueError(f"losses are drawn over 'steps', 'tokens' or 'time', not {over!r}")
    across, upward = _across(runs.values(), over), _losses(runs.values())
    named = [name for name in runs if name]
    ends = {
        i: _HIGH * (1 - float(upward.share(history.steps[-1].loss)))
        for i, history in enumerate(runs.values())
        if history.steps and isfinite(history.steps[-1].loss)
    }
    levels = {i: upward.high - y / _HIGH * (upward.high - upward.low) for i, y in apart(ends, _HIGH, _LINE).items()}
    marks: list[Mark] = []
    for i, (name, history) in enumerate(runs.items()):
        marks += _drawn(history, over, f"run {i}", name)
        if named and i in levels:
            marks += _led(across, history, over, f"run {i}", levels[i])
    axes = Axes(
        Axis(across.low, across.high * (_NAMED if named else 1.0), across.ticks, across.label, zoom=True),
        upward,
        tuple(marks),
        _HIGH,
        head=8,
        foot=_AXIS,
        right=tuple((levels[i], name) for i, name in enumerate(runs) if named and i in levels),
    )
    room = max((len(name) for name in named), default=0) * _LETTER + 14 if named else _RIGHT
    key = tuple((f"run {i}", name) for i, name in enumerate(runs)) if named else ()
    words = "\n".join(_words(name, history) for name, history in runs.items())
    note = _note(runs.values())
    return Figure("losses", "Loss", (Column((axes,), _LEFT, room),), words, key, note, width=560)


def recipe_figure(history: History) -> Figure:
    """The learning rate and the norm of all gradients, over steps."""
    across = _across((history,), "steps")
    rates = _plot(history, across, "rate", "Learning rate", history.about.recipe.rate)
    norms = _plot(history, across, "norm", "Norm of all gradients, before clipping", 0.0)
    latest = history.latest
    words = "" if latest is None else f"learning rate {latest.rate:.3g}, norm of all gradients {latest.norm:.3g}"
    bare = Axes(rates.x, rates.y, rates.marks, rates.height, rates.head, 6, rates.title, bare=True)
    return Figure("recipe", "Recipe", (Column((bare, norms), _LEFT + 8, _RIGHT),), words, width=332)


def _history(run: Run | History | str | Path) -> History:
    if isinstance(run, History):
        return run
    return History.load(run) if isinstance(run, str | Path) else run.history


def _x(history: History, over: Over) -> Values:
    """Of each step, at its end."""
    match over:
        case "steps":
            return values([step.number + 1 for step in history.steps])
        case "tokens":
            return values([(step.number + 1) * history.about.tokens for step in history.steps])
        case "time":
            return values(list(accumulate(step.seconds for step in history.steps)))


def _across(runs: Iterable[History], over: Over) -> Axis:
    """Steps and tokens so far, to the end of the longest recipe or a half, a quarter, ... of it: so that nothing moves
    for long, and most of the picture is used. Time so far.
    """
    runs = tuple(runs)
    if over == "time":
        longest = max((float(x[-1]) for history in runs if len(x := _x(history, over))), default=1.0)
        axis = time_axis(longest)
        return Axis(0.0, axis.high, axis.ticks, "seconds of steps")
    each = [h.about.tokens if over == "tokens" else 1 for h in runs]
    end = max(float(h.about.recipe.steps) * tokens for h, tokens in zip(runs, each, strict=True))
    done = max(h.done * tokens for h, tokens in zip(runs, each, strict=True))
    while end / 2 >= max(done, _FEW * max(each)):
        end /= 2
    step = round_step(end, 5)
    return Axis(0.0, float(end), tuple((i * step, _count(i * step)) for i in range(floor(end / step) + 1)), over)


def _losses(runs: Iterable[History]) -> Axis:
    """From the lowest half nat to the highest: it seldom changes while losses fall."""
    seen = [step.loss for history in runs for step in history.steps if isfinite(step.loss)]
    seen += [step.validation for h in runs for step in h.steps if step.validation is not None]
    seen = [loss for loss in seen if isfinite(loss)] or [0.0, 1.0]
    low, high = floor(2 * min(seen)) / 2, ceil(2 * max(seen)) / 2
    high = max(high, low + 0.5)
    step = round_step(high - low, 6)
    first = ceil(low / step - 1e-9)
    marks = [k * step for k in range(first, floor(high / step + 1e-9) + 1)]
    return Axis(low, high, tuple((mark, f"{mark:g}") for mark in marks), grid=True)


def _drawn(history: History, over: Over, role: str, name: str) -> Iterable[Mark]:
    x, steps = _x(history, over), history.steps
    y = values([step.loss for step in steps])
    if len(steps):
        yield Line(*_thinned(x, y), role, f"{name}, training loss".lstrip(", "), SOLID)
    validated = [(i, step.validation) for i, step in enumerate(steps) if step.validation is not None]
    if validated:
        told = [f"{name}, step {steps[i].number + 1:,}: validation loss {loss:.4f}" for i, loss in validated]
        heights = values([loss for _, loss in validated])
        yield Dots(x[[i for i, _ in validated]], heights, role, [text.lstrip(", ") for text in told])


def _led(across: Axis, history: History, over: Over, role: str, level: float) -> Iterable[Mark]:
    """From the end of a line to its name."""
    end, wide = float(_x(history, over)[-1]), across.high
    yield Line(values([end, *(wide * part for part in _LEAD)]), values([history.steps[-1].loss, level, level]), "ruler")
    yield Line(values([wide * part for part in _SAMPLE]), values([level, level]), role)


def _plot(history: History, across: Axis, what: Literal["rate", "norm"], title: str, least: float) -> Axes:
    found = values([getattr(step, what) for step in history.steps])
    finite = found[np.isfinite(found)]
    top = max(float(finite.max()) if len(finite) else 0.0, least) or 1.0
    step = round_step(top, 3)
    top = ceil(top / step - 1e-9) * step
    upward = Axis(0.0, top, tuple((i * step, f"{i * step:.3g}") for i in range(round(top / step) + 1)), grid=True)
    lines = (Line(*_thinned(_x(history, "steps"), found), "run 0", title),) if len(found) else ()
    return Axes(across, upward, lines, _LOW, _HEAD, _AXIS, title)


def _thinned(x: Values, y: Values) -> tuple[Values, Values]:
    """At most MOST points: means of so many steps each; a line ends where a number does."""
    whole = int(np.argmin(np.isfinite(y))) if not np.isfinite(y).all() else len(y)
    x, y = x[:whole], y[:whole]
    each = -(-len(y) // MOST) if len(y) else 1
    if each == 1:
        return x, y
    cuts = np.arange(0, len(y), each)
    counts = np.diff([*cuts, len(y)])
    return np.add.reduceat(x, cuts) / counts, np.add.reduceat(y, cuts) / counts


def _note(runs: Iterable[History]) -> str:
    runs = tuple(runs)
    each = max((-(-len(history.steps) // MOST) for history in runs), default=1)
    mean = f", means of {each} steps" if each > 1 else ""
    validated = any(step.validation is not None for history in runs for step in history.steps)
    return f"nats · line: training{mean}" + (" · dots: validation" if validated else "")


def _words(name: str, history: History) -> str:
    latest = history.latest
    if latest is None:
        return f"{name}: no step yet".lstrip(": ")
    seen: Sequence[Taken] = [step for step in history.steps if step.validation is not None]
    validated = f", validation loss {seen[-1].validation:.4f} after step {seen[-1].number + 1:,}" if seen else ""
    ended = "" if isfinite(latest.loss) else ", which is no number"
    return f"{name}: step {latest.number + 1:,}, loss {latest.loss:.4f}{ended}{validated}".lstrip(": ")


def _count(number: float) -> str:
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:g} {unit}"
    return f"{number:g}"
