"""Solutions of lab 01, Collectives: one function per exercise."""

import torch
import torch.distributed as dist


def bus_bandwidth(whole, piece, seconds):
    """Bus bandwidth of a reduce-scatter in GB/s. whole (n C,) went in, piece (C,) came out; returns a float."""
    n = dist.get_world_size()
    size = whole.numel() * whole.element_size()  # S: what goes in, n pieces
    return size / seconds * (n - 1) / n / 1e9  # algbw, times the share that crosses each link, in GB


def broadcast(x, source, group=None):
    """Everyone gets the source's tensor, with send and receive only. x (C,); returns a new tensor (C,)."""
    n, r = dist.get_world_size(group), dist.get_rank(group)
    if r != source:
        inbox = torch.empty_like(x)  # (C,)
        dist.recv(inbox, source, group=group)
        return inbox
    for other in range(n):
        if other != source:
            dist.send(x, other, group=group)
    return x.clone()


def ring_all_reduce(x, group=None):
    """Sum x over the group with send and receive only. x (C,), any C; returns a new tensor (C,)."""
    n, r = dist.get_world_size(group), dist.get_rank(group)
    right, left = (r + 1) % n, (r - 1) % n
    chunks = list(x.clone().tensor_split(n))  # n x (C/n,)

    for step in range(n - 1):  # reduce-scatter: a chunk travels on and is added to
        out, acc = (r - step) % n, (r - step - 1) % n
        inbox = torch.empty_like(chunks[acc])
        sending = dist.isend(chunks[out], right, group=group)
        dist.recv(inbox, left, group=group)
        sending.wait()
        chunks[acc] += inbox

    for step in range(n - 1):  # all-gather: rank r begins with chunk r + 1, which is complete
        out, new = (r + 1 - step) % n, (r - step) % n
        sending = dist.isend(chunks[out], right, group=group)
        dist.recv(chunks[new], left, group=group)
        sending.wait()

    return torch.cat(chunks)  # (C,)


def all_reduce_from_halves(x, group=None):
    """Sum x over the group with one reduce-scatter and one all-gather. x (C,), any C; returns a new tensor (C,)."""
    n = dist.get_world_size(group)
    size = -(-len(x) // n)  # ceil(C/n)
    padded = x.new_zeros(n * size)  # (n ceil(C/n),)
    padded[: len(x)] = x
    chunks = list(padded.split(size))  # n x (ceil(C/n),), views of padded
    mine = torch.empty_like(chunks[0])  # (ceil(C/n),)
    dist.reduce_scatter(mine, chunks, group=group)  # rank r has chunk r of the sum
    dist.all_gather(chunks, mine, group=group)  # every rank has every chunk
    return padded[: len(x)]


def tree_broadcast(x, source, group=None):
    """Everyone gets the source's tensor in ceil(log2 n) rounds. x (C,); returns a new tensor (C,)."""
    n, r = dist.get_world_size(group), dist.get_rank(group)
    place = (r - source) % n  # counted from the source: it stands at place 0
    have = x.clone()  # (C,)
    distance = 1
    while distance < n:  # places below `distance` have it: each hands it on by that distance
        if place < distance and place + distance < n:
            dist.send(have, (r + distance) % n, group=group)
        elif distance <= place < 2 * distance:
            dist.recv(have, (r - distance) % n, group=group)
        distance *= 2
    return have


def shift_right(x, group=None):
    """Every rank hands x to its right neighbour, returns its left neighbour's. x (C,); returns a new tensor (C,)."""
    n, r = dist.get_world_size(group), dist.get_rank(group)
    inbox = torch.empty_like(x)  # (C,)
    sending = dist.isend(x, (r + 1) % n, group=group)  # started, not waited for
    dist.recv(inbox, (r - 1) % n, group=group)
    sending.wait()
    return inbox
