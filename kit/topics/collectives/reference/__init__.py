"""Collectives from send and receive only, in plain torch, short enough to step through.

    naive        through one rank, or one message at a time: right, easy to read, and slow
    ring         chunks go round: reduce-scatter, all-gather, and the all-reduce they make; all-to-all
    tree         in ceil(log2 n) rounds: broadcast and all-reduce; halving and doubling
    primitives   what all of them are made of: a tensor cut into chunks, two messages at the same time

Letters throughout: r this rank, n the ranks of the group, C elements or rows. `group=None` is the world; every rank
named (`root` too) counts within the group. Every rank of the group must call, with tensors of the same dtype and,
unless said otherwise, the same shape. Inputs stay as they are, results are new tensors without gradient history.
"""

from kit.topics.collectives.reference.naive import (
    all_gather_via_root,
    all_reduce_via_root,
    all_to_all_in_turn,
    broadcast_from_root,
    reduce_scatter_via_root,
)
from kit.topics.collectives.reference.primitives import chunk_sizes, exchange
from kit.topics.collectives.reference.ring import all_to_all, ring_all_gather, ring_all_reduce, ring_reduce_scatter
from kit.topics.collectives.reference.tree import halving_doubling_all_reduce, tree_all_reduce, tree_broadcast

__all__ = [
    "all_gather_via_root",
    "all_reduce_via_root",
    "all_to_all",
    "all_to_all_in_turn",
    "broadcast_from_root",
    "chunk_sizes",
    "exchange",
    "halving_doubling_all_reduce",
    "reduce_scatter_via_root",
    "ring_all_gather",
    "ring_all_reduce",
    "ring_reduce_scatter",
    "tree_all_reduce",
    "tree_broadcast",
]
