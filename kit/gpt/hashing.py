"""Where two trainings part: hashes of their tensors, step by step.

Losses of ranks that have come apart agree for a long time; their weights do not for a single step. A hash says so in
eight characters, whatever the size of the tensor.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import torch

Hashes = Mapping[str, str]  # name -> hash, in the tensors' order


def hashes(tensors: Mapping[str, torch.Tensor]) -> dict[str, str]:
    """Of each tensor eight characters that are the same for the same bits, shape and dtype, wherever it lies."""
    return {name: _hash(x.detach().cpu().contiguous()) for name, x in tensors.items()}


def _hash(x: torch.Tensor) -> str:
    content = x.reshape(-1).view(torch.uint8).numpy().tobytes()
    return hashlib.sha256(f"{x.dtype} {tuple(x.shape)}".encode() + content).hexdigest()[:8]


def first_difference(runs: Mapping[str, Sequence[Hashes]]) -> str:
    """Which tensor is the first to differ, and when, in one sentence; '' where none does.

    runs: name of a rank or a run -> its hashes, before the first step and after each. What one of them holds alone is
    left out. Raises ValueError for runs of different lengths.
    """
    (first, ours), *others = runs.items()
    for other, theirs in others:
        if len(theirs) != len(ours):
            raise ValueError(f"{first} has hashes of {len(ours)} moments, {other} of {len(theirs)}: compare equal ones")
    for step, mine in enumerate(ours):
        when = "before the first step" if step == 0 else f"after step {step}"
        for name, value in mine.items():
            parted = [other for other, theirs in others if theirs[step].get(name, value) != value]
            if parted:
                return f"{name} is the first to differ, {when}: {', '.join(parted)} from {first}"
    return ""
