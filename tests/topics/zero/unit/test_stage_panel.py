"""The switch between stages of ZeRO: driven and read without a browser."""

from __future__ import annotations

import pytest

from kit.topics.zero.panel import StagePanel, stages_panel
from kit.trace.trace import Trace
from tests.topics.zero.unit.test_stage_figures import P, run_of, runs
from tests.unit.panels.test_still import picture_of


class Measured:
    """What a record with `memory=True` is, as far as the switch looks at it."""

    def __init__(self, trace: Trace, about: str = "") -> None:
        self.trace, self.about = trace, about


def primary(panel: object) -> list[int]:
    return [number for number, made in panel._buttons.items() if "lsp-primary" in made._dom_classes]  # type: ignore[attr-defined]


def test_it_stands_at_the_first_stage_and_is_moved_by_a_method_or_a_button() -> None:
    panel = StagePanel(runs(), P)
    assert panel.chosen == 0 and primary(panel) == [0]
    panel.stage(3)
    assert panel.chosen == 3 and primary(panel) == [3] and "16P/n = 4 MB" in panel.text()
    assert "16P/n = 4 MB" in panel._views[0]._svg.value
    panel._buttons[1].click()
    assert panel.chosen == 1 and primary(panel) == [1] and "8P + 8P/n = 10 MB" in panel.text()


def test_every_stage_is_as_large() -> None:
    panel = StagePanel(runs(), P)
    heights = set()
    for stage in range(4):
        panel.stage(stage)
        heights.add(picture_of(panel).get("height"))
    assert len(heights) == 1


def test_a_stage_that_was_not_run_is_refused_and_nothing_moves() -> None:
    panel = StagePanel({0: run_of(0), 2: run_of(2)}, P)
    with pytest.raises(ValueError, match="stage 1 was not run: choose from 0, 2"):
        panel.stage(1)
    assert panel.chosen == 0 and primary(panel) == [0]


def test_a_record_is_taken_and_a_recording_says_that_it_is_one() -> None:
    measured = {stage: Measured(trace, "A recording.") for stage, trace in runs().items()}
    panel = stages_panel(measured, parameters=P)
    assert panel.text().startswith("A recording.\nStage 0: data parallel.")
    assert "A recording." in "".join(picture_of(panel).itertext())
    assert panel.figures[2].due == 7 * P
    mixed = stages_panel({1: Measured(run_of(1))}, parameters=P, precision="mixed")
    assert mixed.figures[1].formula == "4P + 12P/n" and mixed.chosen == 1
