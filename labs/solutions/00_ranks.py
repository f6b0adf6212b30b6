"""Solutions of lab 00, Ranks: one function per exercise."""

import torch
import torch.distributed as dist


def my_share(total):
    """Which of `total` items belong to this rank: (start, stop), stop not included."""
    r, n = dist.get_rank(), dist.get_world_size()
    base, extra = divmod(total, n)  # what everyone gets, and how many are left over
    start = r * base + min(r, extra)  # each rank before this one took at most one of those
    return start, start + base + (r < extra)


def speak(loss):
    """Rank 0 prints the mean loss of all ranks, once; the others print nothing. loss ()."""
    total = loss.clone()  # ()
    dist.reduce(total, dst=0)  # every rank calls, rank 0 alone has the sum
    if dist.get_rank() == 0:
        print(f"mean loss {total.item() / dist.get_world_size():.4f}")


def count_items(mine):
    """How many items all ranks hold together, the same int on every rank. mine (K,), K may be 0."""
    count = torch.tensor(len(mine), device=mine.device)  # ()
    dist.all_reduce(count)  # a rank that holds nothing adds 0
    return int(count)
