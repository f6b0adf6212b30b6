"""Solutions of lab 01b, What collectives cost: one function per exercise."""

import torch
import torch.distributed as dist


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
            dist.send(have, group_dst=(r + distance) % n, group=group)
        elif distance <= place < 2 * distance:
            dist.recv(have, group_src=(r - distance) % n, group=group)
        distance *= 2
    return have


def bus_bandwidth(whole, piece, seconds):
    """Bus bandwidth of a reduce-scatter in GB/s. whole (n C,) went in, piece (C,) came out; returns a float."""
    n = dist.get_world_size()
    size = whole.numel() * whole.element_size()  # S: what goes in, n pieces
    return size / seconds * (n - 1) / n / 1e9  # algbw, times the share that crosses each link, in GB
