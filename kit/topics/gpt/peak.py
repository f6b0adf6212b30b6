"""The flops per second that a device could do: by its data sheet, or measured where there is none."""

from __future__ import annotations

import time

import torch

from kit.cost.machines import ACCELERATORS

SIZE = 1024  # of the matrices


def peak_of(device: torch.device) -> tuple[float, str]:
    """Flops per second in fp32, and where the figure is from."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else ""
    for known, accelerator in ACCELERATORS.items():
        if known in name:
            return accelerator.peak("fp32"), f"data sheet of {accelerator.name}"
    return measured_peak(device), f"measured here, by products of {SIZE} x {SIZE} matrices"


def measured_peak(device: torch.device, repeats: int = 5) -> float:
    """Flops per second of the best of some large matrix products, in fp32. Ranks that share a processor measure at the
    same time, and get each its share.
    """
    a = torch.randn(SIZE, SIZE, device=device)
    fastest = float("inf")
    for _ in range(repeats + 1):  # the first one warms up, and is never the fastest
        began = time.perf_counter()
        float((a @ a)[0, 0])  # waits for the device
        fastest = min(fastest, time.perf_counter() - began)
    return 2 * SIZE**3 / fastest
