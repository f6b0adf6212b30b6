"""Solutions of lab 03b, Data parallel, while backward goes on: one function per exercise."""

from collections import Counter

import torch
import torch.distributed as dist
from torch.autograd import Variable


def attach_averaging_hooks(model, micro_batches, group=None):
    """From now on every `micro_batches`-th backward pass leaves the mean over the group in every p.grad."""
    n, calls = dist.get_world_size(group), Counter()
    order = [p for p in model.parameters() if p.requires_grad][::-1]  # backward's order, about; a shared one once
    complete, works = set(), []

    def hook(p):
        calls[p] += 1
        if calls[p] % micro_batches:  # gradients add up on their rank
            return
        complete.add(p)
        while len(works) < len(order) and order[len(works)] in complete:  # the same order on every rank
            q = order[len(works)]
            q.grad /= n
            works.append(dist.all_reduce(q.grad, group=group, async_op=True))
        if len(works) == len(order):  # this was the last gradient of the pass
            for work in works:
                work.wait()
            complete.clear()
            works.clear()

    for p in order:
        p.register_post_accumulate_grad_hook(hook)


def average_in_buckets(model, bucket_bytes, group=None):
    """From now on every backward pass leaves the mean in every p.grad, sent in flat buckets of at most bucket_bytes."""
    n, buckets, room = dist.get_world_size(group), [], 0
    for p in reversed([p for p in model.parameters() if p.requires_grad]):  # backward's order, about
        nbytes = p.numel() * p.element_size()
        if not buckets or nbytes > room:
            buckets.append([])
            room = max(bucket_bytes, nbytes)  # one gradient may be larger alone
        buckets[-1].append(p)
        room -= nbytes

    flats = [torch.cat([torch.zeros_like(p).flatten() for p in bucket]) for bucket in buckets]  # each (S,)
    arrived, works = set(), []

    def hook(p):
        if not arrived:
            Variable._execution_engine.queue_callback(finish)
        arrived.add(p)
        while len(works) < len(buckets) and arrived.issuperset(buckets[len(works)]):  # the same order on every rank
            bucket, flat = buckets[len(works)], flats[len(works)]
            torch.cat([q.grad.flatten() / n for q in bucket], out=flat)  # (S,)
            works.append(dist.all_reduce(flat, group=group, async_op=True))

    def finish():
        for work, bucket, flat in zip(works, buckets, flats, strict=True):
            work.wait()
            for q, part in zip(bucket, flat.split([q.numel() for q in bucket]), strict=True):
                q.grad = part.view(q.shape)  # shape of q
        arrived.clear()
        works.clear()

    for bucket in buckets:
        for p in bucket:
            p.register_post_accumulate_grad_hook(hook)
