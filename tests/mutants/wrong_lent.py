"""Wrong solutions of lab 04's later exercises: gradients in shares, and weights that are lent."""

import torch
import torch.distributed as dist

from tests.mutants.mutant import Mutants
from tests.mutants.wrong_zero import me, rows, share_of_sum

wrong = Mutants()


# sharded-gradients


@wrong("sharded-gradients", "values", "was not divided by the world size")
def sum_of_gradients(gradient, kept):
    mine = share_of_sum(gradient)
    return mine if kept is None else kept + mine


@wrong("sharded-gradients", "values", "only the last micro-batch")
def overwrites(gradient, kept):
    return share_of_sum(gradient) / me()[0]


@wrong("sharded-gradients", "values", "only the first micro-batch")
def keeps_the_first(gradient, kept):
    mine = share_of_sum(gradient) / me()[0]
    return mine if kept is None else kept


@wrong("sharded-gradients", "values", "divided by 2 again")
def divides_what_was_kept(gradient, kept):
    mine = share_of_sum(gradient)
    return (mine if kept is None else kept + mine) / me()[0]


@wrong("sharded-gradients", "values", "own gradients only")
def cuts_without_summing(gradient, kept):
    n, r = me()
    mine = rows(gradient)[r] / n
    return mine if kept is None else kept + mine


@wrong("sharded-gradients", "values", "where its share of", "get rid of")
def keeps_everything(gradient, kept):
    dist.all_reduce(gradient)
    mean = gradient / me()[0]
    return mean if kept is None else kept + mean


@wrong("sharded-gradients", "traffic", "all_reduce", "whole sums are of no use")
def all_reduces_and_cuts(gradient, kept):
    n, r = me()
    dist.all_reduce(gradient)
    mine = rows(gradient)[r] / n
    return mine if kept is None else kept + mine


@wrong("sharded-gradients", "values", "wrong share", "rank r keeps row r")
def keeps_the_neighbours(gradient, kept):
    n, r = me()
    turned = rows(gradient).roll(1, 0)
    mine = torch.empty_like(turned[0])
    dist.reduce_scatter(mine, list(turned))
    return mine / n if kept is None else kept + mine / n


@wrong("sharded-gradients", "values", "shares are equal", "add zeros at the end")
def cut_as_tensor_split_cuts(gradient, kept):
    n, r = me()
    dist.all_reduce(gradient)
    mine = gradient.tensor_split(n)[r] / n
    return mine.clone() if kept is None else kept + mine


# lent-layer


def lent(share, shape):
    n, _ = me()
    whole = share.new_empty(n * len(share))
    return whole, whole[: shape.numel()].view(shape), whole.untyped_storage()


def fill(whole, share):
    dist.all_gather(list(whole.view(me()[0], -1)), share)


def emptied(whole, weight, storage, fill_it):
    """The right way round: memory for gather alone."""
    nbytes = storage.nbytes()
    storage.resize_(0)

    def gather():
        storage.resize_(nbytes)
        fill_it()

    return weight, gather, lambda: storage.resize_(0)


@wrong("lent-layer", "cost", "of whole weights at once", "resize_(0)", "line")
def never_frees(share, shape):
    whole, weight, _ = lent(share, shape)
    return weight, lambda: fill(whole, share), lambda: None


@wrong("lent-layer", "cost", "of whole weights at once", "autograd keeps the tensor")
def drops_its_own_reference(share, shape):
    whole, weight, _ = lent(share, shape)
    held = []

    def gather():
        held[:] = [whole]
        fill(whole, share)

    return weight, gather, held.clear


@wrong("lent-layer", "cost", "there is none before the first gather()")
def begins_with_everything(share, shape):
    whole, weight, storage = lent(share, shape)
    nbytes = storage.nbytes()

    def gather():
        storage.resize_(nbytes)
        fill(whole, share)

    return weight, gather, lambda: storage.resize_(0)


