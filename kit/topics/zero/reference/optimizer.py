"""What the stages of ZeRO share: gradients summed over the ranks, AdamW on this rank's shards, the face of torch.optim.

Letters as in `flat`; K parameters that are trained.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, NoReturn

import torch
import torch.distributed as dist
from torch import nn
from torch.autograd import Variable
from torch.nn import Parameter
from torch.optim import Optimizer
from torch.utils._pytree import tree_map

from kit.topics.data_parallel.reference.built_in import Group
from kit.topics.data_parallel.reference.gradient_owner import own_gradients
from kit.topics.data_parallel.reference.validation import check_module, thawed
from kit.topics.zero.reference.adamw import DEFAULTS, ShardedAdamW
from kit.topics.zero.reference.by_hand import reduce_scatter
from kit.topics.zero.reference.flat import FlatParameter, Gradients
from kit.topics.zero.reference.validation import check_choices, check_finite, no_gradient, parameter_groups


@dataclass(frozen=True, eq=False)
class Unit:
    """What is summed and stepped together: a flat parameter, its gradients, and AdamW of this rank's shard."""

    flat: FlatParameter
    gradients: Gradients
    adamw: ShardedAdamW


class ZeroOptimizer(Optimizer):
    """AdamW for a module, of whose optimizer state each rank holds its shard: the base of the three stages.

    `zero = ZeroStage2(module, lr=3e-4)`, and then as ever `loss = module(x)...`, `loss.backward()`, `zero.step()`,
    `zero.zero_grad()`. Each rank computes with its own part of the batch, and the gradient is the mean over the ranks.
    With a loss that is a mean over samples that is the gradient of the whole batch, if all parts are of one size; if
    not, each rank's loss is the sum over its samples, times n, over the size of the whole (a rank without any takes
    part too). Every rank of the group makes one from the same module; values, of buffers too, become those of the
    group's rank 0. What is trained is settled here: freeze before, not after. Schedules, hooks and profilers take it as
    any other optimizer of torch.

    groups: `[{"params": [...], "weight_decay": 0.1}, ...]` as torch's optimizers take them; None: one for all. options:
    lr, betas, eps and weight_decay for what the groups leave open; `param_groups` has them all, to be changed between
    steps. precision: "fp32" leaves parameters in the format they have; "mixed" turns them, and what the module is
    given, into bfloat16, and the optimizer keeps fp32 ones. offload: the optimizer's memory and work are the CPU's.
    unused: "error" raises RuntimeError in `step` for a parameter without a gradient; "zeros" has this rank add zeros,
    and skips what has no gradient on any rank, for one more small all-reduce in each step. check: raise
    FloatingPointError for a NaN or an infinity in this rank's gradients, before they are summed and reach everybody.

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
        self.trained = [p for p in self.names if p.requires_grad]
        self.frozen = [p for p in self.names if not p.requires_grad]
        check_choices(self.names, self.rank, precision, unused)
        super().__init__(parameter_groups(self.names, groups, options), DEFAULTS)
        self.dtype = torch.bfloat16 if precision == "mixed" else None  # of the weights, where it is to be changed
        module.register_forward_pre_hook(self._on_forward, with_kwargs=True, prepend=True)
        module.zero_grad = self.zero_grad  # type: ignore[method-assign]  # the module's own would leave the shards
        for buffer in module.buffers():
            dist.broadcast(buffer, group=group, group_src=0)
        self.units: list[Unit] = []
        self._wanted = True  # False inside no_sync
        self._in_backward = False
        self._travelling: tuple[Unit, torch.Tensor, torch.Tensor, dist.Work] | None = None

    # ---------------------------------------------------------------------------------- what a training loop calls

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The module's own forward."""
        return self.module(*args, **kwargs)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """AdamW on this rank's shards; afterwards every rank computes with the new weights.

        ValueError for a closure: gradients are summed over the ranks once, in the backward pass before.
        """
        if closure is not None:
            raise ValueError("a step takes no closure here: call backward first, then step")
        if late := [self.names[p] for p in self.frozen if p.requires_grad]:
            raise thawed(late)
        to_step = self._to_step()
        for unit in self.units:
            if params := to_step.intersection(unit.flat.params):
                assert unit.gradients.shard is not None, "what is to be stepped has been summed"
                unit.adamw.step(unit.gradients.shard, params)  # (P/n,)
                for p in unit.flat.params:  # a graph of the old weights is of no use: autograd is to refuse it
                    torch.autograd.graph.increment_version(p)
                self.stepped(unit)
        self.weights_changed()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget all gradients. `set_to_none` is what it always does."""
        self.forget_backward()
        for unit in self.units:
            unit.gradients.clear()

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Backward passes in here leave their full gradients on this rank; the next one outside sums them too."""
        before, self._wanted = self._wanted, False
        try:
            yield
        finally:
            self._wanted = before

    @torch.no_grad()
    def clip(self, max_norm: float) -> float:
        """Scale all gradients so that their norm together is max_norm at most; returns what it was.

        One all-reduce of a single number: every rank has the squares of its own shards. Raises ValueError for a norm
        below 0.
        """
        if not max_norm >= 0:  # a NaN is none either
            raise ValueError(f"the largest norm is 0 or more, not {max_norm}")
        shards = [unit.gradients.shard for unit in self.units if unit.gradients.shard is not None]
        squares = torch.zeros((), device=self.units[0].flat.shard.device)  # ()
        for shard in shards:
            squares += (shard.float() / self.n).square().sum()
        dist.all_reduce(squares, group=self.group)
        norm = float(squares.sqrt())
        for shard in shards:
            shard *= min(1.0, max_norm / (norm + 1e-6))  # (P/n,)
        return norm

    @contextmanager
    def full_parameters(self) -> Iterator[nn.Module]:
        """The module with all its parameters, to look at, to save, or to load into.

        Every rank of the group must enter, and write the same.
        """
        self.gather_parameters()
        try:
            yield self.module
            self.keep_written()
        finally:
            self.weights_changed()

    def tensors_held(self) -> dict[str, list[torch.Tensor]]:
        """What takes up memory on this rank at this moment, by kind, in the words of an account of memory."""
        travelling = [] if self._travelling is None else list(self._travelling[1:3])
        return {
            "parameters": self.weights(),
            "gradients": [x for unit in self.units for x in unit.gradients.tensors()],
            "optimizer state": [x for unit in self.units for x in unit.adamw.tensors()],
            "communication buffers": [*self.gathered(), *travelling],
        }

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """ValueError once it is made: what is trained is settled when the model is sharded."""
        if hasattr(self, "units"):
            raise ValueError("what is trained is settled when the model is sharded: pass groups=[...] there")
        super().add_param_group(param_group)

    def state_dict(self) -> NoReturn:
        """NotImplementedError: each rank has a shard of the moments, and torch's form has no place for shards."""
        raise NotImplementedError(
            "the moments are this rank's shards: save the weights inside `with zero.full_parameters():`"
        )

    def load_state_dict(self, state_dict: dict[str, Any]) -> NoReturn:
        """NotImplementedError, as `state_dict`; and groups that are loaded would not be those that are looked up."""
        raise NotImplementedError(
            "the moments are this rank's shards: load the weights inside `with zero.full_parameters():`"
        )

    # ---------------------------------------------------------------------------------------- what a stage fills in

    def end_of_backward(self) -> None:
        """Called when every gradient of a backward pass is there."""
        raise NotImplementedError

    def forget_backward(self) -> None:
        """Called when a backward pass is over, and when one is given up: one that failed on its way, too."""
        self._in_backward, self._travelling = False, None

    def stepped(self, unit: Unit) -> None:
        """Called when this rank's shard of a unit has new weights."""

    def weights_changed(self) -> None:
        """Called when all shards may have new weights."""

    def gather_parameters(self) -> None:
        """Called when all parameters are to be here."""

    def weights(self) -> list[torch.Tensor]:
        """What of the parameters stays on this rank: all of them, or its shards."""
        raise NotImplementedError

    def gathered(self) -> list[torch.Tensor]:
        """What of the parameters is here for a moment."""
        return []

    # --------------------------------------------------------------------------------------- what a stage makes use of

    def add_unit(self, flat: FlatParameter, gradients: type[Gradients]) -> Unit:
        """Have a flat parameter trained."""
        groups = {p: group for group in self.param_groups for p in group["params"]}
        master = torch.float32 if self.dtype is not None else flat.shard.dtype if self.offload else None
        adamw = ShardedAdamW(flat, groups, master, torch.device("cpu") if self.offload else None)
        flat.unrounded = None  # the master has it now
        own_gradients(self, flat.params, sharded=True)
        self.units.append(Unit(flat, gradients(flat), adamw))
        return self.units[-1]

    def keep_written(self) -> None:
        """Weights may have been written to: the optimizer goes on from what stands there."""
        for unit in self.units:
            unit.adamw.adopt_written()

    def note_backward(self) -> None:
        """Called by hooks: a backward pass goes on, and `end_of_backward` is to be its last act."""
        if not self._in_backward:
            self._in_backward = True
            Variable._execution_engine.queue_callback(self._on_end)

    def begin_sum(self, unit: Unit) -> None:
        """Begin to sum a unit's gradients over the ranks; they travel while the next ones are computed."""
        if self.check:
            check_finite(self.rank, unit.flat.params, self.names)
        gradients, shard = unit.gradients.pack()  # (n, P/n), (P/n,)
        self.end_sum()
        self._travelling = unit, gradients, shard, reduce_scatter(shard, gradients, self.group)

    def end_sum(self) -> None:
        """Wait for the gradients that travel, and keep this rank's shard of the sum."""
        if self._travelling is not None:
            unit, _, shard, work = self._travelling
            work.wait()
            unit.gradients.keep(shard)  # (P/n,)
            self._travelling = None

    @torch.no_grad()
    def _on_end(self) -> None:
        self.end_of_backward()
        self.forget_backward()

    def _to_step(self) -> set[Parameter]:
        """The parameters that have a gradient: on this rank or, with unused="zeros", on any."""
        summed = {p for unit in self.units for p in unit.gradients.summed}
        if self.unused == "zeros":
            here = [p in summed for p in self.trained]
            used = torch.tensor(here, dtype=torch.int32, device=self.trained[0].device)  # (K,)
            dist.all_reduce(used, op=dist.ReduceOp.MAX, group=self.group)
            return {p for p, somewhere in zip(self.trained, used.tolist(), strict=True) if somewhere}
        if missing := [p for p in self.trained if p not in summed]:
            raise no_gradient(self.rank, missing, self.names, nowhere=not summed)
        return summed

    def _on_forward(self, module: nn.Module, args: Any, kwargs: Any) -> Any:
        if self._in_backward and torch._C._current_graph_task_id() == -1:  # the pass before never came to its end
            self.forget_backward()

        def cast(x: Any) -> Any:
            return x.to(self.dtype) if isinstance(x, torch.Tensor) and x.is_floating_point() else x

        return (args, kwargs) if self.dtype is None else tree_map(cast, (args, kwargs))
