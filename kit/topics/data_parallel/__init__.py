"""Data parallel training: equal models, own data, averaged gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kit import lazy

if TYPE_CHECKING:
    from kit.topics.data_parallel.cost import predicted_overlap as predicted_overlap
    from kit.topics.data_parallel.figures import training_chart as training_chart
    from kit.topics.data_parallel.loading_strategies import measure_loading as measure_loading
    from kit.topics.data_parallel.overlap import measure_overlap as measure_overlap
    from kit.topics.data_parallel.overlap import plot_overlap as plot_overlap
    from kit.topics.data_parallel.panels import loss_panel as loss_panel
    from kit.topics.data_parallel.reference import AveragedAfterBackward as AveragedAfterBackward
    from kit.topics.data_parallel.reference import BucketedDDP as BucketedDDP
    from kit.topics.data_parallel.reference import HookedDDP as HookedDDP
    from kit.topics.data_parallel.reference import average_gradients as average_gradients
    from kit.topics.data_parallel.reference import broadcast_state as broadcast_state
    from kit.topics.data_parallel.scaling import measure_scaling as measure_scaling
    from kit.topics.data_parallel.scaling import timed_training as timed_training

if not TYPE_CHECKING:
    __getattr__ = lazy.names(__name__)