@wrong("lent-layer", "cost", "of whole weights at once")
def frees_after_forward_only(share, shape):
    whole, weight, storage = lent(share, shape)
    weight, gather, free = emptied(whole, weight, storage, lambda: fill(whole, share))
    times = []

    def free_once():
        if not times:
            free()
        times.append(True)

    return weight, gather, free_once


STILL_HERE = []  # the storage that was gathered last


@wrong("lent-layer", "cost", "when everything was freed")
def frees_when_the_next_one_comes(share, shape):
    whole, weight, storage = lent(share, shape)

    def after_the_one_before():
        if STILL_HERE and STILL_HERE[0] is not storage:
            STILL_HERE[0].resize_(0)
        STILL_HERE[:] = [storage]
        fill(whole, share)

    weight, gather, _ = emptied(whole, weight, storage, after_the_one_before)
    return weight, gather, lambda: None


@wrong("lent-layer", "values", "gather(): ", "resize its storage to what it was first")
def never_gives_memory_back(share, shape):
    whole, weight, storage = lent(share, shape)
    storage.resize_(0)
    return weight, lambda: fill(whole, share), lambda: storage.resize_(0)


@wrong("lent-layer", "values", "the layer: ", "after gather() the weight has no memory")
def gathers_into_another_tensor(share, shape):
    whole, weight, storage = lent(share, shape)
    storage.resize_(0)
    return weight, lambda: fill(share.new_empty(me()[0] * len(share)), share), lambda: storage.resize_(0)


@wrong("lent-layer", "values", "lend_layer: ", "make the weight before")
def cuts_without_memory(share, shape):
    whole, _, storage = lent(share, shape)
    storage.resize_(0)
    return whole[: shape.numel()].view(shape), lambda: fill(whole, share), lambda: storage.resize_(0)


@wrong("lent-layer", "values", "its gradients are not", "fill the same tensor again")
def gathers_for_forward_only(share, shape):
    whole, weight, storage = lent(share, shape)
    done = []

    def once():
        whole.zero_() if done else fill(whole, share)
        done.append(True)

    return emptied(whole, weight, storage, once)


@wrong("lent-layer", "values", "output is wrong", "rank 0's share first")
def own_share_first(share, shape):
    n, r = me()
    whole, weight, storage = lent(share, shape)

    def turned():
        fill(whole, share)
        whole.copy_(whole.view(n, -1).roll(-r, 0).flatten())

    return emptied(whole, weight, storage, turned)


@wrong("lent-layer", "traffic", "built-in all_reduce", "nothing is summed")
def sums_what_is_mostly_zero(share, shape):
    n, r = me()
    whole, weight, storage = lent(share, shape)

    def summed():
        whole.zero_()
        whole.view(n, -1)[r] = share
        dist.all_reduce(whole)

    return emptied(whole, weight, storage, summed)


@wrong("lent-layer", "values", "the padding is in the weight", "shape.numel()")
def padding_in_the_weight(share, shape):
    whole, _, storage = lent(share, shape)
    return emptied(whole, whole.view(shape), storage, lambda: fill(whole, share))


@wrong("lent-layer", "values", "killed by SIGSEGV", "gather() begins with `untyped_storage().resize_(nbytes)`")
def copies_into_no_memory(share, shape):
    weight = share.new_empty(shape)

    def gather():
        whole = share.new_empty(me()[0] * len(share))
        fill(whole, share)
        weight.copy_(whole[: shape.numel()].view(shape))

    return weight, gather, lambda: weight.untyped_storage().resize_(0)


@wrong("lent-layer", "values", "rank 0 failed: ValueError", "the weight has shape (0,)", "keeps its shape")
def weight_without_a_shape(share, shape):
    weight = share.new_empty(0)

    def gather():
        whole = share.new_empty(me()[0] * len(share))
        fill(whole, share)
        weight.data = whole[: shape.numel()].view(shape)

    return weight, gather, lambda: None


@wrong("lent-layer", "values", "cannot unpack", "lend_layer returns (weight, gather, free)")
def returns_nothing(share, shape):
    emptied(*lent(share, shape), lambda: None)
