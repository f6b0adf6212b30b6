"""Data parallel training: every rank has the whole model and its own part of the batch, and gradients are averaged.

    by_hand         all of it on one screen: equal states at the start, the mean of gradients after each backward pass
    ddp             three wrappers with the interface of torch's DistributedDataParallel: one that averages when
                    backward is over, one with a hook for each gradient, one with buckets of them
    buckets         gradients side by side in flat buffers
    replica         what the wrappers share: hooks, micro-batches, buffers, parameters that were not used
    gradient_owner  of two wrappers around one model, the newest averages
    validation      what cannot be wrapped, and what goes wrong in backward
    built_in        torch's own collectives with the signatures of those in `collectives.reference`

Letters: n the ranks of the group, K the parameters that are trained, each counted once however many modules share it.
`group=None` is the world. The mean gives every rank the same weight: with a loss that is a mean over B samples, it is
the gradient of the whole batch of n B only where B is the same on every rank.
"""

from kit.topics.data_parallel.reference.by_hand import average_gradients, broadcast_state
from kit.topics.data_parallel.reference.ddp import AveragedAfterBackward, BucketedDDP, HookedDDP

__all__ = ["AveragedAfterBackward", "BucketedDDP", "HookedDDP", "average_gradients", "broadcast_state"]
