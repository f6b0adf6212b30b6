"""The code that the hand-made traces of `kit.trace.example` show, line for line."""

from __future__ import annotations

RING = """def ring_all_reduce(x, group):
    r, n = dist.get_rank(group), dist.get_world_size(group)
    chunks = list(x.tensor_split(n))     # n x (C/n,)
    right, left = (r + 1) % n, (r - 1) % n
    for s in range(n - 1):               # reduce-scatter
        out, acc = (r - s) % n, (r - s - 1) % n
        inbox = torch.empty_like(chunks[acc])
        exchange(chunks[out], right, inbox, left)
        chunks[acc] += inbox             # (C/n,)
    for s in range(n - 1):               # all-gather
        out, into = (r + 1 - s) % n, (r - s) % n
        exchange(chunks[out], right, chunks[into], left)
    return torch.cat(chunks)             # (C,)"""

VIA_ROOT = """def all_reduce_via_root(x):               # x (C,)
    n, r = dist.get_world_size(), dist.get_rank()
    if r == 0:
        for src in range(1, n):
            inbox = torch.empty_like(x)
            dist.recv(inbox, src=src)
            x = x + inbox
    else:
        dist.send(x, dst=0)
    dist.broadcast(x, src=0)
    return x"""

BOTH_SEND = """def swap(x):
    other = 1 - dist.get_rank()
    inbox = torch.empty_like(x)
    dist.send(x, dst=other)
    dist.recv(inbox, src=other)
    return inbox"""

BOOM = """def average(x):
    n, r = dist.get_world_size(), dist.get_rank()
    x = x / n
    if r == 1:
        y = x.sum()
        if y.isnan():
            raise ValueError('boom')
    dist.all_reduce(x)
    return x"""

OVERLAP = """def overlap(x):
    work = dist.all_reduce(x, async_op=True)
    y = heavy(x)
    work.wait()
    return x + y"""
