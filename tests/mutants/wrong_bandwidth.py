"""Wrong solutions of lab 01's bandwidth, each a mistake people make."""

import torch
import torch.distributed as dist

from tests.mutants.mutant import Mutants

wrong = Mutants()


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
