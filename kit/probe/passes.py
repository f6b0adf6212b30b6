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
from typing import Any

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


class Passes:
    """Watches one thread between `start` and `stop`. told: hears of every beginning and end, as it comes."""

    def __init__(self, told: Told = lambda what, whom: None) -> None:
        self.facts: list[Pass] = []
        self.computed: list[tuple[int, int]] = []  # ns, of each backward pass: (all gradients were there, it was over)
        self._told = told
        self._thread = threading.get_ident()
        self._depth = {"forward": 0, "step": 0}  # modules within modules, optimizers within optimizers
        self._began: dict[str, int] = {}
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
        at_end_of_backward(lambda: at_end_of_backward(partial(self._backward_ended, time.monotonic_ns())))

    def _backward_ended(self, computed: int) -> None:
        """Called after what others had put off to the end of the pass: there, a reducer waits for its buckets."""
        self._end("backward", None)
        self.computed.append((computed, self.facts[-1].end))

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
        self._began[name] = time.monotonic_ns()
        self._told(f"{name} begins", whom)

    def _end(self, name: str, whom: Any) -> None:
        start, end = self._began[name], time.monotonic_ns()
        before = self.facts[-1] if self.facts else None
        if before is not None and before.name == name == "forward":  # modules called one after the other
            self.facts[-1] = Pass(name, before.start, end)
        else:
            self.facts.append(Pass(name, start, end))
        self._told(f"{name} ends", whom)


def _that_need_gradients(output: Any) -> Iterator[torch.Tensor]:
    for leaf in tree_leaves(output):
        if isinstance(leaf, torch.Tensor) and leaf.requires_grad and not leaf.is_leaf:
            yield leaf
