"""One rank's copy of a model: it starts like all others, notices its gradients, and leaves sending to a subclass."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import nn
from torch.autograd import Variable
from torch.nn import Parameter

from kit.topics.data_parallel.reference.built_in import Group, built_in_broadcast
from kit.topics.data_parallel.reference.by_hand import broadcast_state
from kit.topics.data_parallel.reference.gradient_owner import own_gradients, owns_gradient, weak_hook
from kit.topics.data_parallel.reference.validation import check_module, thawed, twice, without_gradient


class Replica(nn.Module):
    """What the wrappers of `ddp` share: equal states at the start, hooks, micro-batches, buffers.

    module: the same on every rank but for its values, which become those of the group's rank 0, in place. What is
    trained is settled here: freeze before, not after.
    unused: what to do about a parameter that has no gradient when backward ends. "error" raises RuntimeError, with its
    name. "zeros" lets this rank add zeros; a parameter that has no gradient on any rank keeps none, so that an
    optimizer passes it by as in a single process, at the price of one more small all-reduce. Either way each rank
    needs a gradient for one parameter at least: without any it does not notice that there was a backward pass.
    sync_buffers: give every rank the buffers of rank 0 before a forward pass that follows an averaged one.
    Where a module is wrapped again, the newest wrapper averages, and the others leave its gradients alone.

    Raises ValueError for a module without trained parameters or one that cannot be averaged, a rank outside the group,
    or another choice for `unused`.
    """

    sends_early = False  # whether gradients are on their way before backward is over

    def __init__(
        self,
        module: nn.Module,
        group: Group = None,
        *,
        unused: Literal["error", "zeros"] = "error",
        sync_buffers: bool = True,
    ) -> None:
        super().__init__()
        check_module(module)
        self.module, self.group, self.unused, self.sync_buffers = module, group, unused, sync_buffers
        self.n = dist.get_world_size(group)
        self.names = {p: name for name, p in module.named_parameters() if p.requires_grad}  # K
        self.frozen = {p: name for name, p in module.named_parameters() if not p.requires_grad}
        self.arrived: set[Parameter] = set()  # whose gradient this backward pass has brought
        self._check()
        self._wanted = True  # False inside no_sync
        self._averaging = True  # what was wanted in the forward pass
        self._buffers_differ = True
        broadcast_state(module, group)
        self._own_gradients()

    def __setstate__(self, state: dict[str, Any]) -> None:
        """A copy (deepcopy, pickle) averages too: hooks do not travel with the parameters they hang on."""
        super().__setstate__(state)
        self._own_gradients()

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The module's own forward; it also settles whether the backward pass to come averages."""
        if self.sync_buffers and self._buffers_differ:
            self._broadcast_buffers()
        if any(p.requires_grad for p in self.frozen):
            raise thawed([name for p, name in self.frozen.items() if p.requires_grad])
        if torch.is_grad_enabled():
            self._averaging = self._wanted
            self._forget()  # what a backward pass that failed has left
        self._buffers_differ = torch.is_grad_enabled() and self._wanted
        return self.module(*args, **kwargs)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Gradients of forward passes in here stay on their rank and add up; the next one outside averages the sum."""
        before, self._wanted = self._wanted, False
        try:
            yield
        finally:
            self._wanted = before

    def gradient_ready(self, p: Parameter) -> None:
        """Called when p.grad (shape of p) is this rank's gradient: in autograd's order, and at the end for the rest."""

    def finish(self) -> None:
        """Called at the end of backward, when all gradients have been ready: leaves the mean in every p.grad."""
        raise NotImplementedError

    def forget(self) -> None:
        """Called between two backward passes: what a subclass noted of the one belongs to it alone."""

    @torch.no_grad()
    def _broadcast_buffers(self) -> None:
        for buffer in self.module.buffers():
            buffer.copy_(built_in_broadcast(buffer, 0, self.group))  # shape of buffer

    def _own_gradients(self) -> None:
        own_gradients(self, self.names)
        for p in self.names:
            p.register_post_accumulate_grad_hook(weak_hook(self._on_gradient))

    def _on_gradient(self, p: Parameter) -> None:
        if not self._averaging or not owns_gradient(self, p):
            return
        if p in self.arrived and self.sends_early:
            raise twice(self.names[p])
        if not self.arrived:
            Variable._execution_engine.queue_callback(self._on_end)
        self.arrived.add(p)
        self.gradient_ready(p)

    def _on_end(self) -> None:
        """The last thing in `loss.backward()`."""
        unused = [p for p in self.names if p.grad is None]
        if unused and self.unused == "error":
            frozen = not all(p.requires_grad for p in unused)
            raise without_gradient(dist.get_rank(self.group), [self.names[p] for p in unused], frozen)
        for p in unused:
            p.grad = torch.zeros_like(p)  # shape of p
        for p in self.names:
            if p not in self.arrived:
                self.arrived.add(p)
                self.gradient_ready(p)
        self.finish()
        if self.unused == "zeros":
            self._leave_out(set(unused))
        self._forget()

    def _leave_out(self, unused: set[Parameter]) -> None:
        """Take the gradient from parameters that had none on any rank."""
        device = next(iter(self.names)).device
        used = torch.tensor([p not in unused for p in self.names], dtype=torch.int32, device=device)  # (K,)
        dist.all_reduce(used, op=dist.ReduceOp.MAX, group=self.group)
        for p, somewhere in zip(self.names, used.tolist(), strict=True):
            if not somewhere:
                p.grad = None

    def _forget(self) -> None:
        self.arrived.clear()
        self.forget()

    def _check(self) -> None:
        if self.n < 1:
            raise ValueError("this rank is not in the group it was given: wrap the model on members of the group only")
        if not self.names:
            raise ValueError(
                "no parameter of this module wants a gradient: there is nothing to average, use it as it is"
            )
        if self.unused not in ("error", "zeros"):
            raise ValueError(f"unused={self.unused!r}: choose 'error' or 'zeros'")
