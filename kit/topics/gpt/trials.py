"""A few steps of a training, measured; within a budget of memory, if there is one."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from torch.profiler import record_function
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from kit.cost.training import mfu
from kit.topics.gpt.peak import peak_of
from kit.topics.gpt.run import Config, prepare
from kit.trace.overlap import STEP


@dataclass(frozen=True)
class Trial:
    """What some steps were like on one rank. Speeds leave the first step out, which warms up."""

    strategy: str
    done: int  # steps that a checkpoint brought
    losses: tuple[float, ...]
    seconds: float  # of a step, the median
    tokens: int  # of a step, of all ranks together
    held: int  # bytes of tensors on this rank at most, the model's making included
    mfu: float

    @property
    def tokens_per_second(self) -> float:
        """Of all ranks together."""
        return self.tokens / self.seconds


def trial(config: Config, steps: int = 6, budget: float = float("inf")) -> Trial:
    """Takes some steps of a training; every rank calls. budget: bytes of tensors that a rank may hold.

    Raises MemoryError where a rank would hold more, ValueError for what cannot be trained, as for less than two steps.
    """
    if steps < 2:
        raise ValueError(f"steps is {steps}: the first one warms up, so take two at least")
    device = torch.get_default_device()
    with Ledger(budget) as ledger:
        training = prepare(config, device)
        trainer = training.trainer
        done = 0
        if config.checkpoints and config.resume:
            training.checkpoints(config.checkpoints).resume(trainer)
            done = trainer.done
        reports = []
        for number in range(steps):
            with record_function(f"{STEP}{number}"):
                reports.append(trainer.step())
    seconds, tokens = median(one.seconds for one in reports[1:]), reports[0].tokens
    peak, _ = peak_of(device, config.extras.precision)
    reached = mfu(
        tokens_per_second=tokens / seconds, flops_per_token=training.flops, peak=peak, devices=training.layout.ranks
    )
    losses = tuple(one.loss for one in reports)
    return Trial(str(training.layout), done, losses, seconds, tokens, ledger.most, reached)


class Ledger(TorchDispatchMode):
    """Counts the memory of all tensors that are made inside it, and refuses what goes beyond a budget.

    It counts on any device alike, and stops at the operation that is too much, as a GPU does.
    """

    def __init__(self, budget: float) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.budget, self.now, self.most = budget, 0, 0
        self._known: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for x in tree_leaves(result):
            if isinstance(x, torch.Tensor) and x.device.type != "meta":
                self._count(x, func)
        return result

    def _count(self, x: torch.Tensor, func: Any) -> None:
        storage = x.untyped_storage()
        key, nbytes = storage._cdata, storage.nbytes()
        if key in self._known or not nbytes:
            return
        self._known.add(key)
        self.now += nbytes
        self.most = max(self.most, self.now)
        weakref.finalize(storage, self._gone, key, nbytes)
        if self.now > self.budget:
            rank = dist.get_rank() if dist.is_initialized() else 0
            raise MemoryError(
                f"rank {rank} is out of memory: {func} would bring it to {self.now / 1e6:.1f} MB where"
                f" {self.budget / 1e6:.1f} MB are allowed"
            )

    def _gone(self, key: int, nbytes: int) -> None:
        self._known.discard(key)
        self.now -= nbytes
