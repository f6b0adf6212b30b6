"""Pipeline parallel in plain torch, made to be read and stepped.

To be read in this order:

    by_hand   one stage a rank: all forward then all backward, and 1F1B, as plain functions
    runtime   Pipeline: runs any schedule, receives while it computes
    mail      activations and gradients on their way: one communicator for each direction between two ranks
    parted    the backward pass in two parts: the gradient of the input first, those of the weights when there is time
    stages    a GPT cut into stages, its embedding tied to its head over two ranks
    paced     a layer that takes a given time, to see schedules with

Letters: p ranks, m micro-batches, v stages a rank; (B, T, C) what passes between two stages.
"""

from kit.topics.pipeline.reference.runtime import Pipeline
from kit.topics.pipeline.reference.stages import cut, sum_tied

__all__ = ["Pipeline", "cut", "sum_tied"]
