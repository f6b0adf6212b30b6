"""Panels of data parallel training: what hides communication, how it scales, which training got further."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kit import shown
from kit.panels.figure import FigurePanel
from kit.topics.data_parallel.figures import loss_figure, overlap_figure, scaling_figure
from kit.topics.data_parallel.scaling import Scaling

if TYPE_CHECKING:
    from kit.topics.data_parallel.figures.overlap import Measured


def overlap_panel(measured: Measured | Mapping[str, Measured], step: int = -1, about: str = "") -> FigurePanel:
    """Computing over communication in a training step: a trace or an overlap, or name -> that for several settings."""
    return FigurePanel("Overlap of computing and communication", overlap_figure(measured, step), about=about)


@shown.plot.of(Scaling)
def scaling_panel(measured: Scaling, predicted: Scaling | None = None) -> FigurePanel:
    """Tokens per second and efficiency over ranks, with what `predicted` says."""
    return FigurePanel(f"{measured.mode.capitalize()} scaling", scaling_figure(measured, predicted))


def loss_panel(losses: Mapping[str, Sequence[float]]) -> FigurePanel:
    """Losses of several trainings over the same text, a name for each."""
    return FigurePanel("Loss over the text read", loss_figure(losses))
