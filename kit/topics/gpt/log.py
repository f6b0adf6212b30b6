"""The log of a training: a line for each step, with the legend of the ALCF's wordplay (S0)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kit.cost.training import mfu

if TYPE_CHECKING:
    from kit.gpt.trainer import StepReport
    from kit.topics.gpt.history import Taken

LEGEND = """\
step: how many there have been; loss: nats, the mean over all ranks' windows, before the step; lr: learning rate;
norm: of all gradients together, before clipping; dt, dtf, dtb: seconds of the step, of its forward and its backward
passes, synchronised with the device (dtf and dtb are left out where a pipeline interleaves them); sps, tps: samples
(windows) and tokens per second, of all ranks and per_gpu; mfu: the share of the peak that the model's own arithmetic
reaches; train_loss, val_loss: at a validation, of this step and of text that is not trained on"""


@dataclass(frozen=True)
class Log:
    """How steps are written. devices: that train together. peak: flops per second of one; flops: of the model for one
    token, forward and backward (`kit.cost.training.flops_per_token`).
    """

    devices: int
    peak: float
    flops: float

    def line(self, step: StepReport | Taken) -> str:
        n, told = self.devices, self.numbers(step)
        dt, tps, sps = told["dt"], told["tps"], step.windows / told["dt"]
        parts = {name: step.spent[of] for name, of in (("dtf", "forward"), ("dtb", "backward")) if of in step.spent}
        seconds = " ".join(f"{name}={spent:.4f}" for name, spent in {"dt": dt, **parts}.items())
        return (
            f"step={step.number + 1} loss={step.loss:.4f} lr={step.rate:.3g} norm={step.norm:.3f} {seconds}"
            f" sps={sps:.2f} sps_per_gpu={sps / n:.2f} tps={tps:.0f} tps_per_gpu={tps / n:.0f} mfu={told['mfu']:.2%}"
        )

    def numbers(self, step: StepReport | Taken) -> dict[str, float]:
        """The same by name, for what draws curves."""
        dt = step.seconds
        tps = step.tokens / dt
        share = mfu(tokens_per_second=tps, flops_per_token=self.flops, peak=self.peak, devices=self.devices)
        return {"loss": step.loss, "lr": step.rate, "norm": step.norm, "dt": dt, "tps": tps, "mfu": share}

    def validation(self, step: StepReport | Taken, loss: float) -> str:
        return f"step={step.number + 1} train_loss={step.loss:.4f} val_loss={loss:.4f}"
