"""Starts the controller and the host agent of one cluster, both at once, through ipyparallel."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import secrets
import select
import socket
import sys
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import asdict
from typing import Any

from kit.clusters.folder import RunFolder
from kit.clusters.processes import Process, children
from kit.clusters.request import LOOPBACK, Request, Settings, free_port
from kit.protocol.messages import ToHost, ToKernel
from kit.protocol.wire import Channel

CONTROLLER = (
    "--HeartMonitor.period=100",  # registration waits for a heartbeat: this is most of ipyparallel's start
    "--HeartMonitor.max_heartmonitor_misses=300",  # 30 s in all: a rank in a long C call is no dead rank
    "--IPController.registration_timeout=60",  # as long as everything else of a start may take
    "--IPController.use_threads=True",
    "--IPController.broadcast_scheduler_depth=0",
    f"--ip={LOOPBACK}",
    "--log-level=ERROR",
)


class Launched:
    """The processes of one cluster and what belongs to them. `end` leaves nothing behind."""

    def __init__(self, request: Request, first_generation: int = 0) -> None:
        self.folder = RunFolder(request.folder)
        self.cluster_id = secrets.token_hex(4)
        self.agent: Process | None = None
        self.controller: Process | None = None
        self._listener = socket.socket(socket.AF_UNIX)
        try:
            self._listener.bind(str(self.folder.socket))
            self._listener.listen(1)
            self._write_settings(request, first_generation)
            self._write_secrets()
            self._parallel = _in_a_thread(self._start, request.ranks)
        except BaseException:
            self.end()
            raise

    def channel(self, seconds: float) -> Channel[ToKernel, ToHost] | None:
        """The agent's line, once it calls; None when it ended instead, or did not call in time."""
        if self.agent is None:
            return None
        ready, _, _ = select.select([self._listener.fileno(), self.agent.fileno()], [], [], seconds)
        if self._listener.fileno() not in ready:
            return None
        line, _ = self._listener.accept()
        self._listener.close()
        return Channel(line)

    def processes(self) -> list[int]:
        """Process ids: the agent, the controller and what it started; the ranks are the agent's affair."""
        own = (process for process in (self.agent, self.controller) if process is not None)
        return [*(process.pid for process in own if not process.ended()), *self._started_by_controller()]

    def client(self) -> Any:
        """A new ipyparallel Client of this cluster's controller."""
        import ipyparallel

        security = self.folder.profile / "security"
        return ipyparallel.Client(
            str(security / f"ipcontroller-{self.cluster_id}-client.json"), profile_dir=str(self.folder.profile)
        )

    def end(self, patience: float = 0.0) -> None:
        """Waits `patience` seconds for the agent to end everything by itself, then kills what is left, by number."""
        if self.agent is not None and not self.agent.wait(patience):
            self.agent.kill()
        monitors = [Process.of(pid) for pid in self._started_by_controller()]
        for process in (self.agent, self.controller, *monitors):
            if process is not None:
                process.kill()
                process.wait(2.0)
                process.close()
        self.agent = self.controller = None
        self._listener.close()
        self.folder.remove()

    def _started_by_controller(self) -> list[int]:
        """Its heart monitor. It follows the controller into the end, but a moment later."""
        return [] if self.controller is None or self.controller.ended() else children(self.controller.pid)

    def _write_settings(self, request: Request, first_generation: int) -> None:
        settings = Settings(
            socket=str(self.folder.socket),
            folder=str(self.folder.path),
            profile=str(self.folder.profile),
            cluster_id=self.cluster_id,
            address=LOOPBACK,
            port=request.port or free_port(),
            first_generation=first_generation,
            directory=_working_directory(),
            path=[entry for entry in sys.path if isinstance(entry, str)],
        )
        self._settings = self.folder.path / "agent.json"
        self._settings.write_text(json.dumps({"request": asdict(request), "settings": asdict(settings)}))

    def _write_secrets(self) -> None:
        """Has the controller encrypt: other users of this host could otherwise subscribe to what the ranks print.

        In a file, since all users see a command line. Without a key of our own ipyparallel would leave messages
        unsigned, as encryption protects them too, and every client would warn of that.
        """
        import zmq

        key = secrets.token_hex(32).encode()
        lines = (f"get_config().Session.key = {key!r}", f"get_config().IPController.enable_curve = {zmq.has('curve')}")
        (self.folder.profile / "ipcontroller_config.py").write_text("\n".join(lines) + "\n")

    async def _start(self, ranks: int) -> Any:
        import ipyparallel
        from traitlets.config import Config

        from kit.clusters.launcher import FollowingControllerLauncher, HostAgentLauncher

        log = logging.getLogger("kit.clusters.ipyparallel")
        log.setLevel(logging.CRITICAL)  # its news reach the person through this package, in words
        parallel = ipyparallel.Cluster(
            config=Config({"HostAgentLauncher": {"settings_file": str(self._settings)}}),
            load_profile=False,
            profile_dir=str(self.folder.profile),
            cluster_id=self.cluster_id,
            cluster_file="",
            controller=FollowingControllerLauncher,
            engines=HostAgentLauncher,
            controller_args=list(CONTROLLER),
            send_engines_connection_env=False,  # the agent starts at once and waits for the file itself
            delay=0,
            n=ranks,
            log=log,
            shutdown_atexit=False,
        )
        await parallel.start_controller()
        self.controller = Process.of(parallel.controller.pid)
        await parallel.start_engines()
        self.agent = Process.of(parallel.engine_set.pid)
        return parallel


def _in_a_thread(start: Any, *arguments: Any) -> Any:
    """Runs a coroutine in a loop of its own: a notebook's thread has a running loop that cannot be waited in."""
    executor = ThreadPoolExecutor(1, "start the cluster")
    future = executor.submit(lambda: asyncio.run(start(*arguments)))
    executor.shutdown(wait=False)
    try:
        return future.result()
    except KeyboardInterrupt:
        wait([future], 10.0)  # an interrupted cell first lets it finish, to be able to end what was started
        raise


def _working_directory() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError as gone:
        raise ValueError("the folder this kernel runs in was deleted: change to another with os.chdir(...)") from gone
