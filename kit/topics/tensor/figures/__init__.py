"""Pictures of tensor parallelism: who holds which part of a matrix, and flow charts of layers that are cut."""

from kit.topics.tensor.figures.charts import LAYERS, step_in_hand, tensor_chart
from kit.topics.tensor.figures.cuts import CUTS, cut_figure

__all__ = ["CUTS", "LAYERS", "cut_figure", "step_in_hand", "tensor_chart"]
