"""Models that are called as a whole: tokens and targets in, the loss out, on every rank."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import nn

from kit.topics.gpt.reference.ladder import Exact
from kit.topics.gpt.reference.muon import Muon
from kit.topics.gpt.reference.norm import scale, total_norm
from kit.topics.gpt.reference.state import Held, RandomStates, gathered, names_of, scattered
from kit.topics.zero.reference.by_hand import all_gather, flatten, unflatten
from kit.topics.zero.reference.optimizer import ZeroOptimizer

Tensor = torch.Tensor
Batch = tuple[Tensor, Tensor]  # tokens (B, T), targets (B, T)
Mark = Callable[[str], None]
KINDS = ("weight", "exp_avg", "exp_avg_sq")


@dataclass(frozen=True)
class Adam:
    """AdamW's numbers. Matrices and embeddings decay; vectors, which are biases and norms, do not."""

    betas: tuple[float, float] = (0.9, 0.95)
    eps: float = 1e-8
    weight_decay: float = 0.1
    fused: bool = True  # all tensors of a group in one kernel; else one after the other
    muon: bool = False  # steps the matrices of blocks, and AdamW the rest

    def groups(self, module: nn.Module) -> list[dict[str, Any]]:
        """Parameter groups as torch's optimizers take them."""
        trained = [p for p in module.parameters() if p.requires_grad]
        decay = {"params": [p for p in trained if p.dim() >= 2], "weight_decay": self.weight_decay}
        return [decay, {"params": [p for p in trained if p.dim() < 2], "weight_decay": 0.0}]

    def of(self, module: nn.Module) -> torch.optim.Optimizer:
        """What steps all of a module that lies on this rank."""
        groups = self.groups(module)
        if not self.muon:
            return self.of_groups(groups)
        matrices = [p for name, p in module.named_parameters() if "blocks" in name.split(".") and p.dim() == 2]
        rest = [{**group, "params": [p for p in group["params"] if p not in set(matrices)]} for group in groups]
        return Muon(matrices, self.of_groups(rest), self.weight_decay)

    def of_groups(self, groups: list[dict[str, Any]]) -> torch.optim.AdamW:
        how: dict[str, bool] = {"fused": True} if self.fused else {"foreach": False}
        return torch.optim.AdamW(groups, lr=0.0, betas=self.betas, eps=self.eps, **how)


class WithRandomNumbers:
    """Part of a strategy: whose draws a checkpoint goes on with."""

    random: RandomStates

    def random_states(self) -> list[Tensor]:
        return self.random.read()

    def set_random_states(self, states: Sequence[Tensor]) -> None:
        self.random.write(states)


class Stepper(Protocol):
    """An optimizer, and the clipping that fits what of the gradients it has on this rank.

    groups: over which their squares are added up.
    """

    groups: Sequence[dist.ProcessGroup]

    def gradients(self) -> list[Tensor]: ...
    def clip(self, norm: float) -> float: ...
    def step(self, rate: float) -> None: ...
    def forget(self) -> None: ...
    def held(self) -> dict[nn.Parameter, Held]: ...
    def hold(self, what: Mapping[nn.Parameter, Held], steps: int) -> None: ...


class Replica(WithRandomNumbers):
    """One rank's copy or shards of a model that every rank calls.

    called: the model, or what is called in its place. module: whose mode is set. group: of the ranks with different
    data, cut: of those that share its layers; None: there is one. quiet: a context in which backward passes leave whole
    gradients on their rank (DDP's no_sync): less is sent then. None where no rank has room for them. numbers: what it
    computes in; attending: a context around its passes.
    """

    def __init__(
        self,
        called: Any,
        module: nn.Module,
        stepper: Stepper,
        device: torch.device,
        group: dist.ProcessGroup | None,
        cut: dist.ProcessGroup | None = None,
        quiet: Callable[[], AbstractContextManager[None]] | None = None,
    ) -> None:
        self.called, self.module, self.stepper, self.device = called, module, stepper, device
        self.group, self.cut, self.quiet = group, cut, quiet or nullcontext
        self.numbers = Exact()
        self.attending: Callable[[], AbstractContextManager[object]] = nullcontext
        region = getattr(module, "region", None)  # of a tensor-parallel module
        self.random = RandomStates(device, () if region is None else (region.equal, region.own))
        self.part = 0 if group is None else dist.get_rank(group)
        self.parts = 1 if group is None else dist.get_world_size(group)

    def gradients(self, micro_batches: Sequence[Batch], mark: Mark) -> Tensor:
        """Each loss is divided by m, because gradients add up. Ranks average after the last of them alone, or
        after each where gradients are kept in shards.
        """
        if not self.module.training:  # it goes through all modules
            self.module.train()
        while True:
            self.stepper.forget()  # what a step that was given up has left
            with self.attending():
                mean = self._there_and_back(micro_batches, mark)
            if self.numbers.settled(self.stepper):
                return self._mean(mean)

    def _there_and_back(self, micro_batches: Sequence[Batch], mark: Mark) -> Tensor:
        m = len(micro_batches)
        mean = torch.zeros((), device=self.device)  # ()
        for number, (tokens, targets) in enumerate(micro_batches):
            with self.quiet() if number < m - 1 else nullcontext():
                with self.numbers.forward():
                    _, loss = self.called(tokens, targets)  # (B, T, V), ()
                loss = loss / m
                mark("forward")
                self.numbers.scaled(loss).backward()
                mark("backward")
            mean += loss.detach()
        return mean

    def clip(self, norm: float) -> float:
        return self.stepper.clip(norm)

    def update(self, rate: float) -> None:
        self.stepper.step(rate)
        self.stepper.forget()

    @torch.no_grad()
    def loss(self, micro_batches: Sequence[Batch]) -> Tensor:
        self.module.eval()
        with self.attending(), self.numbers.forward():
            losses = [self.called(tokens, targets)[1] for tokens, targets in micro_batches]  # each ()
        return self._mean(torch.stack(losses).mean())

    def state(self) -> dict[str, Tensor]:
        return gathered(names_of([self.module], None), self.stepper.held(), self.cut)

    def restore(self, state: Mapping[str, Tensor], steps: int) -> None:
        self.stepper.hold(scattered(names_of([self.module], None), state, KINDS, self.cut), steps)

    def _mean(self, x: Tensor) -> Tensor:
        """x () of all parts of the data, each counting the same."""
        if self.group is not None:
            dist.all_reduce(x, group=self.group)
            x /= self.parts
        return x


