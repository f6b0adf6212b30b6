"""Where the numbers of a training can go beside its log: TensorBoard or Weights & Biases, for those who have them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

NAMES = ("", "tensorboard", "wandb")


class Sink(Protocol):
    """Takes numbers by name, of a step counted from 1."""

    def write(self, step: int, numbers: Mapping[str, float]) -> None: ...
    def close(self) -> None: ...


def sink(name: str, folder: str) -> Sink:
    """By name; '' takes nothing. folder: TensorBoard's files go there, and W&B's of a run without a network.

    Raises ValueError for one that there is not, or that is not installed.
    """
    kinds = {"": Nowhere, "tensorboard": TensorBoard, "wandb": WeightsAndBiases}
    if name not in kinds:
        raise ValueError(f"numbers can be sent to {' or '.join(NAMES[1:])}, not to {name!r}")
    try:
        made: Sink = kinds[name](folder)
    except ImportError as error:
        raise ValueError(f"{name} is not installed here: pip install {name}, or leave it out") from error
    return made


class Nowhere:
    """The log is enough."""

    def __init__(self, folder: str = "") -> None:
        pass

    def write(self, step: int, numbers: Mapping[str, float]) -> None:
        pass

    def close(self) -> None:
        pass


class TensorBoard:
    """Through torch.utils.tensorboard."""

    def __init__(self, folder: str) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer: Any = SummaryWriter(folder)

    def write(self, step: int, numbers: Mapping[str, float]) -> None:
        for name, number in numbers.items():
            self._writer.add_scalar(name, number, step)

    def close(self) -> None:
        self._writer.close()


class WeightsAndBiases:
    """Through wandb, which says by itself where its page is."""

    def __init__(self, folder: str) -> None:
        import wandb  # type: ignore[import-not-found]  # of those who have it

        self._run: Any = wandb.init(project="lockstep", dir=folder)

    def write(self, step: int, numbers: Mapping[str, float]) -> None:
        self._run.log(dict(numbers), step=step)

    def close(self) -> None:
        self._run.finish()
