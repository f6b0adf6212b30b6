"""One figure of every kind, for what holds of all of them."""

from __future__ import annotations

from kit.cost.pipeline import Times, simulated
from kit.plan.families import schedule
from kit.plot.bandwidth import bandwidth_figure
from kit.plot.figure import Figure
from kit.plot.memory import memory_figure
from kit.plot.pipeline import pipeline_figure
from kit.plot.timeline import timeline_figure
from kit.plot.traffic import traffic_figure
from kit.topics.data_parallel.figures import loss_figure, overlap_figure, scaling_figure
from kit.topics.gpt.mesh import mesh_figure
from kit.topics.gpt.reference.layout import Layout
from kit.topics.tensor.figures import cut_figure
from kit.topics.zero.figures import stage_figures
from tests.topics.data_parallel.unit import test_loss_figure, test_overlap_figure, test_scaling_figure
from tests.topics.tensor.unit import test_cuts
from tests.topics.zero.unit import test_stage_figures
from tests.traces import example
from tests.unit.plot import test_bandwidth, test_memory

FIGURES: dict[str, Figure] = {
    "timeline": timeline_figure(example.held_ring()),
    "timeline of a past": timeline_figure(example.ring(4), 12, example.ring(4)),
    "traffic": traffic_figure(example.via_root()),
    "memory": memory_figure(test_memory.two(), test_memory.FORMULAS),
    "bandwidth": bandwidth_figure(test_bandwidth.sweep(), link=test_bandwidth.LINK),
    "pipeline": pipeline_figure(
        {
            "ideal": simulated(schedule("1F1B", 4, 8)),
            "with a slow stage": simulated(schedule("1F1B", 4, 8), Times(stages={2: 1.4}, latency=0.1)),
        },
        "units",
    ),
    "pipeline both ways": pipeline_figure({"ideal": simulated(schedule("DualPipe", 4, 8), Times(together=2.6))}),
    "overlap": overlap_figure(test_overlap_figure.settings()),
    "scaling": scaling_figure(test_scaling_figure.WEAK, test_scaling_figure.PREDICTED),
    "losses": loss_figure({"1 rank": test_loss_figure.ALONE, "4 ranks": test_loss_figure.TOGETHER}),
    "mesh": mesh_figure(Layout("ddp", dp=2, tp=2, pp=2), "dp=1"),
    "terms of a sum": cut_figure(test_cuts.by_rows(summed=False), 0, "rows"),
    "stages": stage_figures(test_stage_figures.runs(), test_stage_figures.P)[0][2],
}
