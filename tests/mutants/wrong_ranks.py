"""Wrong solutions of lab 00, each a mistake people make."""

import torch
import torch.distributed as dist

from tests.mutants.mutant import Mutants

wrong = Mutants()


@wrong("who-am-i", "values", "remainder", "belongs to no rank")
def remainder_lost(total):
    each = total // dist.get_world_size()
    return dist.get_rank() * each, (dist.get_rank() + 1) * each


@wrong("who-am-i", "values", "first total % n ranks", "one item more")
def last_takes_the_rest(total):
    r, n = dist.get_rank(), dist.get_world_size()
    each = total // n
    return r * each, total if r == n - 1 else (r + 1) * each


@wrong("who-am-i", "values", "wrong ranks", "first total % n ranks")
def extra_items_at_the_end(total):
    r, n = dist.get_rank(), dist.get_world_size()
    each, extra = divmod(total, n)
    start = r * each + max(0, r - (n - extra))
    return start, start + each + (r >= n - extra)


@wrong("who-am-i", "values", "stop is not included")
def stop_included(total):
    r, n = dist.get_rank(), dist.get_world_size()
    each, extra = divmod(total, n)
    start = r * each + min(r, extra)
    return start, start + each + (r < extra) - 1


@wrong("who-am-i", "values", "every rank returned the same", "dist.get_rank()")
def everyone_is_rank_zero(total):
    return 0, -(-total // dist.get_world_size())


@wrong("who-am-i", "values", "at once", "a share ends where the next one starts")
def shares_overlap(total):
    r, n = dist.get_rank(), dist.get_world_size()
    return r * (total // n), min(total, (r + 1) * (total // n) + 1)


@wrong("who-am-i", "traffic", "all_gather", "no communication is needed")
def asks_the_others(total):
    r, n = dist.get_rank(), dist.get_world_size()
    each, extra = divmod(total, n)
    sizes = [torch.zeros((), dtype=torch.long) for _ in range(n)]
    dist.all_gather(sizes, torch.tensor(each + (r < extra)))
    start = int(sum(sizes[:r]))
    return start, start + int(sizes[r])


@wrong("rank-zero-speaks", "values", "printed too", "only rank 0 speaks")
def everybody_speaks(loss):
    total = loss.clone()
    dist.all_reduce(total)
    print(f"mean loss {total.item() / dist.get_world_size():.4f}")


@wrong("rank-zero-speaks", "values", "not divided by the world size")
def sum_not_mean(loss):
    total = loss.clone()
    dist.all_reduce(total)
    if dist.get_rank() == 0:
        print(f"mean loss {total.item():.4f}")


@wrong("rank-zero-speaks", "values", "its own loss")
def own_loss(loss):
    if dist.get_rank() == 0:
        print(f"mean loss {loss.item():.4f}")


@wrong("rank-zero-speaks", "values", "printed 0 lines")
def nobody_speaks(loss):
    total = loss.clone()
    dist.all_reduce(total)


@wrong("rank-zero-speaks", "values", "only the printing belongs under")
def meets_nobody(loss):
    if dist.get_rank() == 0:
        total = loss.clone()
        dist.all_reduce(total)
        print(f"mean loss {total.item() / dist.get_world_size():.4f}")


@wrong("rank-zero-speaks", "traffic", "2 collectives", "where 1 is enough")
def barrier_to_be_safe(loss):
    total = loss.clone()
    dist.barrier()
    dist.all_reduce(total)
    if dist.get_rank() == 0:
        print(f"mean loss {total.item() / dist.get_world_size():.4f}")


@wrong("first-rescue", "values", "still has to call", "adds 0")
def not_repaired(mine):
    if len(mine) == 0:
        return 0
    count = torch.tensor(len(mine))
    dist.all_reduce(count)
    return int(count)


@wrong("first-rescue", "values", "counted only its own")
def gave_up_on_the_others(mine):
    return len(mine)


@wrong("first-rescue", "values", "only rank 0 is right")
def reduced_to_rank_zero(mine):
    count = torch.tensor(len(mine))
    dist.reduce(count, dst=0)
    return int(count) if dist.get_rank() == 0 else -1


@wrong("first-rescue", "traffic", "2 collectives", "where 1 is enough")
def barrier_first(mine):
    dist.barrier()
    count = torch.tensor(len(mine))
    dist.all_reduce(count)
    return int(count)
