"""What has been learnt, the same whoever holds it: weights and AdamW's two moments, whole and by the model's own names.

So what one layout has saved another can go on from. Keys: 'weight tokens.weight', 'exp_avg blocks.0.mlp.up.weight'.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import Parameter

from kit.topics.tensor.reference.by_hand import shard
from kit.topics.tensor.reference.layers import whole
from kit.topics.tensor.reference.regions import Draws

Tensor = torch.Tensor
Held = dict[str, Tensor]  # 'weight', 'exp_avg' and 'exp_avg_sq', each shaped like the parameter
THIRDS = ("q", "k", "v")
OTHERWISE = {"positions": "positions.weight"}
IN_THIRDS, AS_ONE = ".attention.{}.", ".attention.qkv."  # tensor parallel layers have three matrices in place of one


def names_of(modules: Iterable[nn.Module], twin: Parameter | None) -> dict[str, Parameter]:
    """Parameters of parts of a model by their names in the whole, each once.

    A head that is the embedding's matrix, `twin`, has none of its own, and tensor parallel layers hold the positions
    without a module.
    """
    named = [pair for module in modules for pair in module.named_parameters()]
    return {"tokens.weight" if p is twin else OTHERWISE.get(name, name): p for name, p in named}


def gathered(names: Mapping[str, Parameter], held: Mapping[Parameter, Held], group: dist.ProcessGroup | None) -> Held:
    """Whole tensors by key, of what each rank of a tensor-parallel group holds (None: nothing is cut). All call."""
    found: Held = {}
    for name, p in names.items():
        for kind, x in held[p].items():
            found[f"{kind} {name}"] = x.detach().clone() if group is None else whole(p, x.detach(), group).clone()
    for key in [key for key in found if IN_THIRDS.format("q") in key]:
        parts = [found.pop(_third(key, third)) for third in THIRDS]
        found[key.replace(IN_THIRDS.format("q"), AS_ONE)] = torch.cat(parts)
    return found


def scattered(
    names: Mapping[str, Parameter], state: Mapping[str, Tensor], kinds: Iterable[str], group: dist.ProcessGroup | None
) -> dict[Parameter, Held]:
    """The other way: of whole tensors by key what this rank holds of them."""
    parted = dict(state)
    for key in [key for key in parted if AS_ONE in key]:
        for third, x in zip(THIRDS, parted.pop(key).chunk(3), strict=True):
            parted[key.replace(AS_ONE, IN_THIRDS.format(third))] = x
    chosen = parted if any(IN_THIRDS.format("q") in name for name in names) else state
    return {p: {kind: _part(p, chosen[f"{kind} {name}"], group) for kind in kinds} for name, p in names.items()}


class RandomStates:
    """torch's generator on the host, the one of the device, and those that a tensor-parallel module has beside them."""

    def __init__(self, device: torch.device, draws: Iterable[Draws] = ()) -> None:
        self.device, self.draws = device, list(draws)

    def read(self) -> list[Tensor]:
        found = [torch.get_rng_state()]
        if self.device.type != "cpu":
            found.append(self._of_device().get_rng_state())
        for draws in self.draws:
            with draws.on(self.device):
                found.append((torch if self.device.type == "cpu" else self._of_device()).get_rng_state())
        return found

    def write(self, states: Sequence[Tensor]) -> None:
        coming = iter(states)
        torch.set_rng_state(next(coming))
        if self.device.type != "cpu":
            self._of_device().set_rng_state(next(coming))
        for draws in self.draws:
            with draws.on(self.device):
                (torch if self.device.type == "cpu" else self._of_device()).set_rng_state(next(coming))

    def _of_device(self) -> Any:
        return torch.get_device_module(self.device)


def _part(p: Parameter, x: Tensor, group: dist.ProcessGroup | None) -> Tensor:
    return shard(x, p.cut, group) if group is not None and hasattr(p, "cut") else x


def _third(key: str, third: str) -> str:
    return key.replace(IN_THIRDS.format("q"), IN_THIRDS.format(third))
