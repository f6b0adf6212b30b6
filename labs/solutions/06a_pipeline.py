"""Solutions of lab 06a, pipeline schedules: one function per exercise."""

import torch
import torch.distributed as dist


def pipeline_step(stage, inputs, targets, like, loss_of, group=None):
    """One step of m micro-batches through the stages of a pipeline, of which this rank holds one.

    Leaves in the stage's parameters the gradients of the mean loss.
    """
    p, r, m = dist.get_world_size(group), dist.get_rank(group), len(inputs)
    kept = []
    for j in range(m):
        x = inputs[j]  # (B, C)
        if r > 0:
            x = torch.empty_like(like)
            dist.recv(x, group_src=r - 1, group=group)
            x.requires_grad_()
        y = stage(x)  # (B, C)
        if r < p - 1:
            dist.send(y.detach(), group_dst=r + 1, group=group)
        kept.append((x, y))
    for j in range(m):
        x, y = kept[j]
        if r == p - 1:
            loss = loss_of(y, targets[j]) / m  # ()
            loss.backward()
        else:
            dy = torch.empty_like(like)  # (B, C)
            dist.recv(dy, group_src=r + 1, group=group)
            y.backward(dy)
        if r > 0:
            dist.send(x.grad, group_dst=r - 1, group=group)


def gpipe_row(r, p, m):
    """What rank r of p does with m micro-batches in GPipe: all forward, then all back."""
    return [f"F{j}" for j in range(m)] + [f"B{j}" for j in range(m)]


def one_f_one_b_row(r, p, m):
    """What rank r of p does with m micro-batches in 1F1B."""
    ahead = min(m, p - 1 - r)
    row = [f"F{j}" for j in range(ahead)]
    for j in range(m - ahead):
        row += [f"F{ahead + j}", f"B{j}"]
    return row + [f"B{j}" for j in range(m - ahead, m)]


def sum_tied(gradient, group=None):
    """The sum of the first rank's gradient and the last one's, on both; None in between."""
    p, r = dist.get_world_size(group), dist.get_rank(group)
    other = p - 1 - r
    if r not in (0, p - 1):
        return None
    its = torch.empty_like(gradient)
    if r == 0:
        dist.send(gradient, group_dst=other, group=group)
        dist.recv(its, group_src=other, group=group)
    else:
        dist.recv(its, group_src=other, group=group)
        dist.send(gradient, group_dst=other, group=group)
    return gradient + its


def balanced_cut(layers, p):
    """How many layers each of p stages has, so that the slowest takes as short as can be."""
    limits = sorted({sum(layers[a:b]) for b in range(len(layers) + 1) for a in range(b)})
    cut, slowest, limit = [], 0, 0
    while sum(cut) < len(layers) or slowest > limit:
        cut, at, slowest, limit = [], 0, 0, limits.pop(0)
        for stage in range(p):
            end = at + 1
            while end < len(layers) - (p - 1 - stage) and sum(layers[at : end + 1]) <= limit:
                end += 1
            slowest = max(slowest, sum(layers[at:end]))
            cut.append(end - at)
            at = end
    return cut
