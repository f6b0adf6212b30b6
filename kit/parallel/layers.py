"""Which modules of a model are layers, to be gathered and freed one at a time, and whose each parameter is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torch import nn
from torch.nn import Parameter


def layers_of(module: nn.Module) -> list[nn.Module]:
    """The modules that stand in a ModuleList or a Sequential, outermost ones; where there are none, the children.

    Those without parameters are left out.
    """
    found = list(_in_lists(module)) or list(module.children())
    return [layer for layer in found if any(True for _ in layer.parameters())]


def owners(names: dict[Parameter, str], layers: Sequence[nn.Module], root: nn.Module) -> list[dict[Parameter, str]]:
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


def _in_lists(module: nn.Module) -> Iterator[nn.Module]:
    for child in module.children():
        if isinstance(module, nn.ModuleList | nn.Sequential) and not isinstance(child, nn.ModuleList):
            yield child
        else:
            yield from _in_lists(child)


def _kind(module: nn.Module) -> str:
    return type(module).__name__
