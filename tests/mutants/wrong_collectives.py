"""Wrong solutions of lab 01, each a mistake people make."""

import torch
import torch.distributed as dist

from tests.mutants.mutant import Mutants

wrong = Mutants()


def exchange(out, right, inbox, left):
    sending = dist.isend(out, right)
    dist.recv(inbox, left)
    sending.wait()


def me(group=None):
    n, r = dist.get_world_size(group), dist.get_rank(group)
    return n, r, (r + 1) % n, (r - 1) % n


# reduce-scatter-bandwidth


def nbytes(x):
    return x.numel() * x.element_size()


def n_ranks():
    return dist.get_world_size()


@wrong("reduce-scatter-bandwidth", "values", "2 times too low", "the output was counted", "2**30")
def left_as_it_was(whole, piece, seconds):
    return nbytes(piece) * (n_ranks() - 1) / n_ranks() / seconds / 2**30


@wrong("reduce-scatter-bandwidth", "values", "2 times too low", "S of a reduce-scatter is the whole that goes in")
def output_only(whole, piece, seconds):
    return nbytes(piece) * (n_ranks() - 1) / n_ranks() / seconds / 1e9


@wrong("reduce-scatter-bandwidth", "values", "7 % too low", "10**9")
def still_gib(whole, piece, seconds):
    return nbytes(whole) * (n_ranks() - 1) / n_ranks() / seconds / 2**30


@wrong("reduce-scatter-bandwidth", "values", "right on 2 ranks only", "S is the whole that goes in", "2/3")
def output_over_time(whole, piece, seconds):
    return nbytes(piece) / seconds / 1e9


@wrong("reduce-scatter-bandwidth", "values", "twice too high", "all-reduce")
def factor_of_an_all_reduce(whole, piece, seconds):
    return nbytes(whole) * 2 * (n_ranks() - 1) / n_ranks() / seconds / 1e9


@wrong("reduce-scatter-bandwidth", "values", "twice too high", "algbw")
def algorithm_bandwidth(whole, piece, seconds):
    return nbytes(whole) / seconds / 1e9


@wrong("reduce-scatter-bandwidth", "values", "elements were counted", "4 bytes")
def elements(whole, piece, seconds):
    return whole.numel() * (n_ranks() - 1) / n_ranks() / seconds / 1e9


@wrong("reduce-scatter-bandwidth", "values", "GB/s are asked for")
def bytes_per_second(whole, piece, seconds):
    return nbytes(whole) * (n_ranks() - 1) / n_ranks() / seconds


@wrong("reduce-scatter-bandwidth", "values", "returned nothing")
def printed_only(whole, piece, seconds):
    print(nbytes(whole) * (n_ranks() - 1) / n_ranks() / seconds / 1e9)


@wrong("reduce-scatter-bandwidth", "traffic", "all_reduce", "no communication is needed")
def asks_the_others_how_long(whole, piece, seconds):
    longest = torch.tensor(seconds, dtype=torch.float64)
    dist.all_reduce(longest, dist.ReduceOp.MAX)
    return nbytes(whole) * (n_ranks() - 1) / n_ranks() / longest.item() / 1e9


# broadcast


@wrong("broadcast", "values", "wrong source", "rank 0")
def always_from_rank_zero(x, source):
    n, r, _, _ = me()
    if r == 0:
        for other in range(1, n):
            dist.send(x, other)
        return x.clone()
    inbox = torch.empty_like(x)
    dist.recv(inbox, 0)
    return inbox


@wrong("broadcast", "values", "changed its input in place")
def into_the_input(x, source):
    n, r, _, _ = me()
    if r == source:
        for other in range(n):
            if other != source:
                dist.send(x, other)
    else:
        dist.recv(x, source)
    return x.clone()


@wrong("broadcast", "values", "returned its input itself")
def source_returns_its_own(x, source):
    n, r, _, _ = me()
    if r == source:
        for other in range(n):
            if other != source:
                dist.send(x, other)
        return x
    inbox = torch.empty_like(x)
    dist.recv(inbox, source)
    return inbox


@wrong("broadcast", "values", "returned nothing")
def source_returns_nothing(x, source):
    n, r, _, _ = me()
    if r != source:
        inbox = torch.empty_like(x)
        dist.recv(inbox, source)
        return inbox
    for other in range(n):
        if other != source:
            dist.send(x, other)


