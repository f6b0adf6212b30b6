"""Wrong solutions of lab 04, each a mistake people make: an optimizer in shares."""

import torch
import torch.distributed as dist

from kit.parallel.adamw import adamw_
from tests.mutants.mutant import Mutants

wrong = Mutants()


def me():
    return dist.get_world_size(), dist.get_rank()


def rows(x):
    """x (P,) padded and cut: (n, P/n)."""
    n, _ = me()
    return torch.cat([x, x.new_zeros(-len(x) % n)]).view(n, -1)


def share_of_sum(x):
    """This rank's row of the sum of x (P,): (P/n,)."""
    mine = torch.empty_like(rows(x)[0])
    dist.reduce_scatter(mine, list(rows(x)))
    return mine


def together(share):
    """Every rank's share, end to end: (P,) with padding."""
    n, _ = me()
    new = share.new_empty(n, len(share))
    dist.all_gather(list(new), share)
    return new.flatten()


def step(w, g, state, lr, count=None):
    if not state:
        state.update(step=0, m=torch.zeros_like(g), v=torch.zeros_like(g))
    state["step"] += 1
    adamw_(w, g, state["m"], state["v"], state["step"] if count is None else count, lr)
    return w


# sharded-step


@wrong("sharded-step", "values", "2 times the right one", "was not divided", "these weights do not show it")
def sum_instead_of_mean(weights, gradients, state, lr):
    w = step(rows(weights)[me()[1]], share_of_sum(gradients), state, lr)
    return together(w)[: len(weights)]


@wrong("sharded-step", "traffic", "called all_reduce", "reduce_scatter", "in two halves")
def whole_step_after_an_all_reduce(weights, gradients, state, lr):
    dist.all_reduce(gradients)
    return step(weights, gradients / me()[0], state, lr)


@wrong("sharded-step", "traffic", "all_reduce and all_gather", "in two halves")
def all_reduce_where_a_share_is_enough(weights, gradients, state, lr):
    n, r = me()
    dist.all_reduce(gradients)
    w = step(rows(weights)[r], rows(gradients)[r] / n, state, lr)
    return together(w)[: len(weights)]


@wrong("sharded-step", "cost", "remembers", "where every rank steps the whole vector".capitalize(), "line")
def gathers_gradients_and_steps_everything(weights, gradients, state, lr):
    n, r = me()
    whole = together(share_of_sum(gradients) / n)[: len(weights)]
    return step(weights, whole, state, lr)


@wrong("sharded-step", "values", "wrong share", "weights of rank 1's", "row r of n")
def steps_the_next_ranks_weights(weights, gradients, state, lr):
    n, r = me()
    w = step(rows(weights)[(r + 1) % n], share_of_sum(gradients) / n, state, lr)
    return together(w)[: len(weights)]


@wrong("sharded-step", "values", "wrong share", "gradient of rank 1's share")
def reduces_to_the_neighbour(weights, gradients, state, lr):
    n, r = me()
    turned = rows(gradients).roll(-1, 0)
    mine = torch.empty_like(turned[0])
    dist.reduce_scatter(mine, list(turned))
    w = step(rows(weights)[r], mine / n, state, lr)
    return together(w)[: len(weights)]


@wrong("sharded-step", "values", "began without moments", "stays in `state`")
def forgets_its_moments(weights, gradients, state, lr):
    n, r = me()
    state = {}
    w = step(rows(weights)[r], share_of_sum(gradients) / n, state, lr)
    return together(w)[: len(weights)]


@wrong("sharded-step", "values", "began with new moments", "m and v stay")
def keeps_the_count_only(weights, gradients, state, lr):
    n, r = me()
    mine = share_of_sum(gradients) / n
    state["step"] = state.get("step", 0) + 1
    w = rows(weights)[r]
    adamw_(w, mine, torch.zeros_like(mine), torch.zeros_like(mine), state["step"], lr)
    return together(w)[: len(weights)]


@wrong("sharded-step", "values", "bias correction was that of step 1 again")
def never_counts(weights, gradients, state, lr):
    n, r = me()
    w = step(rows(weights)[r], share_of_sum(gradients) / n, state, lr, count=1)
    return together(w)[: len(weights)]


@wrong("sharded-step", "values", "steps count from 1")
def counts_from_two(weights, gradients, state, lr):
    n, r = me()
    w = step(rows(weights)[r], share_of_sum(gradients) / n, state, lr, count=state.get("step", 0) + 2)
    return together(w)[: len(weights)]


@wrong("sharded-step", "values", "own gradient", "sum over the ranks is missing")
def never_sums(weights, gradients, state, lr):
    r = me()[1]
    w = step(rows(weights)[r], rows(gradients)[r], state, lr)
    return together(w)[: len(weights)]


@wrong("sharded-step", "values", "padding was not cut off", "leak into the weights")
def padding_left(weights, gradients, state, lr):
    n, r = me()
    return together(step(rows(weights)[r], share_of_sum(gradients) / n, state, lr))


@wrong("sharded-step", "values", "its own share", "have to be gathered")
def never_gathers(weights, gradients, state, lr):
    n, r = me()
    return step(rows(weights)[r], share_of_sum(gradients) / n, state, lr)


@wrong("sharded-step", "values", "the weights never change")
def steps_a_copy(weights, gradients, state, lr):
    n, r = me()
    share = rows(weights)[r]
    step(share.clone(), share_of_sum(gradients) / n, state, lr)
    return together(share)[: len(weights)]


@wrong("sharded-step", "traffic", "pad to the next multiple of n")
def padded_too_far(weights, gradients, state, lr):
    n, r = me()
    far = torch.zeros(n, len(weights))  # a whole vector for each rank
    w, g = far.clone(), far.clone()
    w.view(-1)[: len(weights)], g.view(-1)[: len(weights)] = weights, gradients
    mine = torch.empty_like(g[0])
    dist.reduce_scatter(mine, list(g))
    return together(step(w[r], mine / n, state, lr))[: len(weights)]


@wrong("sharded-step", "values", "nothing but padding")
def ranks_without_weights_stay_away(weights, gradients, state, lr):
    n, r = me()
    if r * rows(weights).shape[1] >= len(weights):
        return weights
    w = step(rows(weights)[r], share_of_sum(gradients) / n, state, lr)
    return together(w)[: len(weights)]


@wrong("sharded-step", "values", "invalid tensor size", "pad with zeros to a multiple of n first")
def cuts_without_padding(weights, gradients, state, lr):
    n, r = me()
    mine = torch.empty_like(gradients.chunk(n)[r])
    dist.reduce_scatter(mine, list(gradients.chunk(n)))
    w = step(weights.chunk(n)[r], mine / n, state, lr)
    dist.all_gather(list(weights.chunk(n)), w.clone())
    return weights


@wrong("sharded-step", "values", "ZeroDivisionError", "count before you call adamw_")
def counts_too_late(weights, gradients, state, lr):
    n, r = me()
    w = step(rows(weights)[r], share_of_sum(gradients) / n, state, lr, count=state.get("step", 0))
    return together(w)[: len(weights)]


@wrong("sharded-step", "values", "step 1 is right, step 2 is not", "goes on with the tensors")
def keeps_an_optimizer_of_old_weights(weights, gradients, state, lr):
    n, r = me()
    share = torch.nn.Parameter(rows(weights)[r].clone())
    share.grad = share_of_sum(gradients) / n
    state.setdefault("adam", torch.optim.AdamW([share], lr=lr)).step()
    return together(share.detach())[: len(weights)]
