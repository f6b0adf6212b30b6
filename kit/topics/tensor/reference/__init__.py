"""Tensor and sequence parallel in plain torch, made to be read and stepped.

To be read in this order:

    by_hand   all of it on one screen: four communications with their derivatives, and the layers made of them
    regions   what lies outside the layers that are cut: whole everywhere, or cut by position; and random numbers there
    layers    linears, MLP, attention, norm, dropout, embedding and loss as modules, made from whole ones
    gpt       TensorParallelGPT: a whole GPT in shards
    nodes     layers over two nodes: cut over all ranks, or in two stages

Letters: B samples, T positions, C channels, F features, H heads, K of keys and values, V vocabulary, n ranks. What a
block sends in elements of (B, T, C), forward and backward, times (n-1)/n:

    outside       in forward                             in backward
    whole         2 all-reduces: 4                       2 all-reduces: 4
    by position   2 all-gathers, 2 reduce-scatters: 4    the same: 4, and gradients of vectors
"""

from kit.topics.tensor.reference.gpt import TensorParallelGPT

__all__ = ["TensorParallelGPT"]
