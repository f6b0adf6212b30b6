"""The speed ladder: what makes one device faster, or lets it hold more, each to be turned by itself.

    precision    fp32, tf32, fp16 with loss scaling, bf16: what matrix products are computed in; weights stay fp32
    attention    fused, or plain: with the N x N matrix of all positions against all
    adamw        fused, or plain: one tensor after the other
    compile      torch.compile with this backend ('inductor'; '': none)
    recompute    activations are computed again in the backward pass, in place of being kept

Two more rungs are not the strategy's: a padded vocabulary (the model's), accumulation (the recipe's `total_batch`).
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from math import isfinite
from typing import Protocol

import torch
import torch.distributed as dist
from torch.nn.attention import SDPBackend, sdpa_kernel

from kit.topics.gpt.reference.norm import total_norm

Tensor = torch.Tensor
CHOICES = {"precision": ("fp32", "tf32", "fp16", "bf16"), "attention": ("fused", "plain"), "adamw": ("fused", "plain")}


@dataclass(frozen=True)
class Extras:
    """What any layout may have beside: the ladder (see above), and torch's own in the place of ours (built_in).

    Raises ValueError for a rung that there is not.
    """

    precision: str = "fp32"
    attention: str = "fused"
    adamw: str = "fused"
    compile: str = ""
    recompute: bool = False
    built_in: bool = False

    def __post_init__(self) -> None:
        for name, choices in CHOICES.items():
            if getattr(self, name) not in choices:
                raise ValueError(f"{name} is {getattr(self, name)!r}: choose {' or '.join(choices)}")


PLAIN = Extras()


class Holder(Protocol):
    """Whoever has a step's gradients on this rank. groups: over which they are parts of one whole."""

    groups: Sequence[dist.ProcessGroup]

    def gradients(self) -> list[Tensor]: ...


class Exact:
    """fp32, and TF32, of which only the device knows. The base of the others."""

    def forward(self) -> AbstractContextManager[object]:
        """Around a forward pass."""
        return nullcontext()

    def within(self, forward: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
        """A stage's forward pass in these numbers. Its backward pass, by turns with others' forward, is outside."""

        def computed(x: Tensor) -> Tensor:
            with self.forward():
                return forward(x)

        return computed

    def scaled(self, loss: Tensor) -> Tensor:
        """What goes back in the place of the loss."""
        return loss

    def unscaled(self, loss: Tensor) -> Tensor:
        """The loss of what went back."""
        return loss

    def settled(self, holder: Holder) -> bool:
        """Makes the gradients those of the loss; False, on all ranks alike: they are of no use, and to be computed
        again.
        """
        return True


class Autocast(Exact):
    """Matrix products in 16 bits: torch casts what goes into them, and leaves sums and norms in fp32."""

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        self.device, self.dtype = device, dtype

    def forward(self) -> AbstractContextManager[object]:
        return torch.autocast(self.device.type, self.dtype)


class ScaledLoss(Autocast):
    """fp16, whose smallest number is 6e-8: gradients below it would be lost, so the loss is made larger before it goes
    back (Micikevicius and others, Mixed precision training, 2018, section 3.2).

    By `scale`, halved where that makes a gradient infinite, and doubled after `patience` steps that went well. torch's
    GradScaler leaves such a step out; here its gradients are computed again, so that a curve says nothing of scales.
    """

    def __init__(self, device: torch.device, scale: float = 2.0**16, patience: int = 2000) -> None:
        super().__init__(device, torch.float16)
        self.scale, self.patience, self.went_well = scale, patience, 0

    def scaled(self, loss: Tensor) -> Tensor:
        return loss * self.scale

    def unscaled(self, loss: Tensor) -> Tensor:
        return loss / self.scale

    def settled(self, holder: Holder) -> bool:
        gradients = holder.gradients()
        finite = isfinite(total_norm(gradients, holder.groups, self.device))  # a part that is not makes none of them so
        for gradient in gradients:
            gradient.div_(self.scale)  # a power of two: nothing is rounded
        if finite:
            self.went_well += 1
            if self.went_well % self.patience == 0:
                self.scale *= 2
            return True
        self.went_well = 0
        self.scale /= 2
        return self.scale < 1  # it is not the scale: whoever looks at the norm sees what it is


def arithmetic(extras: Extras, device: torch.device) -> Exact:
    """How a device is to compute. TF32 is a switch of the whole process: fp32 turns it off again."""
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high" if extras.precision == "tf32" else "highest")
    match extras.precision:
        case "bf16":
            return Autocast(device, torch.bfloat16)
        case "fp16":
            return ScaledLoss(device)
    return Exact()


def attending(extras: Extras) -> AbstractContextManager[object]:
    """Around forward and backward passes: attention as the ladder has it."""
    return sdpa_kernel(SDPBackend.MATH) if extras.attention == "plain" else nullcontext()


def check_device(extras: Extras, device: torch.device) -> None:
    """Raises ValueError for what this device cannot do."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else f"a {device.type.upper()}"
    newer = device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 0)
    if extras.precision == "tf32" and not newer:
        raise ValueError(f"TF32 is what NVIDIA's matrix units have from Ampere on, and this is {name}: choose fp32")
    if extras.precision == "bf16" and device.type == "cuda" and not newer:
        raise ValueError(f"{name} has no arithmetic in bf16: choose fp16, which it has")
    check_compiler(extras.compile)
    if extras.compile == "inductor" and not _has_compiler(device):
        wanted = "Triton" if device.type == "cuda" else "a C++ compiler (g++ or clang++)"
        raise ValueError(f"inductor compiles for {name} with {wanted}, which is not here: install it, or leave it out")


def check_compiler(name: str) -> None:
    """Raises ValueError for a backend that torch.compile does not have."""
    if name:
        known = torch.compiler.list_backends(exclude_tags=())  # loads the compiler
        if name not in known:
            raise ValueError(f"torch.compile has no backend {name!r}: choose inductor, or one of {', '.join(known)}")


def remarks(extras: Extras, device: torch.device) -> list[str]:
    """What is to be known of a choice that works here, but not as it is meant to."""
    if extras.precision == "fp16" and device.type == "cpu":
        return ["fp16 on a CPU is right and slow: it computes in fp32 and rounds. On a GPU it is what makes it fast"]
    return []


def _has_compiler(device: torch.device) -> bool:
    if device.type == "cpu":
        return any(map(shutil.which, (os.environ.get("CXX", "g++"), "g++", "clang++")))
    return importlib.util.find_spec("triton") is not None
