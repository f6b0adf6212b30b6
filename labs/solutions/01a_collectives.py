"""Solutions of lab 01a, Collectives: one function per exercise."""

import torch
import torch.distributed as dist


def broadcast(x, source, group=None):
    """Everyone gets the source's tensor, with send and receive only. x (C,); returns a new tensor (C,)."""
    n, r = dist.get_world_size(group), dist.get_rank(group)
    if r != source:
        inbox = torch.empty_like(x)  # (C,)
        dist.recv(inbox, group_src=source, group=group)
        return inbox
    for other in range(n):
        if other != source:
            dist.send(x, group_dst=other, group=group)
    return x.clone()


def ring_all_reduce(x, group=None):
    """Sum x over the group with send and receive only. x (C,), any C; returns a new tensor (C,)."""
    n, r = dist.get_world_size(group), dist.get_rank(group)
    right, left = (r + 1) % n, (r - 1) % n
    chunks = list(x.clone().tensor_split(n))  # n x (C/n,)

    for step in range(n - 1):  # reduce-scatter: a chunk travels on and is added to
        out, acc = (r - step) % n, (r - step - 1) % n
        inbox = torch.empty_like(chunks[acc])
        sending = dist.isend(chunks[out], group_dst=right, group=group)
        dist.recv(inbox, group_src=left, group=group)
        sending.wait()
        chunks[acc] += inbox

    for step in range(n - 1):  # all-gather: rank r begins with chunk r + 1, which is complete
        out, new = (r + 1 - step) % n, (r - step) % n
        sending = dist.isend(chunks[out], group_dst=right, group=group)
        dist.recv(chunks[new], group_src=left, group=group)
        sending.wait()

    return torch.cat(chunks)  # (C,)


def shift_right(x, group=None):
    """Every rank hands x to its right neighbour, returns its left neighbour's. x (C,); returns a new tensor (C,)."""
    n, r = dist.get_world_size(group), dist.get_rank(group)
    inbox = torch.empty_like(x)  # (C,)
    sending = dist.isend(x, group_dst=(r + 1) % n, group=group)  # started, not waited for
    dist.recv(inbox, group_src=(r - 1) % n, group=group)
    sending.wait()
    return inbox
