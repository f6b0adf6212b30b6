"""What a person can do wrong with a wrapped or a sharded model, and the sentences that say so."""

from __future__ import annotations

from collections.abc import Iterable
from math import isfinite
from typing import Any

import torch
from torch import nn
from torch.nn import Parameter

from kit.parallel.adamw import DEFAULTS
from kit.parallel.charge import is_sharded

Names = dict[Parameter, str]


def check_module(module: Any) -> None:
    """Raises ValueError for what is no module or is sharded, has no sizes yet, or has gradients that are sparse."""
    if not isinstance(module, nn.Module):
        what = f"the class {module.__name__}" if isinstance(module, type) else f"a {type(module).__name__}"
        raise ValueError(f"give a module, an instance of torch.nn.Module, not {what}")
    if any(isinstance(p, nn.UninitializedParameter) for p in module.parameters()):
        raise ValueError("a lazy module has no sizes before its first forward pass: call it once, then wrap it")
    if any(is_sharded(p) for p in module.parameters()):
        raise ValueError("this module is sharded already, and its weights are shares: make it anew, then wrap it")
    for name, one in module.named_modules():
        if isinstance(one, nn.Embedding | nn.EmbeddingBag) and one.sparse:
            raise ValueError(
                f"{name or 'this embedding'} makes sparse gradients, and flat buffers are dense: make it"
                " with sparse=False"
            )


def twice(name: str) -> RuntimeError:
    """A gradient that comes in two parts in one backward pass, where the first is under way already."""
    return RuntimeError(
        f"{name} got a gradient twice in one backward pass, and the first was on its way to the other ranks: where"
        " checkpoint() recomputes a module that is used more than once, pass use_reentrant=False"
    )


def thawed(names: list[str]) -> RuntimeError:
    """Parameters that want a gradient now, and did not when the module was wrapped."""
    return RuntimeError(
        f"{listed(names)} wants a gradient now and did not when the module was wrapped, so each rank would train it"
        " apart: settle what is trained (requires_grad_) first, then wrap"
    )


def check_choices(names: Names, rank: int, precision: str, unused: str) -> None:
    """Raises ValueError for a rank outside the group, a model that cannot be trained so, or a word nobody knows."""
    if rank < 0:
        raise ValueError("this rank is not in the group it was given: shard the model on members of the group only")
    if precision not in ("fp32", "mixed"):
        raise ValueError(f"precision={precision!r}: choose 'fp32' or 'mixed'")
    if unused not in ("error", "zeros"):
        raise ValueError(f"unused={unused!r}: choose 'error' or 'zeros'")
    if not any(p.requires_grad for p in names):
        raise ValueError("no parameter of this module wants a gradient: there is nothing to train")
    numbers = [name for p, name in names.items() if p.requires_grad and p.is_complex()]
    if numbers:
        raise ValueError(f"AdamW here is for real numbers, and {listed(numbers)} is complex: train view_as_real of it")
    halves = [name for p, name in names.items() if p.requires_grad and p.element_size() < 4]
    if halves and precision == "fp32":
        raise ValueError(f"16 bits swallow small steps, and so much has {listed(halves)}: pass precision='mixed'")


def grouped(names: Names, groups: Iterable[dict[str, Any]] | None, options: dict[str, Any]) -> list[dict[str, Any]]:
    """Parameter groups as torch's optimizers have them, each with all of AdamW's options.

    Raises ValueError for an option AdamW does not have or cannot use, a trained parameter in no group or in two, or
    one of another model.
    """
    trained = [p for p in names if p.requires_grad]
    groups = None if groups is None else list(groups)
    if not all(isinstance(group, dict) and "params" in group for group in groups or []):
        raise ValueError("groups are dicts in a list: [{'params': [...], 'weight_decay': 0.1}, ...]")
    made = [{**DEFAULTS, **options, **group} for group in groups or [{"params": trained}]]
    unknown = {key for group in made for key in group} - {"params", *DEFAULTS}
    if unknown:
        raise ValueError(f"AdamW takes no {listed(sorted(unknown))} here, only {', '.join(DEFAULTS)}")
    for group in made:
        params = group["params"]
        group["params"] = [params] if isinstance(params, torch.Tensor) else list(params)
        check_options(group)
    inside = {p for group in made for p in group["params"]}
    if len(inside) < sum(len(group["params"]) for group in made):
        raise ValueError("a parameter is in a group twice, or in two: which options are to count?")
    if inside - names.keys():
        raise ValueError("a group names a parameter that is not in the model: make the groups from the same module")
    left = [names[p] for p in trained if p not in inside]
    if left:
        raise ValueError(f"{listed(left)} is trained but in no group: put it into one, or freeze it")
    return made


def check_options(group: dict[str, Any]) -> None:
    """Raises ValueError for a number that AdamW cannot use."""
    try:
        smallest = min(float(group[key]) for key in ("lr", "eps", "weight_decay"))
        first, second = map(float, group["betas"])
    except (TypeError, ValueError):
        smallest = first = second = float("nan")
    if not (0 <= smallest and isfinite(smallest) and 0 <= first < 1 and 0 <= second < 1):
        given = ", ".join(f"{key}={group[key]!r}" for key in DEFAULTS)
        raise ValueError(f"lr, eps and weight_decay are numbers from 0 on, betas two from 0 to below 1, not {given}")


def no_gradient(rank: int, names: list[str], kept_back: bool, frozen: bool = False) -> RuntimeError:
    """Parameters without a summed gradient when the optimizer steps.

    kept_back: they have one that was not summed. frozen: some were frozen since. No names: nobody has a gradient.
    """
    if not names:
        return RuntimeError(f"rank {rank} has no gradient at all: call backward() before step()")
    if kept_back:
        return RuntimeError(
            f"rank {rank} has kept back the gradients of {listed(names)}: the last backward pass before a step stands"
            " outside no_sync, and sums them"
        )
    if frozen:
        return RuntimeError(
            f"rank {rank} has no gradient for {listed(names)}, frozen since it was sharded: settle what is trained"
            " first, then shard; or pass unused='zeros'"
        )
    return RuntimeError(
        f"rank {rank} has no gradient for {listed(names)}: the loss does not depend on it. Freeze what is never used"
        " (requires_grad_(False), before sharding); where it is used now and then, or on some ranks only, pass"
        " unused='zeros'"
    )


def refuse_not_finite(rank: int, params: Iterable[Parameter], names: Iterable[str]) -> None:
    """Raises FloatingPointError if a gradient has a NaN or an infinity, with its name and the rank."""
    for p, name in zip(params, names, strict=True):
        if p.grad is not None and not bool(torch.isfinite(p.grad).all()):
            what = "a NaN" if bool(torch.isnan(p.grad).any()) else "an infinity"
            raise FloatingPointError(
                f"rank {rank} has {what} in its own gradient of {name}, before it was added to the other ranks': look"
                " at this rank's samples and its loss"
            )


def not_called(names: list[str]) -> RuntimeError:
    """Stage 3 lends weights to a layer that is called, and these were used with their layer never called."""
    return RuntimeError(
        f"{listed(names)} was used without a call of its layer, so its weights were not here (NaN): pass layers=[...]"
        " of modules that are called, as layer(x); layers=[] makes one layer of all"
    )


def listed(names: list[str]) -> str:
    """The first three, and dots if there are more."""
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
