"""Wrong solutions of lab 01's all-reduces, each a mistake people make."""

import torch
import torch.distributed as dist

from tests.mutants.mutant import Mutants
from tests.mutants.wrong_collectives import exchange, me

wrong = Mutants()


# ring all-reduce


def ring(x, adding=None, handing=None, step_shift=0):
    n, r, right, left = me()
    chunks = list(x.clone().tensor_split(n))
    for s in range(n - 1 if adding is None else adding):
        out, acc = (r - s) % n, (r - s - 1) % n
        inbox = torch.empty_like(chunks[acc])
        exchange(chunks[out], right, inbox, left)
        chunks[acc] += inbox
    for s in range(n - 1 if handing is None else handing):
        out, new = (r + 1 - s + step_shift) % n, (r - s + step_shift) % n
        inbox = torch.empty_like(chunks[new])
        exchange(chunks[out], right, inbox, left)
        chunks[new] = inbox
    return chunks


@wrong("ring-all-reduce", "traffic", "bytes where", "the whole tensor goes round, not one chunk of it", "line")
def whole_tensor_goes_round(x):
    n, _, right, left = me()
    total, passing = x.clone(), x.clone()
    for _ in range(n - 1):
        inbox = torch.empty_like(x)
        exchange(passing, right, inbox, left)
        total += inbox
        passing = inbox
    return total


@wrong("ring-all-reduce", "values", "right on 2 ranks only", "lacks what")
def one_step_each(x):
    return torch.cat(ring(x, adding=1, handing=1))


@wrong("ring-all-reduce", "values", "lacks what")
def one_step_too_few(x):
    n, _, _, _ = me()
    return torch.cat(ring(x, handing=n - 2))


@wrong("ring-all-reduce", "values", "lacks what")
def hands_on_the_wrong_chunk(x):
    return torch.cat(ring(x, step_shift=-1))


@wrong("ring-all-reduce", "values", "wrong order of chunks")
def chunks_turned(x):
    chunks = ring(x)
    return torch.cat(chunks[1:] + chunks[:1])


@wrong("ring-all-reduce", "values", "changed its input in place")
def adds_into_the_input(x):
    n, r, right, left = me()
    chunks = list(x.tensor_split(n))
    for s in range(n - 1):
        acc = (r - s - 1) % n
        inbox = torch.empty_like(chunks[acc])
        exchange(chunks[(r - s) % n], right, inbox, left)
        chunks[acc] += inbox
    for s in range(n - 1):
        exchange(chunks[(r + 1 - s) % n], right, chunks[(r - s) % n], left)
    return x.clone()


@wrong("ring-all-reduce", "values", "not the mean")
def averages(x):
    return torch.cat(ring(x)) / dist.get_world_size()


@wrong("ring-all-reduce", "values", "counts rank", "twice")
def own_part_twice(x):
    return torch.cat(ring(x)) + x


@wrong("ring-all-reduce", "traffic", "built-in all_reduce", "send and receive only")
def built_in_all_reduce(x):
    y = x.clone()
    dist.all_reduce(y)
    return y


@wrong("ring-all-reduce", "traffic", "right neighbour only")
def everyone_to_everyone(x):
    n, r, _, _ = me()
    chunks = list(x.clone().tensor_split(n))
    mine = chunks[r].clone()
    for d in range(1, n):
        inbox = torch.empty_like(mine)
        exchange(chunks[(r + d) % n], (r + d) % n, inbox, (r - d) % n)
        mine += inbox
    chunks[r] = mine
    for d in range(1, n):
        exchange(mine, (r + d) % n, chunks[(r - d) % n], (r - d) % n)
    return torch.cat(chunks)


@wrong("ring-all-reduce", "values", "start the send with dist.isend")
def everyone_sends_first(x):
    n, r, right, left = me()
    chunks = list(x.clone().tensor_split(n))
    for s in range(n - 1):
        inbox = torch.empty_like(chunks[(r - s - 1) % n])
        dist.send(chunks[(r - s) % n], right)
        dist.recv(inbox, left)
        chunks[(r - s - 1) % n] += inbox
    return torch.cat(chunks)


# all-reduce from its two halves


def padded_pieces(x):
    n = dist.get_world_size()
    size = -(-len(x) // n)
    padded = x.new_zeros(n * size)
    padded[: len(x)] = x
    return padded, list(padded.split(size))


@wrong("all-reduce-from-halves", "traffic", "all_reduce", "reduce_scatter and all_gather are asked for")
def one_all_reduce(x):
    y = x.clone()
    dist.all_reduce(y)
    return y


@wrong("all-reduce-from-halves", "values", "padding was not cut off")
def padding_left(x):
    padded, chunks = padded_pieces(x)
    mine = torch.empty_like(chunks[0])
    dist.reduce_scatter(mine, chunks)
    dist.all_gather(chunks, mine)
    return padded


@wrong("all-reduce-from-halves", "values", "not the mean")
def averaged(x):
    padded, chunks = padded_pieces(x)
    mine = torch.empty_like(chunks[0])
    dist.reduce_scatter(mine, chunks)
    dist.all_gather(chunks, mine)
    return padded[: len(x)] / dist.get_world_size()


@wrong("all-reduce-from-halves", "values", "wrong order of chunks")
def gathered_backwards(x):
    padded, chunks = padded_pieces(x)
    mine = torch.empty_like(chunks[0])
    dist.reduce_scatter(mine, chunks)
    dist.all_gather(chunks, mine)
    return torch.cat(chunks[::-1])[: len(x)]


@wrong("all-reduce-from-halves", "values", "lacks what")
def gathers_its_input(x):
    padded, chunks = padded_pieces(x)
    mine = torch.empty_like(chunks[0])
    own = chunks[dist.get_rank()].clone()
    dist.reduce_scatter(mine, chunks)
    dist.all_gather(chunks, own)
    return padded[: len(x)]


@wrong("all-reduce-from-halves", "traffic", "pad to the next multiple of n")
def padded_too_far(x):
    n = dist.get_world_size()
    padded = torch.cat([x, x.new_zeros(n * len(x) - len(x))])
    chunks = list(padded.split(len(x)))
    mine = torch.empty_like(x)
    dist.reduce_scatter(mine, chunks)
    dist.all_gather(chunks, mine)
    return torch.cat(chunks)[: len(x)]
