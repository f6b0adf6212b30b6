"""A picture described once: marks with their data and words, on axes, in columns.

`kit.plot.render_svg` draws a figure for any page, `kit.plot.render_bokeh` where a reader can point, zoom and hide.
Positions are in the axes' own units; heights and margins are pixels, so that a figure knows its height and keeps it at
every width. Colours are roles of `kit.plot.palette`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

Values: TypeAlias = NDArray[np.float64]
Dash = tuple[int, ...]  # px drawn, px left out, ...
SOLID: Dash = ()
DASHED: Dash = (5, 4)
DOTTED: Dash = (2, 3)
DASHES: tuple[Dash, ...] = (SOLID, DOTTED, (7, 4), (12, 3, 2, 3), (4, 2))  # of lines that are told apart
LIMITS: tuple[Dash, ...] = (DASHED, DOTTED, (9, 3, 2, 3))  # of a first, a second and further formulas
HEADING, LINE, LETTER = 22, 16, 5.6  # px: the heading above a figure, a line of words below it, a small character
LETTERS = 140  # of a line of words below a figure


def values(numbers: ArrayLike) -> Values:
    """A column of a mark."""
    return np.asarray(numbers, dtype=np.float64)


@dataclass(frozen=True, slots=True)
class Axis:
    """A scale from `low` (left, bottom) to `high` (right, top), and what is written along it.

    zoom: where it can be done, a reader moves and stretches this axis; equal axes of a figure move together.
    stretches: (name, from, to) of named parts, such as the passes of a training step.
    """

    low: float
    high: float
    ticks: tuple[tuple[float, str], ...] = ()
    label: str = ""
    log: bool = False
    grid: bool = False
    zoom: bool = False
    stretches: tuple[tuple[str, float, float], ...] = ()

    def share(self, value: Values | float) -> Values:
        """0 at the low end, 1 at the high end."""
        if self.log:
            return np.asarray((np.log10(value) - np.log10(self.low)) / (np.log10(self.high) - np.log10(self.low)))
        return np.asarray((np.asarray(value) - self.low) / (self.high - self.low))


def pixels(height: float, ticks: tuple[tuple[float, str], ...] = ()) -> Axis:
    """An upward axis for rows: counted in px from the top."""
    return Axis(height, 0.0, ticks)


@dataclass(frozen=True, slots=True, eq=False)
class Boxes:
    """Rectangles in columns, one item each; many thousand are no trouble.

    kind: indices into `kinds`, which are roles. told: tooltips. faint: drawn with the opacity `ghost`. outline: edges
    only.
    """

    left: Values
    right: Values
    top: Values
    bottom: Values
    kind: NDArray[np.intp]
    kinds: tuple[str, ...]
    told: Sequence[str]
    faint: NDArray[np.bool_] | None = None
    outline: bool = False
    ghost: float = 0.22

    def visible(self, axis: Axis, columns: int) -> NDArray[np.intp]:
        """Which boxes show on `columns` px: of those narrower than one px, one per px, row and kind."""
        start, end = axis.share(self.left), axis.share(self.right)
        narrow, each = (end - start) * columns < 1, np.arange(len(start))
        if narrow.sum() <= columns:
            return each
        place = np.stack([(start * columns).astype(np.intp), np.round(self.top).astype(np.intp), self.kind])
        return np.sort(np.unique(np.where(narrow, place, -1 - each), axis=1, return_index=True)[1])

    def take(self, which: NDArray[np.intp]) -> Boxes:
        """Some of the boxes, by their indices."""
        if len(which) == len(self.left):
            return self
        faint = None if self.faint is None else self.faint[which]
        told = [self.told[i] for i in which]
        left, right, top, bottom = (one[which] for one in (self.left, self.right, self.top, self.bottom))
        return Boxes(left, right, top, bottom, self.kind[which], self.kinds, told, faint, self.outline, self.ghost)


@dataclass(frozen=True, slots=True, eq=False)
class Stack:
    """Areas on top of each other, in steps: from edges[i] to edges[i + 1] kind k reaches up to tops[k, i]."""

    edges: Values
    tops: Values  # (kinds, steps)
    kinds: tuple[str, ...]  # from the bottom up
    told: Sequence[str]  # of each step


@dataclass(frozen=True, slots=True, eq=False)
class Line:
    """One line through points."""

    x: Values
    y: Values
    role: str
    told: str = ""
    dash: Dash = SOLID
    weak: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Segments:
    """Straight pieces in columns, all of one look."""

    x0: Values
    y0: Values
    x1: Values
    y1: Values
    role: str
    weak: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Dots:
    """Points that were measured."""

    x: Values
    y: Values
    role: str
    told: Sequence[str]


@dataclass(frozen=True, slots=True, eq=False)
class Labels:
    """Small text at points, `dx` px to the right. strong: which of them are bold. halo: legible over marks."""

    x: Values
    y: Values
    text: Sequence[str]
    role: str = "muted"
    anchor: Literal["start", "middle"] = "middle"
    dx: float = 0.0
    strong: Sequence[bool] = ()
    halo: bool = False


Mark = Boxes | Stack | Line | Segments | Dots | Labels


@dataclass(frozen=True, slots=True)
class Axes:
    """One plot: `height` px, with `head` px above for its title and `foot` px below for what is written there.

    right: a second upward axis, of words. limits: lines of a key under the title, (dash, text). corner: a name inside
    the plot. bare: nothing is written along the lower edge, because the plot below says it.
    """

    x: Axis
    y: Axis
    marks: tuple[Mark, ...]
    height: float
    head: float = 0.0
    foot: float = 0.0
    title: str = ""
    subtitle: str = ""
    limits: tuple[tuple[Dash, str], ...] = ()
    corner: str = ""
    right: tuple[tuple[float, str], ...] = ()
    bare: bool = False

    @property
    def whole(self) -> float:
        """px from the top of its title to the end of its foot."""
        return self.head + self.height + self.foot


@dataclass(frozen=True, slots=True)
class Column:
    """Plots one below the other. share: of the width that all columns' margins (px) leave to the plots."""

    axes: tuple[Axes, ...]
    left: float
    right: float
    share: float = 1.0

    @property
    def height(self) -> float:
        return sum(axes.whole for axes in self.axes)


@dataclass(frozen=True, slots=True)
class Figure:
    """All of a picture. name: for style sheets and scripts.

    key: roles and what they stand for; a reader may hide them one by one. note: a key in words. said: what stands below
    the drawing, `folded` what is folded away there; room: lines of words that are kept free at least, so that a figure
    which replaces another does not move what is below.
    """

    name: str
    title: str
    columns: tuple[Column, ...]
    words: str
    key: tuple[tuple[str, str], ...] = ()
    note: str = ""
    said: tuple[str, ...] = ()
    folded: tuple[str, ...] = ()
    room: int = 0
    width: int = 816  # px, where nothing around it says how wide it may be

    def __str__(self) -> str:
        return self.words

    @property
    def height(self) -> int:
        """px of the drawing alone."""
        return round(max(column.height for column in self.columns))

    @property
    def whole(self) -> int:
        """px with the heading above and the words below."""
        lines = sum(-(-len(line) // LETTERS) for line in self.said) + bool(self.folded)
        lines = max(lines, self.room)
        return HEADING + self.height + (4 + LINE * lines if lines else 0)

    def axes(self) -> Iterator[tuple[int, Axes]]:
        """(number of its column, plot) of every plot."""
        return ((number, axes) for number, column in enumerate(self.columns) for axes in column.axes)
