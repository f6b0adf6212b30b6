"""One rank's copy of a model: it starts like all others, notices its gradients, and leaves averaging to a subclass."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal
from weakref import WeakMethod

import torch
import torch.distributed as dist
from torch import nn
from torch.autograd import Variable
from torch.nn import Parameter

from kit.parallel.built_in import Broadcast, Group, built_in_broadcast
from kit.parallel.charge import in_charge, take_charge
from kit.parallel.refusals import check_module, thawed, twice


def trained(module: nn.Module) -> list[Parameter]:
    """The K parameters that want a gradient, in the order they were made; a shared one once, frozen ones not."""
    return [p for p in module.parameters() if p.requires_grad]


@torch.no_grad()
def broadcast_state(module: nn.Module, group: Group = None, broadcast: Broadcast = built_in_broadcast) -> None:
    """Give every rank the parameters (frozen ones too) and buffers of the group's rank 0, in place."""
    for x in [*module.parameters(), *module.buffers()]:
        x.copy_(broadcast(x, 0, group))  # shape of x


@torch.no_grad()
def broadcast_buffers(module: nn.Module, group: Group = None, broadcast: Broadcast = built_in_broadcast) -> None:
    """Give every rank the buffers of the group's rank 0 (running means and the like), in place."""
    for x in module.buffers():
        x.copy_(broadcast(x, 0, group))  # shape of x


class Replica(nn.Module):
    """What the wrappers of `kit.parallel.ddp` share: equal states at the start, hooks, micro-batches, buffers.

    module: the same on every rank but for its values, which become those of the group's rank 0, in place. What is
    trained is settled here: freeze before, not after.
    unused: what to do about a parameter that has no gradient when backward ends. "error" raises RuntimeError, with its
    name. "zeros" lets this rank add zeros; a parameter that has no gradient on any rank keeps none, so that an
    optimizer passes it by as in a single process, at the price of one more small all-reduce. Either way each rank
    needs a gradient for one parameter at least: without any it does not notice that there was a backward pass.
    sync_buffers: give every rank the buffers of rank 0 before a forward pass that follows an averaged one.
    Where a module is wrapped again, the newest wrapper averages, and the others leave its gradients alone.

    Raises ValueError for a module without trained parameters or one that cannot be averaged, a rank outside the group,
    or another word for `unused`.
    """

    sends_early = True  # gradients are on their way before backward is over

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
        self._take_charge()

    def __setstate__(self, state: dict[str, Any]) -> None:
        """A copy (deepcopy, pickle) averages too: hooks do not travel with the parameters they hang on."""
        super().__setstate__(state)
        self._take_charge()

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The module's own forward; it also settles whether the backward pass to come averages."""
        if self.sync_buffers and self._buffers_differ:
            broadcast_buffers(self.module, self.group)
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
        raise NotImplementedError

    def finish(self) -> None:
        """Called at the end of backward, when all gradients have been ready: leaves the mean in every p.grad."""
        raise NotImplementedError

    def forget(self) -> None:
        """Called between two backward passes: what a subclass noted of the one belongs to it alone."""

    def _take_charge(self) -> None:
        take_charge(self, self.names)
        for p in self.names:
            p.register_post_accumulate_grad_hook(_weakly(self._on_gradient))

    def _on_gradient(self, p: Parameter) -> None:
        if not self._averaging or not in_charge(self, p):
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
            raise RuntimeError(self._no_gradient(unused))
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

    def _no_gradient(self, unused: list[Parameter]) -> str:
        names = ", ".join(self.names[p] for p in unused[:3]) + (", ..." if len(unused) > 3 else "")
        if not all(p.requires_grad for p in unused):
            return (
                f"rank {dist.get_rank(self.group)} has no gradient for {names}, frozen since it was wrapped: settle"
                " what is trained (requires_grad_) first, then wrap; or pass unused='zeros'"
            )
        return (
            f"rank {dist.get_rank(self.group)} has no gradient for {names} at the end of backward: the loss does not"
            " depend on it. Freeze what is never used (requires_grad_(False), before wrapping); where it is used now"
            " and then, or on some ranks only, pass unused='zeros'"
        )


def _weakly(method: Callable[[Parameter], None]) -> Callable[[Parameter], None]:
    """The method as a hook that does not keep its object alive: the garbage collector cannot see through a hook."""
    weak = WeakMethod(method)

    def hook(p: Parameter) -> None:
        alive = weak()
        if alive is not None:
            alive(p)

    return hook
