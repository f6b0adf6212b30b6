"""Solutions of lab 10, GPT: one function per exercise."""

import torch
import torch.distributed as dist

from kit.gpt import hashes


def accumulated_gradient(weight, batches, group=None):
    """The gradient of the mean over all micro-batches of all ranks, in weight.grad."""
    for x, y in batches:
        loss = (x @ weight - y).square().mean()
        (loss / len(batches)).backward()
    dist.all_reduce(weight.grad, group=group)
    weight.grad /= dist.get_world_size(group)


def validation_loss(losses, tokens, group=None):
    """The mean loss over all tokens of all ranks, ()."""
    total = torch.stack([(losses * tokens).sum(), tokens.sum().float()])
    dist.all_reduce(total, group=group)
    return total[0] / total[1]


def first_parted(tensors, group=None):
    """The name of the first tensor that is not the same on all ranks, '' where all are."""
    own = torch.tensor([int(one, 16) for one in hashes(tensors).values()])  # (K,)
    every = [torch.empty_like(own) for _ in range(dist.get_world_size(group))]
    dist.all_gather(every, own, group=group)
    table = torch.stack(every)  # (n, K)
    same = (table == table[0]).all(0).tolist()
    return next((name for name, alike in zip(tensors, same, strict=True) if not alike), "")


def new_shard(read, P, old, r, n):
    """Shard r of n out of a vector (P,) that old ranks have saved."""
    was, now = -(-P // old), -(-P // n)
    first, end = min(r * now, P), min((r + 1) * now, P)
    shard = torch.zeros(now)
    for k in range(first // was, -(-end // was)) if first < end else ():
        a, b = max(first, k * was), min(end, (k + 1) * was)
        shard[a - first : b - first] = read(k)[a - k * was : b - k * was]
    return shard