class Whole:
    """AdamW on whatever of the model lies on this rank.

    counted: of these parameters the gradients count for the norm here; groups: over which the squares are added up.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        counted: Iterable[nn.Parameter],
        groups: Sequence[dist.ProcessGroup] = (),
    ) -> None:
        self.optimizer, self.counted, self.groups = optimizer, list(counted), groups
        self.held_here = [p for group in optimizer.param_groups for p in group["params"]]

    def gradients(self) -> list[Tensor]:
        return [p.grad for p in self.held_here if p.grad is not None]

    def clip(self, norm: float) -> float:
        counted = [p.grad for p in self.counted if p.grad is not None]
        held = self.gradients()
        found = total_norm(counted, self.groups, held[0].device)
        scale(held, found, norm)
        return found

    def step(self, rate: float) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()

    def forget(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)

    def held(self) -> dict[nn.Parameter, Held]:
        return {p: {"weight": p, **{kind: self._moment(p, kind) for kind in KINDS[1:]}} for p in self.held_here}

    @torch.no_grad()
    def hold(self, what: Mapping[nn.Parameter, Held], steps: int) -> None:
        for p, held in what.items():
            p.copy_(held["weight"])  # shape of p
            step = torch.tensor(float(steps), device=p.device)  # (), where the fused AdamW wants it
            self.optimizer.state[p] = {"step": step, **{kind: held[kind].clone() for kind in KINDS[1:]}}

    def _moment(self, p: nn.Parameter, kind: str) -> Tensor:
        """Zeros before the first step."""
        state = self.optimizer.state[p]
        return state[kind] if kind in state else torch.zeros_like(p)


class Sharded:
    """A stage of ZeRO, which steps this rank's shards of what it was given.

    counted, groups: as for `Whole`; ZeRO's own group, among whose ranks no element is held twice, is one of them.
    """

    def __init__(
        self, zero: ZeroOptimizer, counted: Iterable[nn.Parameter], groups: Sequence[dist.ProcessGroup]
    ) -> None:
        self.zero, self.counted, self.groups = zero, set(counted), groups

    def gradients(self) -> list[Tensor]:
        return [unit.gradients.shard for unit in self.zero.units if unit.gradients.shard is not None]

    def clip(self, norm: float) -> float:
        """Gradients are sums over ZeRO's ranks until it steps, so their norm is n times that of the mean."""
        shards = [(unit.flat, unit.gradients.shard) for unit in self.zero.units if unit.gradients.shard is not None]
        counted = [shard[at] for flat, shard in shards for p, at in flat.pieces() if p in self.counted]
        found = total_norm(counted, self.groups, shards[0][1].device) / self.zero.n
        scale([shard for _, shard in shards], found, norm)
        return found

    def step(self, rate: float) -> None:
        for group in self.zero.param_groups:
            group["lr"] = rate
        self.zero.step()

    def forget(self) -> None:
        self.zero.zero_grad()

    def held(self) -> dict[nn.Parameter, Held]:
        """All ranks of ZeRO's group call: each has a shard."""
        found: dict[nn.Parameter, Held] = {}
        for unit in self.zero.units:
            flat = unit.flat
            for kind, mine in zip(KINDS, (flat.shard, unit.adamw.exp_avg, unit.adamw.exp_avg_sq), strict=True):
                everything = mine.new_empty(flat.n, len(mine))  # (n, P/n)
                all_gather(everything, mine, flat.group).wait()
                for p, x in zip(flat.params, unflatten(everything, flat.shapes), strict=True):
                    found.setdefault(p, {})[kind] = x
        return found

    @torch.no_grad()
    def hold(self, what: Mapping[nn.Parameter, Held], steps: int) -> None:
        with self.zero.full_parameters():
            for p, held in what.items():
                p.copy_(held["weight"])  # shape of p
        for unit in self.zero.units:
            flat, adamw = unit.flat, unit.adamw
            for kind, mine in zip(KINDS[1:], (adamw.exp_avg, adamw.exp_avg_sq), strict=True):
                mine.copy_(flatten([what[p][kind] for p in flat.params], flat.n)[flat.rank])  # (P/n,)
            adamw.steps = dict.fromkeys(flat.params, steps)
