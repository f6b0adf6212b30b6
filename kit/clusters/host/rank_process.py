"""A rank's first moments: what a freshly forked process does to become rank r of the cluster."""

from __future__ import annotations

import logging
import mmap
import os
import signal
import socket
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from traitlets.config import Config

from kit.clusters.host import engine
from kit.clusters.host.preload import Overhear
from kit.clusters.links import INTERFACE
from kit.clusters.processes import die_with_parent
from kit.clusters.request import Settings
from kit.protocol.messages import FromRank, ToRank
from kit.protocol.wire import Channel

HELD = (signal.SIGTERM, signal.SIGCHLD)  # the agent's handlers for these must not run in a rank


@dataclass(frozen=True, slots=True)
class RankConfig:
    """What one rank of one generation is told before it is forked."""

    rank: int
    world: int
    local_rank: int  # among those of its host
    local_world: int
    device: str
    backend: str
    generation: int
    settings: Settings


def rank_main(
    config: RankConfig, line: socket.socket, blackbox: mmap.mmap, not_mine: Iterable[int], agent: int
) -> None:
    """Runs the rank; returns when its engine has ended. The calling process is the fork."""
    break_away(not_mine, agent)
    _environment(config)
    engine.set_environment()
    import_path(config.settings)
    outlets = engine.own_streams()

    from kit.probe.rank import Rank

    channel: Channel[ToRank, FromRank] = Channel(line)
    sys.meta_path.insert(0, Overhear(channel.send))
    rank = Rank(
        number=config.rank,
        world=config.world,
        channel=channel,
        blackbox=blackbox,
        run_dir=Path(config.settings.folder),
        generation=config.generation,
        device=config.device,
        backend=config.backend,
    )
    os.chdir(config.settings.directory)
    rank.start()
    engine.launch(_engine_settings(config.settings), config.rank, outlets, channel.send)


def break_away(not_mine: Iterable[int], agent: int) -> None:
    """Makes a fork of the agent a process of its own, which ends with it."""
    die_with_parent(agent)
    signal.set_wakeup_fd(-1)
    for number in HELD:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HELD)
    for descriptor in not_mine:  # a copy of another rank's line would keep it open when its owner dies
        os.close(descriptor)


def _engine_settings(settings: Settings) -> Config:
    return Config(
        BaseParallelApplication={"cluster_id": settings.cluster_id},
        ProfileDir={"location": settings.profile},
        IPEngine={
            "enable_nanny": False,  # the agent is the parent and can do what a nanny does
            "wait_for_url_file": 60,
            "timeout": 60,
            "max_heartbeat_misses": 0,  # the agent watches the controller; ranks outlive it until a reset
            "log_level": logging.ERROR,
        },
    )


def _environment(config: RankConfig) -> None:
    os.environ.update(
        RANK=str(config.rank),
        LOCAL_RANK=str(config.local_rank),
        WORLD_SIZE=str(config.world),
        LOCAL_WORLD_SIZE=str(config.local_world),
        GROUP_RANK="0",
        GROUP_WORLD_SIZE="1",
        TORCHELASTIC_RESTART_COUNT="0",
        TORCHELASTIC_RUN_ID=config.settings.cluster_id,
        MASTER_ADDR=config.settings.address,
        MASTER_PORT=str(config.settings.port),
        GLOO_SOCKET_IFNAME=INTERFACE,
        NCCL_SOCKET_IFNAME=INTERFACE,
        # A rank outlives its partner's death, and a person's pause: NCCL's own watch would end the process for either.
        TORCH_NCCL_ASYNC_ERROR_HANDLING="0",
        TORCH_NCCL_ENABLE_MONITORING="0",
    )


def import_path(settings: Settings) -> None:
    """The learner's own modules can be imported, as in the kernel; nothing that is loaded already changes."""
    known = set(sys.path)
    ahead = [settings.directory, *settings.path]
    sys.path[:0] = [entry for entry in dict.fromkeys(ahead) if entry and entry not in known]
