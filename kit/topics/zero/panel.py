"""A switch from stage 0 to stage 3 of ZeRO: what was measured of each, in one place and to one scale."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from kit.panels.figure import Choice, FigureSwitch
from kit.topics.zero.figures import stage_figures
from kit.trace.trace import Trace

if TYPE_CHECKING:
    from kit.run.results import MemoryRecording

_STAGES = {
    0: ("Stage 0: data parallel", "Every rank has everything; gradients are averaged."),
    1: ("Stage 1", "Each rank steps its shard, then weights are gathered."),
    2: ("Stage 2", "Each gradient is summed at its shard's owner, then freed."),
    3: ("Stage 3", "A layer's weights are gathered to compute, then freed."),
}


class StagePanel(FigureSwitch[int]):
    """`stage(2)` moves the switch, `chosen` says where it stands, `text()` reads all without a browser.

    `figures[2]`: what was measured of stage 2 and what formulas say, a `figures.Stage`.
    runs: stage -> a trace with accounts of memory. parameters: P. about: of a recording, that it is one.
    """

    def __init__(self, runs: Mapping[int, Trace], parameters: int, precision: str = "fp32", about: str = "") -> None:
        drawn, self.figures = stage_figures(runs, parameters, precision)
        choices = {stage: Choice(*_STAGES[stage], figure) for stage, figure in drawn.items()}
        super().__init__("Stages of ZeRO", choices, about, kind="stage")

    def stage(self, number: int) -> None:
        """Shows one of the stages. Raises ValueError for one that was not run."""
        if number not in self.figures:
            raise ValueError(f"stage {number} was not run: choose from {', '.join(map(str, self.figures))}")
        self.choose(number)


def stages_panel(
    runs: Mapping[int, MemoryRecording | Trace], *, parameters: int, precision: Literal["fp32", "mixed"] = "fp32"
) -> StagePanel:
    """A switch from stage 0 to stage 3 of ZeRO: memory by rank over a step, what is held at rest, what is sent.

    runs: stage -> what `kit.options(memory=True).record(...)` returned for a function that trains at that stage and
    ends with the optimizer's step. parameters: P, for the formulas. `.stage(2)` moves the switch, `.text()` reads it.
    ValueError for a run without a training step.
    """
    traces = {stage: run if isinstance(run, Trace) else run.trace for stage, run in runs.items()}
    about = next((run.about for run in runs.values() if not isinstance(run, Trace) and run.about), "")
    return StagePanel(traces, parameters, precision, about)
