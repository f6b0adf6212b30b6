"""What a person can do wrong with a sharded model, and the sentences that say so."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.nn import Parameter

from kit.parallel.adamw import DEFAULTS

Names = dict[Parameter, str]


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
    halves = [name for p, name in names.items() if p.requires_grad and p.element_size() < 4]
    if halves and precision == "fp32":
        raise ValueError(f"16 bits swallow small steps, and so much has {listed(halves)}: pass precision='mixed'")


def grouped(names: Names, groups: Iterable[dict[str, Any]] | None, options: dict[str, Any]) -> list[dict[str, Any]]:
    """Parameter groups as torch's optimizers have them, each with all of AdamW's options.

    Raises ValueError for an option AdamW does not have, a trained parameter in no group, or one of another model.
    """
    trained = [p for p in names if p.requires_grad]
    made = [{**DEFAULTS, **options, **group} for group in groups or [{"params": trained}]]
    unknown = {key for group in made for key in group} - {"params", *DEFAULTS}
    if unknown:
        raise ValueError(f"AdamW takes no {listed(sorted(unknown))} here, only {', '.join(DEFAULTS)}")
    for group in made:
        group["params"] = list(group["params"])
    inside = {p for group in made for p in group["params"]}
    if inside - names.keys():
        raise ValueError("a group names a parameter that is not in the model: make the groups from the same module")
    left = [names[p] for p in trained if p not in inside]
    if left:
        raise ValueError(f"{listed(left)} is trained but in no group: put it into one, or freeze it")
    return made


def no_gradient(rank: int, names: list[str], kept_back: bool) -> RuntimeError:
    """Parameters without a summed gradient when the optimizer steps. kept_back: they have one that was not summed."""
    if kept_back:
        return RuntimeError(
            f"rank {rank} has kept back the gradients of {listed(names)}: the last backward pass before a step stands"
            " outside no_sync, and sums them"
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


def listed(names: list[str]) -> str:
    """The first three, and dots if there are more."""
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
