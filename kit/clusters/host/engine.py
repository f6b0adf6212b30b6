"""The ipyparallel engine inside a rank: it says its number, and it leaves the rank's own streams in place."""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import ipykernel.ipkernel
from ipykernel.iostream import OutStream
from ipykernel.zmqshell import ZMQInteractiveShell
from ipyparallel.engine.app import IPEngine
from traitlets.config import Config

from kit.protocol.messages import Registered

Tell = Callable[[Registered], None]


class Outlet(io.TextIOBase):
    """A rank's stdout or stderr for its whole life.

    The engine registers at any moment, also while a run has put its own stream in front of this one; so `sys.stdout`
    must not change, only where it leads to.
    """

    def __init__(self, target: Any) -> None:
        self._target = target

    def lead_to(self, target: Any) -> None:
        self._target = target

    def write(self, text: str) -> int:
        self._target.write(text)
        return len(text)

    def flush(self) -> None:
        self._target.flush()

    def fileno(self) -> int:
        return int(self._target.fileno())

    def isatty(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)  # what ipykernel asks of its own streams: set_parent, topic, ...


class Engine(IPEngine):
    """Made ready by `launch`."""

    name = "ipengine"
    settings: Config
    outlets: dict[str, Outlet]
    tell: Tell
    rank: int

    def parse_command_line(self, argv: Any = None) -> None:
        """Settings come as they are: a parser with every option of every class would copy 5 MB in each rank."""
        self.update_config(self.settings)

    def to_work_dir(self) -> None:
        """The rank stood there before its engine was launched; by now its code may have gone elsewhere."""

    def init_signal(self) -> None:
        """Ignores Ctrl-C alone: what the learner's code forks would inherit a handler for SIGTERM, too, and not end."""
        signal.signal(signal.SIGINT, self._signal_sigint)

    async def complete_registration(self, msg: Any, connect: Any, maybe_tunnel: Any) -> None:
        with _few_modules():
            await super().complete_registration(msg, connect, maybe_tunnel)
        type(self).tell(Registered(self.rank, self.id))

    def redirect_output(self, iopub_socket: Any) -> None:
        for name, outlet in self.outlets.items():
            stream = OutStream(self.session, iopub_socket, name, watchfd=False)
            stream.topic = f"engine.{self.id}.{name}".encode("ascii")
            outlet.lead_to(stream)
        show = self.display_hook_factory(self.session, iopub_socket)
        show.topic = f"engine.{self.id}.execute_result".encode("ascii")
        sys.displayhook = show


@contextmanager
def _few_modules() -> Iterator[None]:
    """Lets ipykernel see no modules while its kernel is made.

    It asks each for its file, to tell a debugger, and that is enough to copy 9 MB that the ranks could share.
    """
    module: Any = ipykernel.ipkernel
    lean = ModuleType("sys")
    lean.__dict__.update(vars(sys), modules={})
    module.sys = lean
    try:
        yield
    finally:
        module.sys = sys


def set_environment() -> None:
    """What the engine and its shell add to the environment, before there is another thread.

    A name that is added moves the whole environment; whoever reads it in C meanwhile, as libraries do, is killed.
    """
    os.environ.setdefault("PYDEVD_DISABLE_FILE_VALIDATION", "1")
    os.environ["MPLBACKEND"] = os.environ.get("MPLBACKEND") or "module://matplotlib_inline.backend_inline"
    shell: Any = None  # it is not looked at
    ZMQInteractiveShell.init_environment(shell)


def own_streams() -> dict[str, Outlet]:
    """Puts outlets in the place of this process's stdout and stderr."""
    outlets = {"stdout": Outlet(sys.stdout), "stderr": Outlet(sys.stderr)}
    sys.stdout, sys.stderr = outlets["stdout"], outlets["stderr"]
    return outlets


def launch(settings: Config, rank: int, outlets: dict[str, Outlet], tell: Tell) -> None:
    """Runs the engine in the calling thread until it ends."""
    Engine.settings, Engine.outlets, Engine.tell, Engine.rank = settings, outlets, staticmethod(tell), rank
    Engine.launch_instance(argv=[])
