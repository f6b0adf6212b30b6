"""ZeRO in plain torch, made to be read and stepped.

To be read in this order:

    by_hand      all of it in one file: the three stages as plain functions, the shards and AdamW they are made of
    stages       ZeroStage1, ZeroStage2, ZeroStage3: the same for any module, while backward goes on
    optimizer    what the stages share: the face of torch.optim, sums under way, clipping, micro-batches
    flat         weights and gradients in flat buffers, all of them or this rank's shard
    adamw        the state of one shard
    layers       which modules stage 3 gathers and frees together
    validation   what a person can do wrong, and what to do instead

Letters: P parameters, n ranks, r this one, m micro-batches, L layers. What a rank holds at rest (buckets, the layer in
hand and activations come on top), and what it sends:

    stage   bytes, mixed    bytes, fp32    elements in a step, times (n-1)/n
    1       4P + 12P/n      8P + 8P/n      2P     if all micro-batches but the last are in no_sync
    2       2P + 14P/n      4P + 12P/n     (m + 1)P
    3       16P/n           16P/n          3mP    less where the last layer is kept

Rajbhandari, Rasley, Ruwase and He, ZeRO: memory optimizations toward training trillion parameter models (2020).
"""

from kit.topics.zero.reference.stages import ZeroStage1, ZeroStage2, ZeroStage3

__all__ = ["ZeroStage1", "ZeroStage2", "ZeroStage3"]
