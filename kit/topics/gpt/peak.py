"""The flops per second that a device could do: by its data sheet, or measured where there is none."""

from __future__ import annotations

import time

import torch

from kit.cost.machines import ACCELERATORS

SIZE = 1024  # of the matrices


FORMATS = {"fp16": torch.float16, "bf16": torch.bfloat16}


def peak_of(device: torch.device, precision: str = "fp32") -> tuple[float, str]:
    """Flops per second in a number format, 'fp32', 'tf32', 'fp16' or 'bf16', and where the figure is from."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else ""
    for known, accelerator in ACCELERATORS.items():
        if known in name:
            return accelerator.peak(precision), f"data sheet of {accelerator.name}, {precision}"
    measured = "fp32" if precision == "fp16" and device.type == "cpu" else precision  # what it computes in
    return measured_peak(device, measured), f"measured here, by products of {SIZE} x {SIZE} matrices in {measured}"


def measured_peak(device: torch.device, precision: str = "fp32", repeats: int = 5) -> float:
    """Flops per second of the best of some large matrix products. Ranks that share a processor measure at the
    same time, and get each its share.
    """
    a = torch.randn(SIZE, SIZE, device=device).to(FORMATS.get(precision, torch.float32))
    fastest = float("inf")
    for _ in range(repeats + 1):  # the first one warms up, and is never the fastest
        began = time.perf_counter()
        float((a @ a)[0, 0])  # waits for the device
        fastest = min(fastest, time.perf_counter() - began)
    return 2 * SIZE**3 / fastest
