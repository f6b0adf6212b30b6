"""Send and receive at the same time: the one move that rings are made of."""

from __future__ import annotations

import torch
import torch.distributed as dist


def exchange(
    outbox: torch.Tensor, to: int, inbox: torch.Tensor, source: int, group: dist.ProcessGroup | None = None
) -> None:
    """Send outbox (any shape) to rank `to` while rank `source` fills inbox (any shape); return when both are done.

    `to` and `source` are ranks of `group` (None: the world). Both tensors are contiguous, on the group's device, and
    do not overlap. The two messages are posted together before either is waited for, so a ring in which everybody
    sends first does not lock up (with nccl too, which needs them posted as one batch). An empty tensor is a message
    of 0 bytes like any other: the number of messages never depends on sizes. Only a rank that exchanges with itself
    sends nothing; it copies.

    Raises ValueError when a rank would send to itself but receive from another, or when a tensor is not contiguous.
    """
    me = dist.get_rank(group)
    if to == me and source == me:
        inbox.copy_(outbox)
        return
    if me in (to, source):
        raise ValueError(f"rank {me} exchanges with itself on one side only (to {to}, from {source}): nothing matches")
    if not (outbox.is_contiguous() and inbox.is_contiguous()):
        raise ValueError("exchange needs contiguous tensors: pass x.contiguous(), or a chunk along the first dimension")
    receiving = dist.P2POp(dist.irecv, inbox, group=group, group_peer=source)
    sending = dist.P2POp(dist.isend, outbox, group=group, group_peer=to)
    for work in dist.batch_isend_irecv([receiving, sending]):
        work.wait()
