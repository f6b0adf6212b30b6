"""Layers: what of a model stage 3 gathers and frees together, and which parameters each of them has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from kit.topics.zero.reference.flat import FlatShardedParameter, Names
from kit.topics.zero.reference.optimizer import Unit


@dataclass(eq=False)
class Layer:
    """A module's own parameters, by kind (usually one flat parameter, and that trained), and the layers beside it."""

    flats: list[FlatShardedParameter] = field(default_factory=list)
    units: list[Unit] = field(default_factory=list)  # of the flats that are trained
    following: Layer | None = None  # whose forward began after this one's
    preceding: Layer | None = None  # whose forward ended before this one's: its backward comes next
    called: bool = False  # at least once

    def prefetch(self) -> None:
        """Begin to gather its weights."""
        for flat in self.flats:
            flat.prefetch()

    def gather(self) -> None:
        """Have its weights here."""
        for flat in self.flats:
            flat.gather()

    def free(self) -> None:
        """Give their memory back."""
        for flat in self.flats:
            flat.free()


def layers_of(module: nn.Module) -> list[nn.Module]:
    """The modules that stand in a ModuleList or a Sequential, outermost ones; where there are none, the children.

    Those without parameters are left out.
    """
    found = list(_in_lists(module)) or list(module.children())
    return [layer for layer in found if any(True for _ in layer.parameters())]


def owners(names: Names, layers: Sequence[nn.Module], root: nn.Module) -> list[Names]:
    """For each layer the parameters, with their names, that are its alone; behind them what is the root's.

    The root's are those of no layer, and those that several layers share. Raises ValueError for a layer that is not
    inside the root, or is inside another.
    """
    inside = [set(layer.modules()) for layer in layers]
    for number, layer in enumerate(layers):
        if layer is root or layer not in set(root.modules()):
            raise ValueError(f"layers are modules inside the one that is sharded, and this {_kind(layer)} is not")
        if any(layer in others for other, others in enumerate(inside) if other != number):
            raise ValueError(f"layers stand beside each other, and this {_kind(layer)} is in another, or there twice")
    users = {p: [number for number, layer in enumerate(layers) if p in set(layer.parameters())] for p in names}
    alone = [{p: name for p, name in names.items() if users[p] == [number]} for number in range(len(layers))]
    return [*alone, {p: name for p, name in names.items() if len(users[p]) != 1}]


def by_kind(names: Names) -> list[Names]:
    """Parameters sorted into those that can share a flat buffer: one dtype and device, all trained or all frozen."""
    kinds: dict[tuple[torch.dtype, torch.device, bool], Names] = {}
    for p, name in names.items():
        kinds.setdefault((p.dtype, p.device, p.requires_grad), {})[p] = name
    return list(kinds.values())


def tensors_in(given: Any) -> list[torch.Tensor]:
    """The tensors in tuples, lists and dicts, and in the attributes of other objects (data classes) among them."""
    found = []
    for leaf in tree_leaves(given):
        inside = [leaf] if isinstance(leaf, torch.Tensor) else tree_leaves(list(getattr(leaf, "__dict__", {}).values()))
        found += [x for x in inside if isinstance(x, torch.Tensor)]
    return found


def _in_lists(module: nn.Module) -> Iterator[nn.Module]:
    for child in module.children():
        if isinstance(module, nn.ModuleList | nn.Sequential) and not isinstance(child, nn.ModuleList):
            yield child
        else:
            yield from _in_lists(child)


def _kind(module: nn.Module) -> str:
    return type(module).__name__
