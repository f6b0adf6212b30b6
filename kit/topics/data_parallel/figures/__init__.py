"""Pictures of data parallel training: overlap, scaling, losses, and flow charts of a step."""

from kit.topics.data_parallel.figures.losses import loss_figure
from kit.topics.data_parallel.figures.overlap import overlap_figure
from kit.topics.data_parallel.figures.scaling import scaling_figure
from kit.topics.data_parallel.figures.training import TRAINING, step_in_hand, training_chart

__all__ = ["TRAINING", "loss_figure", "overlap_figure", "scaling_figure", "step_in_hand", "training_chart"]
