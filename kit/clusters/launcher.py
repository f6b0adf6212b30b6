"""ipyparallel launchers: one process that forks all engines of a host, and a controller that follows its kernel.

They are ordinary ipyparallel launcher classes, started by `ipyparallel.Cluster`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from ipyparallel.cluster.launcher import LocalControllerLauncher, LocalEngineLauncher, LocalProcessLauncher
from traitlets import Unicode

BOOT = str(Path(__file__).with_name("boot.py"))

ONE_THREAD = {  # set before the first import: a process that ever used two OpenMP threads cannot be forked safely
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}


def own_place(profile: str) -> dict[str, str]:
    """Keeps IPython's files in the run folder: a home that is full, read-only or not there stops no rank."""
    return {"IPYTHONDIR": str(Path(profile) / "ipython")}


class HostAgentLauncher(LocalEngineLauncher):
    """An engine set of one process: the host agent, which forks the engines."""

    settings_file = Unicode(help="what the agent is to do, written by the kernel").tag(config=True)

    def find_args(self) -> list[str]:
        controller = getattr(self.parent.controller, "pid", None)
        if controller is None:
            raise RuntimeError("start the controller before the agent: the agent watches it")
        return [sys.executable, "-P", BOOT, "agent", self.settings_file, str(controller)]

    def get_env(self) -> dict[str, str]:
        return {**super().get_env(), **ONE_THREAD, **own_place(self.profile_dir), "IPP_CONNECTION_INFO": ""}

    def start(self, n: int) -> None:
        self.n = n
        LocalProcessLauncher.start(self)


class FollowingControllerLauncher(LocalControllerLauncher):
    """A controller on this host that ends when this kernel does."""

    def find_args(self) -> list[str]:
        return [sys.executable, "-P", BOOT, "controller", str(os.getpid()), *self.cluster_args, *self.controller_args]

    def get_env(self) -> dict[str, str]:
        return {**super().get_env(), **own_place(self.profile_dir)}
