"""ZeRO's stages 1, 2 and 3: what is sent when, while backward goes on, for any module. Read `by_hand` first.

Letters: P parameters of a bucket or layer, n ranks, L layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import Parameter

from kit.topics.data_parallel.reference.buckets import assign, check_sizes
from kit.topics.data_parallel.reference.built_in import Group
from kit.topics.data_parallel.reference.gradient_owner import weak_hook
from kit.topics.data_parallel.reference.validation import twice
from kit.topics.zero.reference.by_hand import all_gather
from kit.topics.zero.reference.flat import (
    FlatParameter,
    FlatShardedParameter,
    FullGradients,
    Gradients,
    Names,
    ShardedGradients,
)
from kit.topics.zero.reference.layers import Layer, by_kind, layers_of, owners, tensors_in
from kit.topics.zero.reference.optimizer import Unit, ZeroOptimizer
from kit.topics.zero.reference.validation import not_called

MIB = 2**20


class ZeroStage1(ZeroOptimizer):
    """The optimizer is sharded: reduce-scatter the gradients, step one shard, all-gather the weights.

    Together they send what an all-reduce sends. Buckets of gradients are summed while backward goes on, in one order on
    every rank, the last parameters first, whatever order autograd has there; and a bucket of weights is gathered while
    the next one is stepped.

    bucket_bytes: of weights, and so of gradients, in one bucket, at most; the first has 1 MiB at most, because nothing
    travels before it is full. The other arguments are those of `ZeroOptimizer`.
    """

    gradients: type[Gradients] = FullGradients

    def __init__(self, module: nn.Module, group: Group = None, *, bucket_bytes: int = 25 * MIB, **options: Any) -> None:
        check_sizes(bucket_bytes)
        super().__init__(module, group, **options)
        self.unit_of: dict[Parameter, Unit] = {}
        for params in assign(self.trained, bucket_bytes, min(bucket_bytes, MIB)):
            flat = FlatParameter({p: self.names[p] for p in params}, group, self.dtype)
            self.unit_of |= dict.fromkeys(params, self.add_unit(flat, self.gradients))
        for p in self.trained:
            p.register_post_accumulate_grad_hook(weak_hook(self._arrived))
        for p in self.frozen:
            dist.broadcast(p.data, group=group, group_src=0)
            p.data = p.data.to(self.dtype) if self.dtype is not None and p.is_floating_point() else p.data
        self._gathering: list[dist.Work] = []
        self.forget_backward()

    def _arrived(self, p: Parameter) -> None:
        """A gradient is in `p.grad`: begin the sums whose turn it is."""
        self.note_backward()
        unit = self.unit_of[p]
        if self._wanted and p not in self._missing[unit]:
            raise twice(self.names[p])
        unit.gradients.arrived(p)
        self._missing[unit].discard(p)
        while self._wanted and self._to_sum and not self._missing[self._to_sum[0]]:
            self.begin_sum(self._to_sum.pop(0))

    def end_of_backward(self) -> None:
        """Sum the buckets in which a parameter was not used, and wait."""
        for unit in self._to_sum if self._wanted else []:
            self.begin_sum(unit)
        self.end_sum()

    def forget_backward(self) -> None:
        """The next backward pass begins with everything still to come."""
        super().forget_backward()
        self._to_sum = list(self.units)
        self._missing = {unit: set(unit.flat.params) for unit in self.units}

    def stepped(self, unit: Unit) -> None:
        """Begin to gather what the others have stepped."""
        self._gathering.append(all_gather(unit.flat.full, unit.flat.shard, self.group))  # (n, P/n)

    def weights_changed(self) -> None:
        """Wait for what is being gathered."""
        for work in self._gathering:
            work.wait()
        self._gathering.clear()

    def weights(self) -> list[torch.Tensor]:
        """All parameters."""
        return [*(unit.flat.full for unit in self.units), *self.frozen]


class ZeroStage2(ZeroStage1):
    """The optimizer and the gradients are sharded: full gradients are gone as soon as their bucket has been summed.

    So every micro-batch is summed; inside no_sync gradients stay, and less is sent.
    """

    gradients: type[Gradients] = ShardedGradients


class ZeroStage3(ZeroOptimizer):
    """Weights, gradients and optimizer are sharded; a layer is gathered for its forward, and again for its backward.

    Hooks on the modules gather a layer before its forward and free it when the next one begins; gather it before its
    backward, then sum its gradients and free it. What belongs to no layer (embeddings, the last norm), or to several
    (tied weights), is the root's, and is here throughout forward and throughout backward. Each rank must run the same
    layers in the same order.

    layers: modules inside `module`, beside each other, that are called; None: as `layers_of` finds them. What they are
    given and return may be tuples, lists, dicts and data classes of tensors. prefetch: begin to gather the next
    layer before this one computes, so that two are here. keep_last: leave the last layer for backward, which begins
    with it: 2L - 1 gathers in place of 2L. The other arguments are those of `ZeroOptimizer`.
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
        self.layers = [self._layer(one, names) for one, names in zip([*modules, module], owned, strict=True)]
        self.root = self.layers[-1]
        self._entered: Layer | None = None  # whose forward began last
        self._left: Layer | None = None  # whose forward ended last
        self._kept: Layer | None = None  # whose forward has ended, and whose weights are still here

    def _layer(self, module: nn.Module, names: Names) -> Layer:
        layer = Layer()
        for kind in by_kind(names):
            p = next(iter(kind))
            layer.flats.append(FlatShardedParameter(kind, self.group, self.dtype if p.is_floating_point() else None))
            if p.requires_grad:
                layer.units.append(self.add_unit(layer.flats[-1], ShardedGradients))
        module.register_forward_pre_hook(partial(self._before_forward, layer), with_kwargs=True)
        module.register_forward_hook(partial(self._after_forward, layer))
        return layer

    # ------------------------------------------------------------------------------------------------------- forward

    def _before_forward(self, layer: Layer, module: nn.Module, args: Any, kwargs: Any) -> None:
        layer.called = True
        if self._in_backward:  # recomputing activations: backward frees it
            layer.gather()
            return
        if self._kept is layer:  # called twice in a row
            self._kept = None
        self._keep(None)
        if layer is self.root:
            self._left = None
        elif self._entered is not None:
            self._entered.following = layer
        self._entered = layer
        layer.gather()
        if self.prefetch and layer.following is not None:
            layer.following.prefetch()
        for x in tensors_in((args, kwargs)):
            if x.requires_grad and not x.is_leaf:
                x.register_hook(partial(self._after_backward, layer))  # last of the layer in backward

    def _after_forward(self, layer: Layer, module: nn.Module, args: Any, output: Any) -> None:
        if self._in_backward:
            return
        for y in tensors_in(output):
            if y.grad_fn is not None:
                y.grad_fn.register_prehook(partial(self._before_backward, layer))  # first of the layer in backward
        layer.preceding, self._left = self._left, layer
        if layer.flats:
            self._keep(layer)
        if layer is self.root and not (self.keep_last and torch.is_grad_enabled()):
            self._keep(None)

    def _keep(self, layer: Layer | None) -> None:
        """Leave this layer here until the next one begins, and free the one that was kept so far."""
        if self._kept is not None:
            self._kept.free()
        self._kept = layer

    # ------------------------------------------------------------------------------------------------------- backward

    def _before_backward(self, layer: Layer, gradients: Any) -> None:
        self.note_backward()
        layer.gather()
        if self.prefetch and layer.preceding is not None:
            layer.preceding.prefetch()

    def _after_backward(self, layer: Layer, gradient: Any = None) -> None:
        for unit in layer.units if self._wanted else []:
            if any(p.grad is not None for p in unit.flat.params):
                self.begin_sum(unit)
        layer.free()

    def end_of_backward(self) -> None:
        """Sum and free the layers whose inputs have no gradient, the root among them; then wait for the last sum."""
        for layer in self.layers:
            if not layer.called and any(p.grad is not None for unit in layer.units for p in unit.flat.params):
                raise not_called([name for unit in layer.units for name in unit.flat.names])
            self._after_backward(layer)
        self.end_sum()
        self._kept = None

    # ------------------------------------------------------------------------------------------------ between two steps

    def weights_changed(self) -> None:
        """What is still here has the old weights."""
        for layer in self.layers:
            layer.free()
        self._kept = None

    def gather_parameters(self) -> None:
        """All layers at once."""
        for layer in self.layers:
            layer.gather()

    def keep_written(self) -> None:
        """Row r of what was gathered becomes this rank's shard."""
        for flat in self._flats():
            flat.shard.copy_(flat.full[flat.rank])  # (P/n,)
        super().keep_written()

    def weights(self) -> list[torch.Tensor]:
        """This rank's shards."""
        return [flat.shard for flat in self._flats()]

    def gathered(self) -> list[torch.Tensor]:
        """The layers that are here."""
        return [flat.full for flat in self._flats()]

    def _flats(self) -> list[FlatShardedParameter]:
        return [flat for layer in self.layers for flat in layer.flats]
