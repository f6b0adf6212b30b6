"""Equations of matrices as grids: each cell in the colour of its rank, with its number where there is room."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from kit.plot.cells import format_value
from kit.plot.figure import Axes, Axis, Boxes, Column, Figure, Labels, Mark, Values, pixels, values

if TYPE_CHECKING:
    from numpy.typing import NDArray

EVERY, NOWHERE = -1, -2  # all ranks hold the cell, and hold the same; no rank has it yet
_LEAST, _HIGH, _EDGE = 26.0, 20.0, 1.0  # px across a cell at least, its height, between two
_NAME, _BETWEEN, _SIGN = 18.0, 10.0, 24.0  # px of the name over a matrix, below an equation, of a sign between two
_PAGE, _SIDE, _LETTER = 816, 12, 6.2  # px of a figure, beside the drawing, of a digit
_NARROW = 640  # px of a figure in which numbers still have room


@dataclass(frozen=True, slots=True, eq=False)
class Matrix:
    """A matrix as on paper. holder: whose each cell is, (rows, columns): a rank, EVERY or NOWHERE; numbers likewise."""

    name: str
    holder: NDArray[np.intp]
    numbers: Values

    @property
    def rows(self) -> int:
        return len(self.holder)

    @property
    def columns(self) -> int:
        return len(self.holder.T)


Equation: TypeAlias = tuple[Matrix | str, ...]


def matrices_figure(name: str, title: str, equations: Sequence[Equation], world: int, said: Sequence[str]) -> Figure:
    """Equations one below the other, to one scale. said: the same in words."""
    digits = max((len(text) for equation in equations for part in equation for text in _texts(part)), default=1)
    wide = max(_LEAST, _LETTER * digits + 8)
    widest = max(sum(_units(part, wide) for part in equation) for equation in equations)
    across = Axis(0.0, max(widest, _PAGE - 2 * _SIDE))
    plots = [_plot(equation, across, world, wide) for equation in equations]
    plots[-1] = replace(plots[-1], foot=0.0)
    key = (*((f"rank {rank}", f"rank {rank}") for rank in range(world)), ("every rank", "the same on all"))
    words = "\n".join(said)
    return Figure(name, title, (Column(tuple(plots), _SIDE, _SIDE),), words, key, said=tuple(said), room=2)


def _units(part: Matrix | str, wide: float) -> float:
    return _SIGN if isinstance(part, str) else part.columns * wide


def _texts(part: Matrix | str) -> list[str]:
    return (
        []
        if isinstance(part, str)
        else [format_value(number) for number in part.numbers[part.holder != NOWHERE].tolist()]
    )


def _plot(equation: Equation, across: Axis, world: int, wide: float) -> Axes:
    tall = max(part.rows for part in equation if isinstance(part, Matrix)) * _HIGH
    middle = _NAME + tall / 2
    cells: list[tuple[float, float, float, float, int, str]] = []  # left, right, top, bottom, kind, what is told
    texts: dict[int, list[tuple[float, float, str]]] = {kind: [] for kind in range(EVERY, world)}
    names, start = [], 0.0
    room = wide * (_NARROW - 2 * _SIDE) / across.high
    for part in equation:
        if isinstance(part, str):
            names.append((start + _units(part, wide) / 2, middle, part))
        else:
            top = middle - part.rows * _HIGH / 2
            names.append((start + part.columns * wide / 2, top - _NAME / 2, part.name))
            for (i, j), holder in np.ndenumerate(part.holder):
                left, high = start + j * wide, top + i * _HIGH
                number = format_value(float(part.numbers[i, j])) if holder != NOWHERE else ""
                where = _where(int(holder))
                told = f"{part.name}[{i}, {j}]" + (f" = {number}" if number else "") + f", {where}"
                edges = left + _EDGE, left + wide - _EDGE, high + _EDGE, high + _HIGH - _EDGE
                cells.append((*edges, int(holder), told))
                if number and _LETTER * len(number) <= room:
                    texts[int(holder)].append((left + wide / 2, high + _HIGH / 2, number))
        start += _units(part, wide)
    marks: list[Mark] = [_boxes([cell for cell in cells if cell[4] != NOWHERE], world, False)]
    marks.append(_boxes([cell for cell in cells if cell[4] == NOWHERE], world, True))
    roles = {EVERY: "ink"} | {rank: f"on rank {rank}" for rank in range(world)}
    marks += [_labels(texts[holder], role) for holder, role in roles.items()]
    marks.append(replace(_labels(names, "ink"), strong=[True] * len(names)))
    height = _NAME + tall
    return Axes(across, pixels(height), tuple(marks), height, foot=_BETWEEN, bare=True)


def _where(holder: int) -> str:
    return {EVERY: "the same on all ranks", NOWHERE: "not there yet"}.get(holder, f"on rank {holder}")


def _boxes(cells: Sequence[tuple[float, float, float, float, int, str]], world: int, outline: bool) -> Boxes:
    left, right, top, bottom = (values([cell[side] for cell in cells]) for side in range(4))
    holders = {rank: f"rank {rank}" for rank in range(world)} | {EVERY: "every rank"}
    kinds = ("held",) if outline else tuple(holders.values())
    kind = np.array([0 if outline else list(holders).index(cell[4]) for cell in cells], dtype=np.intp)
    return Boxes(left, right, top, bottom, kind, kinds, [cell[5] for cell in cells], outline=outline)


def _labels(texts: Sequence[tuple[float, float, str]], role: str) -> Labels:
    return Labels(
        values([x for x, _, _ in texts]), values([y for _, y, _ in texts]), [text for *_, text in texts], role=role
    )


def side_by_side(parts: Mapping[int, NDArray[np.generic]], shape: tuple[int, int], world: int, down: bool) -> Matrix:
    """The parts of a matrix of that shape, one of each rank that has it, beside each other or one below the other.

    The cut is an equal one. Cells of a rank that is not among `parts` are nowhere yet.
    """
    holder = np.full(shape, NOWHERE, dtype=np.intp)
    numbers = np.full(shape, np.nan)
    each = shape[0 if down else 1] // world
    for rank, part in parts.items():
        here = slice(rank * each, (rank + 1) * each)
        place = (here, slice(None)) if down else (slice(None), here)
        holder[place], numbers[place] = rank, part
    return Matrix("", holder, numbers)


def alike(part: NDArray[np.generic]) -> Matrix:
    """A matrix that all ranks hold alike."""
    return Matrix("", np.full(part.shape, EVERY, dtype=np.intp), values(part))


def of_rank(rank: int, part: NDArray[np.generic] | None, shape: tuple[int, int]) -> Matrix:
    """A matrix of one rank's own, whole; empty while it has none."""
    if part is None:
        return Matrix("", np.full(shape, NOWHERE, dtype=np.intp), np.full(shape, np.nan))
    return Matrix("", np.full(shape, rank, dtype=np.intp), values(part))
