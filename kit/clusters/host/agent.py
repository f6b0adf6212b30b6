"""The host agent: forks the ranks, then is one selector loop that waits for nobody.

It imports torch once, so that a rank is a fork of some milliseconds and shares that memory. It opens no thread, no
process group and no device, because a fork of those would hang. Afterwards it passes messages between the kernel, the
ranks and the coordinator, sees ranks die and stop, and forks them anew when asked.
"""

from __future__ import annotations

import gc
import json
import os
import socket
import sys
import time
import traceback
from typing import TYPE_CHECKING, Any

from kit.clusters.processes import peer
from kit.protocol.messages import Found, HostUp, Refused, ToHost, ToKernel
from kit.protocol.wire import Mailbox

if TYPE_CHECKING:
    from kit.clusters.host.loop import Loop


def main(arguments: list[str]) -> None:
    """`arguments`: the settings file, then the controller's process id."""
    with open(arguments[0]) as file:
        told = json.load(file)
    line = socket.socket(socket.AF_UNIX)
    line.connect(told["settings"]["socket"])
    kernel: Mailbox[ToHost, ToKernel] = Mailbox(line)
    kernel.post(HostUp(os.getpid()))
    kernel.flush()
    try:
        loop = _prepare(told, kernel, kernel_pid=peer(line), controller_pid=int(arguments[1]))
    except Exception as problem:  # whatever it is, the person who waits must read it
        kernel.post(_refusal(problem))
        kernel.flush()
        sys.exit(1)
    loop.run()


def _prepare(told: dict[str, Any], kernel: Mailbox[ToHost, ToKernel], kernel_pid: int, controller_pid: int) -> Loop:
    began = time.monotonic()
    gc.disable()  # imports make no garbage to speak of: looking for it takes a seventh of their time
    from kit.clusters.host.preload import preload

    preload()
    import torch

    from kit.clusters.devices import plan, survey, unseen
    from kit.clusters.host.loop import Loop
    from kit.clusters.host.rank_pool import RankPool
    from kit.clusters.request import Request, Settings
    from kit.probe.torch_names import never_tried

    request = Request(**told["request"])
    settings = Settings(**told["settings"])
    build = f"torch {torch.__version__}"
    found = () if request.device == "cpu" else survey()
    chosen = plan(request, found, build)
    kernel.post(
        Found(
            backend=chosen.backend,
            devices=chosen.devices,
            notes=(*chosen.notes, *(unseen(found) if request.device != "cpu" else ()), *never_tried(torch.__version__)),
            accelerators=tuple((one.device, one.name, one.memory) for one in found),
            build=build,
            imported_in=time.monotonic() - began,
        )
    )
    kernel.flush()
    gc.enable()
    return Loop(kernel, RankPool(chosen, settings), kernel_pid, controller_pid)


def _refusal(problem: Exception) -> Refused:
    if isinstance(problem, AttributeError | ImportError) and "torch" in sys.modules and (words := _torch_lacks()):
        return Refused("environment", words)
    if isinstance(problem, ModuleNotFoundError):
        name = (problem.name or "torch").partition(".")[0]
        remedy = f"run `{sys.executable} -m pip install {name}`"
        return Refused("environment", f"the ranks need {name}, which is not installed: {remedy}")
    if isinstance(problem, ValueError):
        return Refused("wish", str(problem))
    return Refused("failure", traceback.format_exc())


def _torch_lacks() -> str:
    """Names that this torch has not, and Lockstep stands on."""
    import torch

    from kit.probe.torch_names import in_words, lacking

    return in_words(lacking(torch.__version__), torch.__version__)
