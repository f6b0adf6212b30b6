import torch
import torch.distributed as dist


def exchange(outgoing, right, inbox, left):
    sending = dist.isend(outgoing, dst=right)
    dist.recv(inbox, src=left)
    sending.wait()


def ring_all_reduce(x):
    r, n = dist.get_rank(), dist.get_world_size()
    chunks = list(x.tensor_split(n))  # n x (C/n,)
    right, left = (r + 1) % n, (r - 1) % n
    for s in range(n - 1):  # reduce-scatter
        out, acc = (r - s) % n, (r - s - 1) % n
        inbox = torch.empty_like(chunks[acc])
        exchange(chunks[out], right, inbox, left)
        chunks[acc] += inbox  # (C/n,)
    for s in range(n - 1):  # all-gather
        out, into = (r + 1 - s) % n, (r - s) % n
        exchange(chunks[out], right, chunks[into], left)
    return torch.cat(chunks)  # (C,)
