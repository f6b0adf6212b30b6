"""ZeRO, stage 3: every rank has its share of everything, and borrows a layer's weights while it computes with them.

To be read after `kit.parallel.zero`, which has the figures, and `kit.parallel.lent`. Letters: L layers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from kit.parallel.flat import Group, alike
from kit.parallel.gradients import ShareGradients
from kit.parallel.layers import layers_of, owners
from kit.parallel.lent import LentFlat
from kit.parallel.refusals import not_called
from kit.parallel.sharded import Part, Sharded


class Layer:
    """What is gathered and freed together: a module's own parameters, by kind (usually one flat, and that trained)."""

    def __init__(self, flats: list[LentFlat], parts: list[Part]) -> None:
        self.flats, self.parts = flats, parts
        self.following: Layer | None = None  # whose forward began after this one's
        self.preceding: Layer | None = None  # whose forward ended before this one's: its backward comes next
        self.called = False  # ever

    def fetch(self) -> None:
        """Begin to gather."""
        for flat in self.flats:
            flat.fetch()

    def gather(self) -> None:
        """Have the weights here."""
        for flat in self.flats:
            flat.gather()

    def keep_written(self) -> None:
        """This rank's rows of the weights that are here become its shares."""
        for flat in self.flats:
            flat.share.copy_(flat.whole[flat.rank])  # (P/n,)

    def free(self) -> None:
        """Let go of them."""
        for flat in self.flats:
            flat.free()


class ZeroStage3(Sharded):
    """Weights, gradients and optimizer are sharded; a layer is gathered for its forward, and again for its backward.

    Hooks on the modules gather a layer before its forward and free it when the next one begins; gather it before its
    backward, then sum its gradients and free it. What belongs to no layer (embeddings, the last norm), or to several
    (tied weights), is the root's, and is here throughout forward and throughout backward. Each rank must run the same
    layers in the same order.

    layers: modules inside `module`, beside each other, that are called; None: as `layers_of` finds them. What they are
    given and return may be tuples, lists, dicts and data classes of tensors. prefetch: begin to gather the next
    layer before this one computes, so that two are here. keep_last: leave the last layer for backward, which begins
    with it: 2L - 1 gathers in place of 2L. The other arguments are those of `Sharded`.
    """

    def __init__(
        self,
        module: nn.Module,
        group: Group = None,
        *,
        layers: Sequence[nn.Module] | None = None,
        prefetch: bool = True,
        keep_last: bool = True,
        **options: Any,
    ) -> None:
        super().__init__(module, group, **options)
        self.prefetch, self.keep_last = prefetch, keep_last
        modules = layers_of(module) if layers is None else list(layers)
        owned = owners(self.names, modules, root=module)
        self.layers = [self._made(one, names) for one, names in zip([*modules, module], owned, strict=True)]
        self.root = self.layers[-1]
        self._entered: Layer | None = None
        self._left: Layer | None = None
        self._lingering: Layer | None = None  # its forward is over, and it is still here

    def _made(self, module: nn.Module, names: dict[nn.Parameter, str]) -> Layer:
        flats, parts = [], []
        for kind in alike(names):
            first = next(iter(kind))
            flats.append(LentFlat(kind, self.group, self.dtype if first.is_floating_point() else None))
            if first.requires_grad:
                parts.append(self.make_part(flats[-1], ShareGradients))
        layer = Layer(flats, parts)
        module.register_forward_pre_hook(partial(self._before_forward, layer), with_kwargs=True)
        module.register_forward_hook(partial(self._after_forward, layer))
        return layer

    # forward

    def _before_forward(self, layer: Layer, module: nn.Module, args: Any, kwargs: Any) -> None:
        layer.called = True
        if self._in_backward:  # recomputing activations: backward frees it
            layer.gather()
            return
        if self._lingering is layer:  # wanted again
            self._lingering = None
        self._linger(None)
        if layer is self.root:
            self._left = None
        elif self._entered is not None:
            self._entered.following = layer
        self._entered = layer
        layer.gather()
        if self.prefetch and layer.following is not None:
            layer.following.fetch()
        for x in tensors_in((args, kwargs)):
            if x.requires_grad and not x.is_leaf:
                x.register_hook(partial(self._after_backward, layer))  # the last gradient that is computed here

    def _after_forward(self, layer: Layer, module: nn.Module, args: Any, output: Any) -> None:
        if self._in_backward:
            return
        for y in tensors_in(output):
            if y.grad_fn is not None:
                y.grad_fn.register_prehook(partial(self._before_backward, layer))  # the first that computes here
        layer.preceding, self._left = self._left, layer
        if layer.flats:
            self._linger(layer)
        if layer is self.root and not (self.keep_last and torch.is_grad_enabled()):
            self._linger(None)

    def _linger(self, layer: Layer | None) -> None:
        """Let this layer stay for a while, and free the one that did."""
        if self._lingering is not None:
            self._lingering.free()
        self._lingering = layer

    # backward

    def _before_backward(self, layer: Layer, gradients: Any) -> None:
        self.in_backward()
        layer.gather()
        if self.prefetch and layer.preceding is not None:
            layer.preceding.fetch()

    def _after_backward(self, layer: Layer, gradient: Any = None) -> None:
        for part in layer.parts if self._wanted else []:
            if any(p.grad is not None for p in part.flat.params):
                self.begin_sum(part)
        layer.free()

    def end_of_backward(self) -> None:
        """The same for layers whose inputs have no gradient, the root among them; then wait for the last sum."""
        for layer in self.layers:
            if not layer.called and any(p.grad is not None for part in layer.parts for p in part.flat.params):
                raise not_called([name for part in layer.parts for name in part.flat.names])
            self._after_backward(layer)
        self.end_sum()
        self._lingering = None

    # the rest

    def all_stepped(self) -> None:
        """What is still here has the old weights."""
        self._free_all()

    @contextmanager
    def whole(self) -> Iterator[nn.Module]:
        """The module with all its parameters whole, to look at, to save, or to load into.

        Every rank of the group must enter, and write the same.
        """
        for layer in self.layers:
            layer.gather()
        try:
            yield self.module
            for layer in self.layers:
                layer.keep_written()
            self.keep_written()
        finally:
            self._free_all()

    def weights(self) -> list[torch.Tensor]:
        """This rank's shares."""
        return [flat.share for layer in self.layers for flat in layer.flats]

    def gathered(self) -> list[torch.Tensor]:
        """The layers that are here."""
        return [flat.whole for layer in self.layers for flat in layer.flats]

    def _free_all(self) -> None:
        for layer in self.layers:
            layer.free()
        self._lingering = None


def tensors_in(given: Any) -> list[torch.Tensor]:
    """The tensors in tuples, lists and dicts, and in the attributes of other objects (data classes) among them."""
    found = []
    for leaf in tree_leaves(given):
        inside = [leaf] if isinstance(leaf, torch.Tensor) else tree_leaves(list(getattr(leaf, "__dict__", {}).values()))
        found += [x for x in inside if isinstance(x, torch.Tensor)]
    return found
