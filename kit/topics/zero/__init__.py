"""ZeRO: optimizer state, gradients and weights in shards."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kit import lazy

if TYPE_CHECKING:
    from kit.topics.zero.cost import FP32 as FP32
    from kit.topics.zero.cost import MIXED as MIXED
    from kit.topics.zero.cost import MODELS as MODELS
    from kit.topics.zero.cost import fewest_nodes as fewest_nodes
    from kit.topics.zero.cost import fitting as fitting
    from kit.topics.zero.cost import fitting_table as fitting_table
    from kit.topics.zero.cost import layer_in_hand as layer_in_hand
    from kit.topics.zero.cost import model_state as model_state
    from kit.topics.zero.figures import last_step as last_step
    from kit.topics.zero.panel import stages_panel as stages_panel
    from kit.topics.zero.reference import ZeroStage1 as ZeroStage1
    from kit.topics.zero.reference import ZeroStage2 as ZeroStage2
    from kit.topics.zero.reference import ZeroStage3 as ZeroStage3
    from kit.topics.zero.reference.by_hand import adamw_ as adamw_

if not TYPE_CHECKING:
    __getattr__ = lazy.names(__name__)