@wrong("broadcast", "values", "returned what went in")
def inbox_forgotten(x, source):
    n, r, _, _ = me()
    if r == source:
        for other in range(n):
            if other != source:
                dist.send(x, other)
    else:
        dist.recv(torch.empty_like(x), source)
    return x.clone()


@wrong("broadcast", "traffic", "built-in broadcast", "send and receive only")
def built_in_broadcast(x, source):
    y = x.clone()
    dist.broadcast(y, source)
    return y


@wrong("broadcast", "traffic", "received 2 times", "after the first")
def sent_twice(x, source):
    n, r, _, _ = me()
    inbox = x.clone()
    for _ in range(2):
        if r == source:
            for other in range(n):
                if other != source:
                    dist.send(x, other)
        else:
            dist.recv(inbox, source)
    return inbox


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


# tree broadcast


@wrong("tree-broadcast", "cost", "3 rounds where 2 are enough", "doubles")
def source_tells_everyone(x, source):
    n, r, _, _ = me()
    if r == source:
        for other in range(n):
            if other != source:
                dist.send(x, other)
        return x.clone()
    inbox = torch.empty_like(x)
    dist.recv(inbox, source)
    return inbox


@wrong("tree-broadcast", "cost", "3 rounds where 2 are enough", "doubles")
def hand_to_hand(x, source):
    n, r, right, left = me()
    have = x.clone()
    if r != source:
        dist.recv(have, left)
    if right != source:
        dist.send(have, right)
    return have


@wrong("tree-broadcast", "values", "wrong source", "rank 0")
def tree_from_rank_zero(x, source):
    n, r, _, _ = me()
    have, d = x.clone(), 1
    while d < n:
        if r < d and r + d < n:
            dist.send(have, r + d)
        elif d <= r < 2 * d:
            dist.recv(have, r - d)
        d *= 2
    return have


@wrong("tree-broadcast", "values", "right on 2 ranks only", "no power of two")
def powers_of_two_only(x, source):
    n, r, _, _ = me()
    place, have, d = (r - source) % n, x.clone(), 1
    while d < n:
        if place < d:
            dist.send(have, (r + d) % n)
        elif place < 2 * d:
            dist.recv(have, (r - d) % n)
        d *= 2
    return have


@wrong("tree-broadcast", "values", "right on 2 ranks only", "returned what went in")
def one_round_only(x, source):
    n, r, right, left = me()
    have = x.clone()
    if r == source:
        dist.send(have, right)
    elif left == source:
        dist.recv(have, left)
    return have


@wrong("tree-broadcast", "traffic", "built-in broadcast", "send and receive only")
def built_in_tree(x, source):
    y = x.clone()
    dist.broadcast(y, source)
    return y


# repair a deadlock


@wrong("repair-deadlock", "values", "All ranks send first", "dist.isend")
def still_dead_locked(x):
    n, r, right, left = me()
    inbox = torch.empty_like(x)
    dist.send(x, right)
    dist.recv(inbox, left)
    return inbox


@wrong("repair-deadlock", "values", "wrong direction")
def shifts_left(x):
    n, r, right, left = me()
    inbox = torch.empty_like(x)
    exchange(x, left, inbox, right)
    return inbox


@wrong("repair-deadlock", "values", "right on 2 ranks only")
def swaps_in_pairs(x):
    n, r, _, _ = me()
    if r ^ 1 >= n:
        return x.clone()
    inbox = torch.empty_like(x)
    exchange(x, r ^ 1, inbox, r ^ 1)
    return inbox


@wrong("repair-deadlock", "values", "returned what went in")
def sends_and_forgets(x):
    n, r, right, left = me()
    exchange(x, right, torch.empty_like(x), left)
    return x.clone()


@wrong("repair-deadlock", "traffic", "built-in all_gather", "send and receive only")
def gathers_everything(x):
    n, r, _, left = me()
    everything = [torch.empty_like(x) for _ in range(n)]
    dist.all_gather(everything, x)
    return everything[left].clone()


@wrong("repair-deadlock", "traffic", "sent 2 messages where 1 is enough")
def sends_twice(x):
    n, r, right, left = me()
    inbox = torch.empty_like(x)
    for _ in range(2):
        exchange(x, right, inbox, left)
    return inbox
