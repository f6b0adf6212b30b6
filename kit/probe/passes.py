"""When a rank was in its forward pass, its backward pass, and its optimizer's step, seen by torch's own hooks.

The outermost module's call is the forward pass; the backward pass begins when a gradient comes to what that call
returned, and ends when everything that was put off to its end is done; a step is a `torch.optim` optimizer's. Nothing
of the learner's code has to say so, and nothing of its graph is changed. What calls no module has no passes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any, Protocol

import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils._pytree import tree_leaves

from kit.probe.torch_private import at_end_of_backward, backward_number
from kit.trace.facts import Pass

Told = Callable[[str, Any], None]  # (what happened, the module or optimizer that it happened to, or None)


class Clock(Protocol):
    """Of the host, or of the device that the host runs ahead of."""

    def now(self) -> Any: ...

    def when(self, mark: Any) -> int:
        """In ns of the host's clock, what `now` gave; of a device once it has come that far."""
        ...


class HostClock:
    def now(self) -> int:
        return time.monotonic_ns()

    def when(self, mark: int) -> int:
        return mark


class Passes:
    """Watches one thread between `start` and `stop`. told: hears of every beginning and end, as it comes."""

    def __init__(self, told: Told = lambda what, whom: None, clock: Clock | None = None) -> None:
        self._clock = clock or HostClock()
        self._seen: list[tuple[str, Any, Any]] = []  # name, beginning, end
        self._computed: list[tuple[Any, Any]] = []
        self._told = told
        self._thread = threading.get_ident()
        self._depth = {"forward": 0, "step": 0}  # modules within modules, optimizers within optimizers
        self._began: dict[str, Any] = {}
        self._backward = -1
        self._hooks = ExitStack()

    def start(self) -> None:
        for handle in (
            register_module_forward_pre_hook(self._enter),
            register_module_forward_hook(self._leave, always_call=True),
            register_optimizer_step_pre_hook(self._before_step),
            register_optimizer_step_post_hook(self._after_step),
        ):
            self._hooks.callback(handle.remove)

    def stop(self) -> None:
        self._hooks.close()

    @property
    def facts(self) -> tuple[Pass, ...]:
        return tuple(Pass(name, self._clock.when(start), self._clock.when(end)) for name, start, end in self._seen)

    @property
    def computed(self) -> list[tuple[int, int]]:
        """In ns, of each backward pass: when all gradients were there, and when it was over."""
        return [(self._clock.when(computed), self._clock.when(over)) for computed, over in self._computed]

    def _here(self) -> bool:
        """In the forward pass or a step; what is computed anew in a backward pass is part of that."""
        return threading.get_ident() == self._thread and backward_number() == -1

    def _enter(self, module: torch.nn.Module, *_: Any) -> None:
        if self._here():
            self._deeper("forward", module)

    def _leave(self, module: torch.nn.Module, inputs: Any, output: Any) -> None:
        if self._here() and self._out_of("forward", module):
            for tensor in _that_need_gradients(output):
                tensor.register_hook(self._gradient_came)

    def _gradient_came(self, gradient: torch.Tensor) -> None:
        if backward_number() == self._backward:
            return
        self._backward = backward_number()
        self._begin("backward", None)
        at_end_of_backward(lambda: at_end_of_backward(partial(self._backward_ended, self._clock.now())))

    def _backward_ended(self, computed: Any) -> None:
        """Called after what others had put off to the end of the pass: there, a reducer waits for its buckets."""
        self._end("backward", None)
        self._computed.append((computed, self._seen[-1][2]))

    def _before_step(self, optimizer: Optimizer, *_: Any) -> None:
        if self._here():
            self._deeper("step", optimizer)

    def _after_step(self, optimizer: Optimizer, *_: Any) -> None:
        if self._here():
            self._out_of("step", optimizer)

    def _deeper(self, name: str, whom: Any) -> None:
        self._depth[name] += 1
        if self._depth[name] == 1:
            self._begin(name, whom)

    def _out_of(self, name: str, whom: Any) -> bool:
        """Whether that was the outermost."""
        self._depth[name] -= 1
        if self._depth[name] == 0:
            self._end(name, whom)
        return self._depth[name] == 0

    def _begin(self, name: str, whom: Any) -> None:
        self._began[name] = self._clock.now()
        self._told(f"{name} begins", whom)

    def _end(self, name: str, whom: Any) -> None:
        start, end = self._began[name], self._clock.now()
        if self._seen and self._seen[-1][0] == name == "forward":  # modules called one after the other
            self._seen[-1] = (name, self._seen[-1][1], end)
        else:
            self._seen.append((name, start, end))
        self._told(f"{name} ends", whom)


def _that_need_gradients(output: Any) -> Iterator[torch.Tensor]:
    for leaf in tree_leaves(output):
        if isinstance(leaf, torch.Tensor) and leaf.requires_grad and not leaf.is_leaf:
            yield leaf
