"""A linear layer that is cut: its matrices as grids, with what each rank holds of them at a moment of a stepped run.

On paper a layer is Y = X W with W (inputs, outputs); torch keeps W turned, (outputs, inputs). The grids are on paper's
side. Names in the code are small letters: x, w, y, and dy, dx, dw for their gradients.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from kit.plot.diagram import subscript
from kit.plot.matrices import Equation, Matrix, alike, matrices_figure, of_rank, side_by_side
from kit.plot.moment import position_at
from kit.plot.variables import facts
from kit.trace.text import counted, listed
from kit.trace.trace import Trace

if TYPE_CHECKING:
    from kit.plot.figure import Figure

Lies = Literal["whole", "across", "down"]  # as one, cut into stripes beside each other, or one below the other
Part = NDArray[np.generic]


@dataclass(frozen=True, slots=True)
class Operand:
    """A matrix of an equation. code: its name in the learner's function; `turned`: paper has it the other way round."""

    name: str
    code: str
    rows: str  # 'B', 'C' or 'F': samples, inputs, outputs
    columns: str
    lies: Lies
    turned: bool = False


@dataclass(frozen=True, slots=True)
class Cut:
    title: str
    equations: tuple[tuple[Operand | str, ...], ...]


CUTS: Mapping[str, Cut] = {
    "columns": Cut(
        "W cut by columns, forward",
        (
            (
                Operand("X", "x", "B", "C", "whole"), "×", Operand("W", "w", "C", "F", "across", turned=True), "=",
                Operand("Y", "y", "B", "F", "across"),
            ),
        ),
    ),
    "columns backward": Cut(
        "W cut by columns, backward",
        (
            (
                Operand("dY", "dy", "B", "F", "across"), "×", Operand("Wᵀ", "w", "F", "C", "down"), "=",
                Operand("dX", "dx", "B", "C", "whole"),
            ),
            (
                Operand("Xᵀ", "x", "C", "B", "whole", turned=True), "×", Operand("dY", "dy", "B", "F", "across"), "=",
                Operand("dW", "dw", "C", "F", "across", turned=True),
            ),
        ),
    ),
    "rows": Cut(
        "W cut by rows, forward",
        (
            (
                Operand("X", "x", "B", "C", "across"), "×", Operand("W", "w", "C", "F", "down", turned=True), "=",
                Operand("Y", "y", "B", "F", "whole"),
            ),
        ),
    ),
    "rows backward": Cut(
        "W cut by rows, backward",
        (
            (
                Operand("dY", "dy", "B", "F", "whole"), "×", Operand("Wᵀ", "w", "F", "C", "across"), "=",
                Operand("dX", "dx", "B", "C", "across"),
            ),
            (
                Operand("Xᵀ", "x", "C", "B", "down", turned=True), "×", Operand("dY", "dy", "B", "F", "whole"), "=",
                Operand("dW", "dw", "C", "F", "down", turned=True),
            ),
        ),
    ),
}  # fmt: skip


def cut_figure(trace: Trace, position: int, cut: str) -> Figure:
    """What each rank holds at a position of a stepped run. cut: one of `CUTS`.

    Cells not computed yet are outlines. Where ranks hold different values of what should be one matrix, each of theirs
    is drawn as a term of the sum. Raises ValueError for an unknown cut, and for a run without the matrices it shows.
    """
    if cut not in CUTS:
        raise ValueError(f"there is no cut {cut!r}: choose from {', '.join(CUTS)}")
    chosen, world = CUTS[cut], len(position_at(trace, position).states)
    held = [_matrices(trace, position, rank) for rank in range(world)]
    sizes = _sizes(chosen, held, world)
    equations: list[Equation] = []
    said: list[str] = []
    for operands in chosen.equations:
        equation: list[Matrix | str] = []
        for operand in operands:
            if isinstance(operand, str):
                equation.append(operand)
                continue
            shape = sizes[operand.rows], sizes[operand.columns]
            parts = {r: _on_paper(operand, own[operand.code]) for r, own in enumerate(held) if operand.code in own}
            drawn, words = _drawn(operand, parts, shape, world)
            equation += drawn
            said += [words] if words not in said else []
        equations.append(tuple(equation))
    return matrices_figure("cut", chosen.title, equations, world, ["; ".join(said) + "."])


def _matrices(trace: Trace, position: int, rank: int) -> dict[str, Part]:
    found = facts(trace, position, rank).items()
    return {name: fact.values for name, fact in found if fact.values is not None and fact.values.ndim == 2}


def _on_paper(operand: Operand, part: Part) -> Part:
    return part.T if operand.turned else part


def _sizes(cut: Cut, held: list[dict[str, Part]], world: int) -> dict[str, int]:
    """How long each of B, C and F is, of the whole matrices."""
    sizes: dict[str, int] = {}
    operands = [one for equation in cut.equations for one in equation if isinstance(one, Operand)]
    for operand in operands:
        part = next((own[operand.code] for own in held if operand.code in own), None)
        if part is not None:
            rows, columns = _on_paper(operand, part).shape
            sizes.setdefault(operand.rows, rows * (world if operand.lies == "down" else 1))
            sizes.setdefault(operand.columns, columns * (world if operand.lies == "across" else 1))
    if any({one.rows, one.columns} - sizes.keys() for one in operands):
        names = dict.fromkeys(one.code for one in operands)
        raise ValueError(
            f"{cut.title} shows the matrices {', '.join(names)}, and no rank has enough of them here: give the function"
            " small ones of these names"
        )
    return sizes


def _drawn(
    operand: Operand, parts: dict[int, Part], shape: tuple[int, int], world: int
) -> tuple[list[Matrix | str], str]:
    """The grids of one operand, and where its parts are, in words."""
    if operand.lies == "whole":
        return _whole(operand, parts, shape, world)
    down = operand.lies == "down"
    grid = side_by_side(parts, shape, world, down)
    stripes = counted(shape[0 if down else 1] // world, "row" if down else "column")
    absent = [rank for rank in range(world) if rank not in parts]
    words = f"{operand.name}: each rank holds {stripes}"
    if len(absent) == world:
        words = f"{operand.name}: not computed yet"
    elif absent:
        words += f", {listed(absent)} none yet"
    return [replace(grid, name=operand.name)], words


def _whole(
    operand: Operand, parts: dict[int, Part], shape: tuple[int, int], world: int
) -> tuple[list[Matrix | str], str]:
    first = next(iter(parts.values()), None)
    if first is None:
        return [replace(of_rank(0, None, shape), name=operand.name)], f"{operand.name}: not computed yet"
    if len(parts) == world and all(np.array_equal(first, part) for part in parts.values()):
        return [replace(alike(first), name=operand.name)], f"{operand.name}: the same on every rank"
    terms: list[Matrix | str] = []
    for rank in range(world):
        term = of_rank(rank, parts.get(rank), shape)
        terms += ["+"] * bool(rank) + [replace(term, name=f"{operand.name}{subscript(rank)}")]
    words = f"{operand.name}: {listed(parts)} {'holds' if len(parts) == 1 else 'hold'} a term of a sum"
    return terms, words
