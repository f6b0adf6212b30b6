"""Solutions of lab 04, ZeRO: one function per exercise."""

import torch
import torch.distributed as dist

from kit.topics.zero import adamw_


def shard_optimizer_step(weights, gradients, state, lr, group=None):
    """AdamW, of which each rank keeps a shard. weights (P,), equal everywhere, and this rank's gradients (P,).

    Returns the new weights (P,), everywhere the same. state: an empty dict before the first step, then what was left in
    it. The mean of the gradients counts; betas, eps and weight decay are torch's.
    """
    n, r = dist.get_world_size(group), dist.get_rank(group)
    w = torch.cat([weights, weights.new_zeros(-len(weights) % n)]).view(n, -1)  # (n, P/n)
    g = torch.cat([gradients, gradients.new_zeros(-len(gradients) % n)]).view(n, -1)  # (n, P/n)
    mine = torch.empty_like(g[r])  # (P/n,)
    dist.reduce_scatter(mine, list(g), group=group)
    mine /= n
    if not state:
        state.update(step=0, m=torch.zeros_like(mine), v=torch.zeros_like(mine))
    state["step"] += 1
    adamw_(w[r], mine, state["m"], state["v"], state["step"], lr)
    new = torch.empty_like(w)  # (n, P/n)
    dist.all_gather(list(new), w[r], group=group)
    return new.flatten()[: len(weights)]  # (P,) without the padding


def keep_shard(gradient, kept, group=None):
    """Add a micro-batch's gradient (P,), as its mean over the ranks, to what is kept: a shard (P/n,), or None.

    Returns the new shard (P/n,), of equal size on every rank: with zeros at the end of the last one.
    """
    n = dist.get_world_size(group)
    rows = torch.cat([gradient, gradient.new_zeros(-len(gradient) % n)]).view(n, -1)  # (n, P/n)
    mine = torch.empty_like(rows[0])  # (P/n,)
    dist.reduce_scatter(mine, list(rows), group=group)
    mine /= n
    return mine if kept is None else kept + mine


def lend_layer(shard, shape, group=None):
    """Lend out a layer of which each rank has a shard (P/n,). Returns (weight, gather, free).

    weight: a tensor of this shape, without memory. gather() gives it memory and the weights of all ranks; free() takes
    the memory away. They are called in turn, as often as one likes.
    """
    n = dist.get_world_size(group)
    whole = shard.new_empty(n * len(shard))  # (P,) with padding
    weight = whole[: shape.numel()].view(shape)  # shape: a view, made while there is memory
    storage = whole.untyped_storage()
    nbytes = storage.nbytes()
    storage.resize_(0)

    def gather():
        storage.resize_(nbytes)  # the same tensor has memory again, so whatever looks at it does too
        dist.all_gather(list(whole.view(n, -1)), shard, group=group)

    def free():
        storage.resize_(0)

    return weight, gather, free
