"""A rank's first moments: what a freshly forked process does to become rank r of the cluster."""

from __future__ import annotations

import mmap
import os
import signal
import socket
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from kit.cluster import engine
from kit.cluster.devices import Plan
from kit.cluster.links import INTERFACE
from kit.cluster.preload import Overhear
from kit.cluster.processes import die_with_parent
from kit.probe.wire import Channel

HELD = (signal.SIGTERM, signal.SIGCHLD)  # the agent's handlers for these must not run in a rank


@dataclass(frozen=True, slots=True)
class Settings:
    """What the kernel tells its agent, once."""

    socket: str
    folder: str
    profile: str
    cluster_id: str
    port: int
    first_generation: int  # numbers go on when a cluster is started again, so that no two generations share one
    directory: str
    path: tuple[str, ...]  # the kernel's sys.path: what can be imported there can be imported here


@dataclass(frozen=True, slots=True)
class Birth:
    """What one rank of one generation is told."""

    rank: int
    generation: int
    plan: Plan
    settings: Settings


def live(birth: Birth, line: socket.socket, blackbox: mmap.mmap, not_mine: Iterable[int], agent: int) -> None:
    """Runs the rank; returns when its engine has ended. The calling process is the fork."""
    break_away(not_mine, agent)
    _environment(birth)
    import_path(birth.settings)
    outlets = engine.own_streams()

    from kit.probe.rank import Rank

    channel = Channel(line)
    sys.meta_path.insert(0, Overhear(channel.send))
    world = len(birth.plan.devices)
    rank = Rank(
        number=birth.rank,
        world=world,
        channel=channel,
        blackbox=blackbox,
        run_dir=Path(birth.settings.folder),
        generation=birth.generation,
        device=birth.plan.devices[birth.rank],
        backend=birth.plan.backend,
    )
    rank.start()
    engine.launch(_engine_arguments(birth.settings), birth.rank, outlets, channel.send)


def break_away(not_mine: Iterable[int], agent: int) -> None:
    """Makes a fork of the agent a process of its own, which ends with it."""
    die_with_parent(agent)
    signal.set_wakeup_fd(-1)
    for number in HELD:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HELD)
    for descriptor in not_mine:  # a copy of another rank's line would keep it open when its owner dies
        os.close(descriptor)


def _engine_arguments(settings: Settings) -> list[str]:
    return [
        f"--profile-dir={settings.profile}",
        f"--cluster-id={settings.cluster_id}",
        f"--work-dir={settings.directory}",
        "--IPEngine.enable_nanny=False",  # the agent is the parent and can do what a nanny does
        "--IPEngine.wait_for_url_file=60",
        "--IPEngine.timeout=60",
        "--IPEngine.max_heartbeat_misses=0",  # the agent watches the controller; ranks outlive it until a reset
        "--log-level=ERROR",
    ]


def _environment(birth: Birth) -> None:
    world = len(birth.plan.devices)
    os.environ.update(
        RANK=str(birth.rank),
        LOCAL_RANK=str(birth.rank),
        WORLD_SIZE=str(world),
        LOCAL_WORLD_SIZE=str(world),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(birth.settings.port),
        GLOO_SOCKET_IFNAME=INTERFACE,
        NCCL_SOCKET_IFNAME=INTERFACE,
    )


def import_path(settings: Settings) -> None:
    """The learner's own modules can be imported, as in the kernel; nothing that is loaded already changes."""
    known = set(sys.path)
    ahead = [settings.directory, *settings.path]
    sys.path[:0] = [entry for entry in dict.fromkeys(ahead) if entry and entry not in known]
