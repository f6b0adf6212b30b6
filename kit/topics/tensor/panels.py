"""A stepped layer with its matrices as grids above: who holds which part of them by now."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from kit.panels.stepping import SteppingPanel
from kit.topics.tensor.figures.cuts import cut_figure

if TYPE_CHECKING:
    from kit.run.cursor import TraceCursor


def cut_panel(session: TraceCursor, cut: str) -> SteppingPanel:
    """The stepping panel of a session whose function has small matrices x, w, y, or dy, dx, dw.

    cut: 'columns', 'columns backward', 'rows' or 'rows backward'. Raises ValueError as `cut_figure`.
    """
    return SteppingPanel(session, moment=partial(cut_figure, cut=cut))
