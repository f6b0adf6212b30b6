"""What a person can do wrong with a sharded model, and the errors that say what to do instead."""

from __future__ import annotations

from collections.abc import Iterable
from math import isfinite
from typing import Any

import torch
from torch.nn import Parameter

from kit.topics.data_parallel.reference.validation import listed, without_gradient
from kit.topics.zero.reference.adamw import DEFAULTS
from kit.topics.zero.reference.flat import Names


def check_choices(names: Names, rank: int, precision: str, unused: str) -> None:
    """Raises ValueError for a rank outside the group, parameters AdamW cannot train, or an unknown word."""
    if rank < 0:
        raise ValueError("this rank is not in the group it was given: shard the model on members of the group only")
    if precision not in ("fp32", "mixed"):
        raise ValueError(f"precision={precision!r}: choose 'fp32' or 'mixed'")
    if unused not in ("error", "zeros"):
        raise ValueError(f"unused={unused!r}: choose 'error' or 'zeros'")
    trained = {p: name for p, name in names.items() if p.requires_grad}
    if not trained:
        raise ValueError("no parameter of this module wants a gradient: there is nothing to train")
    if numbers := [name for p, name in trained.items() if p.is_complex()]:
        raise ValueError(f"AdamW here is for real numbers, and {listed(numbers)} is complex: train view_as_real of it")
    halves = [name for p, name in trained.items() if p.element_size() < 4]
    if halves and precision == "fp32":
        raise ValueError(
            f"{listed(halves)} has 16 bits, in which small steps are rounded away: pass precision='mixed', which steps"
            " fp32 weights and rounds them afterwards"
        )


def parameter_groups(
    names: Names, groups: Iterable[dict[str, Any]] | None, options: dict[str, Any]
) -> list[dict[str, Any]]:
    """Parameter groups as torch's optimizers have them, each with all of AdamW's options.

    Raises ValueError for an option AdamW does not have or cannot use, a trained parameter in no group or in two, or
    one of another model.
    """
    trained = [p for p in names if p.requires_grad]
    groups = None if groups is None else list(groups)
    if not all(isinstance(group, dict) and "params" in group for group in groups or []):
        raise ValueError("groups are dicts in a list: [{'params': [...], 'weight_decay': 0.1}, ...]")
    made = [{**DEFAULTS, **options, **group} for group in groups or [{"params": trained}]]
    if unknown := {key for group in made for key in group} - {"params", *DEFAULTS}:
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
    if left := [names[p] for p in trained if p not in inside]:
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


def check_finite(rank: int, params: Iterable[Parameter], names: Names) -> None:
    """Raises FloatingPointError if a gradient has a NaN or an infinity, with its name and the rank."""
    for p in params:
        if p.grad is not None and not bool(torch.isfinite(p.grad).all()):
            what = "a NaN" if bool(torch.isnan(p.grad).any()) else "an infinity"
            raise FloatingPointError(
                f"rank {rank} has {what} in its own gradient of {names[p]}, before it was added to the other ranks':"
                " look at this rank's samples and its loss"
            )


def no_gradient(rank: int, missing: list[Parameter], names: Names, nowhere: bool) -> RuntimeError:
    """Parameters whose gradients have not been summed when the optimizer steps. nowhere: no parameter has one."""
    unsummed = [names[p] for p in missing]
    if any(p.grad is not None for p in missing):
        return RuntimeError(
            f"rank {rank} has kept back the gradients of {listed(unsummed)}: the last backward pass before a step"
            " stands outside no_sync, and sums them"
        )
    if nowhere and all(p.requires_grad for p in missing):
        return RuntimeError(f"rank {rank} has no gradient at all: call backward() before step()")
    return without_gradient(rank, unsummed, frozen=not all(p.requires_grad for p in missing))


def not_called(names: list[str]) -> RuntimeError:
    """Stage 3 gathers the weights of a layer that is called, and these were used with their layer never called."""
    return RuntimeError(
        f"{listed(names)} was used without a call of its layer, so its weights were not here (NaN): pass layers=[...]"
        " of modules that are called, as layer(x); layers=[] makes one layer of all"
    )
