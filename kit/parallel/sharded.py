"""What the stages of ZeRO share: gradients summed over the ranks, AdamW on this rank's shares, bytes counted.

The stages are in `kit.parallel.zero` (1 and 2) and `kit.parallel.zero3`, with a table of what they hold and send.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import nn
from torch.autograd import Variable
from torch.utils._pytree import tree_map

from kit.parallel.adamw import Moments
from kit.parallel.as_optimizer import AsOptimizer
from kit.parallel.charge import take_charge
from kit.parallel.flat import Flat, Group, reduce_scatter
from kit.parallel.gradients import Gradients, MakeGradients
from kit.parallel.held import Held, nbytes
from kit.parallel.refusals import check_choices, check_module, grouped, no_gradient, refuse_not_finite, thawed


@dataclass(frozen=True)
class Part:
    """A flat that is trained, where its gradients are kept, and what the optimizer remembers of it."""

    flat: Flat
    gradients: Gradients
    moments: Moments


class Sharded:
    """A module that is trained by AdamW, of which each rank remembers its share: the base of the three stages.

    `zero = ZeroStage2(module, lr=3e-4)`, and then as ever `loss = module(x)...`, `loss.backward()`, `zero.step()`,
    `zero.zero_grad()`. Each rank computes with its own part of the batch, and the gradient is the mean over the ranks.
    With a loss that is a mean over samples that is the gradient of the whole batch, if all parts are of one size; if
    not, each rank's loss is the sum over its samples, times n, over the size of the whole (a rank without any takes
    part too). Every rank of the group makes one from the same module; values, of buffers too, become those of the
    group's rank 0. What is trained is settled here: freeze before, not after.

    groups: `[{"params": [...], "weight_decay": 0.1}, ...]` as torch's optimizers take them; None: one for all. options:
    lr, betas, eps and weight_decay for what the groups leave open; `param_groups` has them all, to be changed between
    steps, for instance by a schedule of torch's, which takes `zero.optimizer`. precision: "fp32" leaves parameters in
    the format they have; "mixed" turns them, and what the module is given, into bfloat16, and the optimizer keeps fp32
    ones. offload: the optimizer's memory and work are the CPU's. unused: "error" raises RuntimeError in `step` for a
    parameter without a gradient; "zeros" has this rank add zeros, and passes by what has no gradient on any rank, for
    one more small all-reduce in each step. check: raise FloatingPointError for a NaN or an infinity in this rank's
    gradients, before they are summed and reach everybody.

    Raises ValueError for a module, a group or a choice that cannot be trained with.
    """

    def __init__(
        self,
        module: nn.Module,
        group: Group = None,
        *,
        groups: Iterable[dict[str, Any]] | None = None,
        precision: Literal["fp32", "mixed"] = "fp32",
        offload: bool = False,
        unused: Literal["error", "zeros"] = "error",
        check: bool = False,
        **options: Any,
    ) -> None:
        check_module(module)
        self.module, self.group = module, group
        self.rank, self.n = dist.get_rank(group), dist.get_world_size(group)
        self.offload, self.unused, self.check = offload, unused, check
        self.names = {p: name for name, p in module.named_parameters()}  # a tied one once
        self.frozen_names = {p: name for p, name in self.names.items() if not p.requires_grad}
        check_choices(self.names, self.rank, precision, unused)
        self.param_groups = grouped(self.names, groups, options)
        self.optimizer = AsOptimizer(self.param_groups, self._step, self.zero_grad, self.clip)
        self.dtype = torch.bfloat16 if precision == "mixed" else None  # of the weights, where it is to be changed
        module.register_forward_pre_hook(self._on_forward, with_kwargs=True, prepend=True)
        module.zero_grad = self.zero_grad  # type: ignore[method-assign]  # the module's own would leave the shares
        for buffer in module.buffers():
            dist.broadcast(buffer, group=group, group_src=0)
        self.parts: list[Part] = []
        self._wanted = True  # False inside no_sync
        self._in_backward = False
        self._under_way: tuple[Part, torch.Tensor, torch.Tensor, dist.Work] | None = None

    # what a training loop calls

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The module's own forward."""
        return self.module(*args, **kwargs)

    def step(self) -> None:
        """AdamW on this rank's shares; afterwards every rank computes with the new weights."""
        self.optimizer.step()  # which calls `_step` between the hooks of torch.optim

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget all gradients. `set_to_none` is what it always does."""
        self.forget_backward()
        for part in self.parts:
            part.gradients.clear()

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Backward passes in here leave their gradients on this rank, whole; the next one outside sums them too."""
        before, self._wanted = self._wanted, False
        try:
            yield
        finally:
            self._wanted = before

    @torch.no_grad()
    def clip(self, max_norm: float) -> float:
        """Scale all gradients so that their norm together is max_norm at most; returns what it was.

        One all-reduce of a single number: every rank has the squares of its own shares. Raises ValueError for a norm
        below 0.
        """
        if not max_norm >= 0:  # a NaN is none either
            raise ValueError(f"the largest norm is 0 or more, not {max_norm}")
        shares = [part.gradients.share for part in self.parts if part.gradients.share is not None]
        squares = torch.zeros((), device=self.parts[0].flat.share.device)  # ()
        for share in shares:
            squares += (share.float() / self.n).square().sum()
        dist.all_reduce(squares, group=self.group)
        norm = float(squares.sqrt())
        for share in shares:
            share *= min(1.0, max_norm / (norm + 1e-6))  # (P/n,)
        return norm

    @contextmanager
    def whole(self) -> Iterator[nn.Module]:
        """The module with all its parameters whole, to look at, to save, or to load into.

        Every rank of the group must enter, and write the same.
        """
        yield self.module
        self.keep_written()

    def tensors_held(self) -> dict[str, list[torch.Tensor]]:
        """What takes up memory on this rank at this moment, by kind, in the words of an account of memory."""
        travelling = [] if self._under_way is None else list(self._under_way[1:3])
        return {
            "parameters": self.weights(),
            "gradients": [x for part in self.parts for x in part.gradients.tensors()],
            "optimizer state": [x for part in self.parts for x in part.moments.tensors()],
            "communication buffers": [*self.gathered(), *travelling],
        }

    def held(self) -> Held:
        """Bytes of it, counted from the tensors that exist, with their padding."""
        there = self.tensors_held()
        gathered, gradients = nbytes(self.gathered()), there["gradients"]
        buffers = nbytes([*there["communication buffers"], *gradients]) - nbytes(gradients)  # stage 1 sums in place
        return Held(
            parameters=nbytes(there["parameters"]),
            gradients=nbytes(gradients),
            optimizer=nbytes(there["optimizer state"]),
            gathered=gathered,
            buckets=buffers - gathered,
        )

    # what a stage fills in

    def end_of_backward(self) -> None:
        """Called when every gradient of a backward pass is there."""
        raise NotImplementedError

    def forget_backward(self) -> None:
        """Called when nothing of a backward pass is of interest any more, also of one that failed on its way."""
        self._in_backward, self._under_way = False, None

    def stepped(self, part: Part) -> None:
        """Called when this rank's share of a part has new weights."""

    def all_stepped(self) -> None:
        """Called when all shares have them."""

    def weights(self) -> list[torch.Tensor]:
        """What of the parameters stays on this rank."""
        raise NotImplementedError

    def gathered(self) -> list[torch.Tensor]:
        """What of the parameters is here for a moment."""
        return []

    # what a stage makes use of

    def make_part(self, flat: Flat, make_gradients: MakeGradients) -> Part:
        """Have a flat trained."""
        options = {p: group for group in self.param_groups for p in group["params"]}
        master = torch.float32 if self.dtype is not None else flat.share.dtype if self.offload else None
        device = torch.device("cpu") if self.offload else None
        moments = Moments(flat, [options[p] for p in flat.params], master, device)
        flat.exact = None  # the master has it now
        take_charge(self, flat.params, sharded=True)
        self.parts.append(Part(flat, make_gradients(flat), moments))
        return self.parts[-1]

    def keep_written(self) -> None:
        """Called when weights may have been written to: the optimizer goes on from what stands there."""
        for part in self.parts:
            part.moments.take_over(part.flat.share)

    def in_backward(self) -> None:
        """Called by hooks: a backward pass goes on, and `end_of_backward` is to be its last act."""
        if not self._in_backward:
            self._in_backward = True
            Variable._execution_engine.queue_callback(self._on_end)

    def begin_sum(self, part: Part) -> None:
        """Begin to sum a part's gradients over the ranks; they travel while the next ones are computed."""
        if self.check:
            refuse_not_finite(self.rank, part.flat.params, part.flat.names)
        gradients, share = part.gradients.take()  # (n, P/n), (P/n,)
        self.end_sum()
        self._under_way = part, gradients, share, reduce_scatter(share, gradients, self.group)

    def end_sum(self) -> None:
        """Wait for the part that is travelling, and keep this rank's share of the sum."""
        if self._under_way is not None:
            part, _, share, work = self._under_way
            work.wait()
            part.gradients.keep(share)  # (P/n,)
            self._under_way = None

    @torch.no_grad()
    def _step(self) -> None:
        if late := [name for p, name in self.frozen_names.items() if p.requires_grad]:
            raise thawed(late)
        for part, have in zip(self.parts, self._have(), strict=True):
            if have:
                part.moments.step(part.flat.share, part.gradients.share, self.n, have)
                for p in part.flat.params:  # a graph of the old weights is of no use: autograd is to refuse it
                    torch.autograd.graph.increment_version(p)
                self.stepped(part)
        self.all_stepped()

    @torch.no_grad()
    def _on_end(self) -> None:
        self.end_of_backward()
        self.forget_backward()

    def _have(self) -> list[set[int]]:
        """For each part the numbers of the parameters to step: what has a gradient here or, if wanted, on any rank."""
        every = [(part, number) for part in self.parts for number in range(len(part.flat.params))]
        here = [number in part.gradients.have for part, number in every]
        if self.unused == "zeros":
            used = torch.tensor(here, dtype=torch.int32, device=self.parts[0].flat.share.device)  # (K,)
            dist.all_reduce(used, op=dist.ReduceOp.MAX, group=self.group)
            anywhere = {one for one, somewhere in zip(every, used.tolist(), strict=True) if somewhere}
            return [{number for part, number in anywhere if part is mine} for mine in self.parts]
        missing = [one for one, there in zip(every, here, strict=True) if not there]
        if missing:
            params = [part.flat.params[number] for part, number in missing]
            kept_back, frozen = any(p.grad is not None for p in params), not all(p.requires_grad for p in params)
            names = [self.names[p] for p in params] if any(here) or kept_back or frozen else []
            raise no_gradient(self.rank, names, kept_back, frozen)
        return [part.gradients.have for part in self.parts]

    def _on_forward(self, module: nn.Module, args: Any, kwargs: Any) -> Any:
        if self._in_backward and torch._C._current_graph_task_id() == -1:  # the pass before never came to its end
            self.forget_backward()

        def cast(x: Any) -> Any:
            return x.to(self.dtype) if isinstance(x, torch.Tensor) and x.is_floating_point() else x

        return (args, kwargs) if self.dtype is None else tree_map(cast, (args, kwargs))
