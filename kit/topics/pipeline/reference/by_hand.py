"""A pipeline by hand: rank r holds stage r of p. To be read first.

Each function runs one training step of m micro-batches, leaves in the stage's parameters the gradient of the mean loss,
and returns the losses on the last rank, nothing elsewhere. stage: this rank's part of the model. inputs, targets: the
micro-batches, of which the first rank reads the ones, the last the others. like: a tensor of the shape and dtype
of what passes between two stages, (B, T, C), on the rank's device. loss_of(y, target) -> ().
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist

Tensor = torch.Tensor
Stage = Callable[[Tensor], Tensor]
LossOf = Callable[[Tensor, Tensor], Tensor]

# The shapes stand in one column.
# fmt: off


def all_forward_all_backward(
    stage: Stage, inputs: Sequence[Tensor], targets: Sequence[Tensor], like: Tensor, loss_of: LossOf
) -> list[Tensor]:
    """GPipe: every rank holds the activations of all m micro-batches when the first backward pass begins."""
    m, r = len(inputs), dist.get_rank()
    kept = []
    for j in range(m):
        x = inputs[j] if r == 0 else receive(like, r - 1)        # (B, T, C)
        y = forward(stage, x, targets[j], loss_of)               # (B, T, C), on the last rank ()
        if not is_last():
            dist.send(y.detach(), r + 1)
        kept.append((x, y))
    for x, y in kept:
        dx = backward(x, y, None if is_last() else receive(like, r + 1), m)  # (B, T, C)
        if dx is not None:
            dist.send(dx, r - 1)
    return [y.detach() for _, y in kept if is_last()]


def one_forward_one_backward(
    stage: Stage, inputs: Sequence[Tensor], targets: Sequence[Tensor], like: Tensor, loss_of: LossOf
) -> list[Tensor]:
    """1F1B: rank r goes p - 1 - r forwards ahead, and so holds p - r activations at most, however many m there are.

    In between two neighbours have something for each other at the same time: they exchange it, since each would wait
    for ever if both sent first.
    """
    m, r = len(inputs), dist.get_rank()
    ahead = min(m, dist.get_world_size() - 1 - r)
    kept, losses = [], []
    for j in range(ahead):
        x = inputs[j] if r == 0 else receive(like, r - 1)        # (B, T, C)
        y = forward(stage, x, targets[j], loss_of)               # (B, T, C)
        dist.send(y.detach(), r + 1)
        kept.append((x, y))
    if ahead < m:
        x = inputs[ahead] if r == 0 else receive(like, r - 1)    # (B, T, C)
    for j in range(ahead, m):
        y = forward(stage, x, targets[j], loss_of)               # (B, T, C), on the last rank ()
        kept.append((x, y))
        if is_last():
            dy = None
            losses.append(y.detach())
        else:
            dy = exchange(y.detach(), like, r + 1)               # (B, T, C)
        dx = backward(*kept.pop(0), dy, m)                       # (B, T, C), on the first rank None
        more = j + 1 < m
        if dx is None:
            x = inputs[j + 1] if more else x                     # (B, T, C)
        elif more:
            x = exchange(dx, like, r - 1).requires_grad_()       # (B, T, C)
        else:
            dist.send(dx, r - 1)
    for x, y in kept:
        dx = backward(x, y, receive(like, r + 1), m)             # (B, T, C)
        if dx is not None:
            dist.send(dx, r - 1)
    return losses


def one_f_one_b_row(r: int, p: int, m: int) -> list[str]:
    """The same order as a row of actions: what rank r of p does with m micro-batches."""
    ahead = min(m, p - 1 - r)
    row = [f"F{j}" for j in range(ahead)]
    for j in range(m - ahead):
        row += [f"F{ahead + j}", f"B{j}"]
    return row + [f"B{j}" for j in range(m - ahead, m)]


def forward(stage: Stage, x: Tensor, target: Tensor, loss_of: LossOf) -> Tensor:
    y = stage(x)                                                 # (B, T, C)
    return loss_of(y, target) if is_last() else y


def backward(x: Tensor, y: Tensor, dy: Tensor | None, m: int) -> Tensor | None:
    """dy: the gradient of y, None of a loss. Returns that of x, None where x is what the model was given."""
    (y if dy is not None else y / m).backward(dy)
    return x.grad


def receive(like: Tensor, source: int) -> Tensor:
    """An activation, or a gradient: whichever it is may be asked for its gradient."""
    x = torch.empty_like(like)                                   # (B, T, C)
    dist.recv(x, source)
    return x.requires_grad_()


def exchange(mine: Tensor, like: Tensor, other: int) -> Tensor:
    """Gives `mine` to a neighbour and takes what it has."""
    its = torch.empty_like(like)                                 # (B, T, C)
    both = [dist.P2POp(dist.isend, mine, other), dist.P2POp(dist.irecv, its, other)]
    for work in dist.batch_isend_irecv(both):
        work.wait()
    return its


def is_last() -> bool:
    return dist.get_rank() == dist.get_world_size() - 1
