"""Ranks for a training without a notebook: those that torchrun has started, or processes of our own on this host."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import ProcessExitedException, ProcessRaisedException, spawn

from kit.topics.gpt.run import Config, train


class RankFailed(RuntimeError):
    """A rank could not go on, in one sentence; the others have been ended."""


def start(config: Config, ranks: int | None, device: str) -> None:
    """Trains, on ranks that there are already (torchrun), or on so many of its own; returns when all are through.

    ranks: None: one for each GPU, or one. Raises RankFailed for a rank that raised or died, and what one rank alone
    raises as it is.
    """
    if "TORCHELASTIC_RUN_ID" in os.environ:
        _as_torchrun_says(config, device)
        return
    kind = _kind(device)
    count = ranks or (max(1, torch.cuda.device_count()) if kind == "cuda" else 1)
    if count == 1:
        train(config, torch.device(kind))
        return
    if kind == "cuda" and count > torch.cuda.device_count():
        raise ValueError(f"{count} ranks want a GPU each, and there are {torch.cuda.device_count()}: --device cpu")
    with tempfile.TemporaryDirectory(prefix="lockstep-train-") as folder:  # for this user alone: mode 0700
        try:
            spawn(_rank, (count, Path(folder) / "store", config, kind), nprocs=count)
        except ProcessRaisedException as failed:  # the text is the rank's traceback
            raise RankFailed(f"rank {failed.error_index}: {str(failed).strip().splitlines()[-1]}") from failed
        except ProcessExitedException as died:
            how = died.signal_name or f"with exit code {died.exit_code}"
            raise RankFailed(
                f"rank {died.error_index} was ended by {how}, and the others with it: --resume goes on from the newest"
                " checkpoint, on other ranks too"
            ) from died


def _rank(rank: int, ranks: int, store: Path, config: Config, kind: str) -> None:
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # all ranks are on this host, and nobody else is to listen
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // ranks))
    device = _place(kind, rank)
    dist.init_process_group(
        _backend(kind), store=dist.FileStore(str(store), ranks), rank=rank, world_size=ranks, device_id=_bound(device)
    )
    _train(config, device)


def _as_torchrun_says(config: Config, device: str) -> None:
    kind = _kind(device)
    place = _place(kind, int(os.environ["LOCAL_RANK"]))
    dist.init_process_group(_backend(kind), device_id=_bound(place))
    _train(config, place)


def _train(config: Config, device: torch.device) -> None:
    try:
        train(config, device)
    finally:
        dist.destroy_process_group()


def _kind(device: str) -> str:
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
