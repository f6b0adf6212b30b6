"""Tensor and sequence parallel: layers in shards, forward and backward."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kit import lazy

if TYPE_CHECKING:
    from kit.topics.tensor.figures.charts import tensor_chart as tensor_chart
    from kit.topics.tensor.panels import cut_panel as cut_panel
    from kit.topics.tensor.reference.by_hand import copy_in as copy_in
    from kit.topics.tensor.reference.by_hand import gather_in as gather_in
    from kit.topics.tensor.reference.by_hand import mlp as mlp
    from kit.topics.tensor.reference.by_hand import scatter_out as scatter_out
    from kit.topics.tensor.reference.by_hand import shard as shard
    from kit.topics.tensor.reference.by_hand import sum_out as sum_out
    from kit.topics.tensor.reference.gpt import TensorParallelGPT as TensorParallelGPT
    from kit.topics.tensor.reference.nodes import one_stage as one_stage
    from kit.topics.tensor.reference.nodes import two_stages as two_stages

if not TYPE_CHECKING:
    __getattr__ = lazy.names(__name__)
