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
