"""Ranks for a training without a notebook: those that torchrun has started, or processes of our own on this host."""

from __future__ import annotations

import logging
import os
import signal
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import ProcessExitedException, ProcessRaisedException, spawn

from kit.clusters.system import memory
from kit.topics.gpt.run import Config, train

if TYPE_CHECKING:
    from kit.gpt.trainer import Trainer

RANK_BYTES = 200_000_000  # of a process that has loaded torch by itself and joined a group
_THROUGH = "through"  # a file that says so


class RankFailed(RuntimeError):
    """A rank could not go on, in one sentence; the others have been ended."""


def start(config: Config, ranks: int | None, device: str) -> bool:
    """Trains, on ranks that there are already (torchrun), or on so many of its own; whether all steps were taken, and
    SIGTERM did not end it before.

    ranks: None: one for each GPU, or one. Raises RankFailed for a rank that raised or died, and what one rank alone
    raises as it is.
    """
    if "TORCHELASTIC_RUN_ID" in os.environ:
        return _as_torchrun_says(config, device)
    kind = _kind(device)
    count = ranks or (max(1, torch.cuda.device_count()) if kind == "cuda" else 1)
    if count == 1:
        return _through(train(config, torch.device(kind)))
    free = memory()[1]
    if count * RANK_BYTES > free:
        raise ValueError(
            f"{count} ranks need about {count * RANK_BYTES / 1e9:,.0f} GB beside the model, and this machine has"
            f" {free / 1e9:.0f} GB free: --ranks {max(1, free // RANK_BYTES)} at most"
        )
    if kind == "cuda" and count > torch.cuda.device_count():
        raise ValueError(f"{count} ranks want a GPU each, and there are {torch.cuda.device_count()}: --device cpu")
    with tempfile.TemporaryDirectory(prefix="lockstep-train-") as folder:  # for this user alone: mode 0700
        logging.getLogger(spawn.__module__).setLevel(logging.ERROR)  # it would tell of each rank that it ends
        try:
            started = spawn(_rank, (count, Path(folder), config, kind), nprocs=count, join=False)
            with _passed_on(started.pids()) if config.checkpoints else nullcontext():
                while not started.join():
                    continue
        except ProcessRaisedException as failed:  # the text is the rank's traceback
            last = str(failed).strip().splitlines()[-1]
            kind_of_error, _, sentence = last.partition(": ")
            if kind_of_error == ValueError.__name__:  # of what was asked for: every rank says so
                raise ValueError(sentence) from failed
            raise RankFailed(f"rank {failed.error_index}: {last}") from failed
        except ProcessExitedException as died:
            how = died.signal_name or f"with exit code {died.exit_code}"
            raise RankFailed(
                f"rank {died.error_index} was ended by {how}, and the others with it: --resume goes on from the newest"
                " checkpoint, on other ranks too"
            ) from died
        return (Path(folder) / _THROUGH).exists()


@contextmanager
def _passed_on(ranks: Sequence[int]) -> Iterator[None]:
    """Inside, SIGTERM to this process is one to all ranks, which save what they have learnt."""

    def tell(number: int, frame: object) -> None:
        for rank in ranks:
            with suppress(ProcessLookupError):  # it is through
                os.kill(rank, signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, tell)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _rank(rank: int, ranks: int, folder: Path, config: Config, kind: str) -> None:
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # all ranks are on this host, and nobody else is to listen
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // ranks))
    device = _place(kind, rank)
    dist.init_process_group(
        _backend(kind),
        store=dist.FileStore(str(folder / "store"), ranks),
        rank=rank,
        world_size=ranks,
        device_id=_bound(device),
    )
    if _train(config, device):
        (folder / _THROUGH).touch()


def _as_torchrun_says(config: Config, device: str) -> bool:
    kind = _kind(device)
    place = _place(kind, int(os.environ["LOCAL_RANK"]))
    dist.init_process_group(_backend(kind), device_id=_bound(place))
    return _train(config, place)


def _train(config: Config, device: torch.device) -> bool:
    try:
        return _through(train(config, device))
    finally:
        dist.destroy_process_group()


def _through(trainer: Trainer) -> bool:
    return trainer.done >= trainer.recipe.steps


def _kind(device: str) -> str:
    if device == "cuda" and not torch.cuda.is_available():
        raise ValueError("torch sees no CUDA device here: --device cpu, or `lockstep doctor --gpu` says what it sees")
    return ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device


def _backend(kind: str) -> str:
    return "nccl" if kind == "cuda" else "gloo"


def _place(kind: str, rank: int) -> torch.device:
    if kind == "cpu":
        return torch.device("cpu")
    place = torch.device(kind, rank)
    torch.cuda.set_device(place)
    return place


def _bound(device: torch.device) -> torch.device | None:
    return None if device.type == "cpu" else device
