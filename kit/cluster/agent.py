"""The host agent: forks the ranks, then is one selector loop that waits for nobody.

It imports torch once, so that a rank is a fork of some milliseconds and shares that memory. It opens no thread, no
process group and no device, because a fork of those would hang. Afterwards it passes messages between the kernel, the
ranks and the referee, sees ranks die and stop, and forks them anew when asked.
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

from kit.cluster.mailbox import Mailbox
from kit.cluster.processes import peer

if TYPE_CHECKING:
    from kit.cluster.loop import Loop


def main(arguments: list[str]) -> None:
    """`arguments`: the settings file, then the controller's process id."""
    with open(arguments[0]) as file:
        told = json.load(file)
    line = socket.socket(socket.AF_UNIX)
    line.connect(told["settings"]["socket"])
    kernel = Mailbox(line)
    kernel.post({"kind": "agent", "pid": os.getpid()})
    try:
        loop = _prepare(told, kernel, kernel_pid=peer(line), controller_pid=int(arguments[1]))
    except Exception as problem:  # whatever it is, the person who waits must read it
        kernel.post(_refusal(problem))
        sys.exit(1)
    loop.run()


def _prepare(told: dict[str, Any], kernel: Mailbox, kernel_pid: int, controller_pid: int) -> Loop:
    began = time.monotonic()
    gc.disable()  # imports make no garbage to speak of: looking for it takes a seventh of their time
    from kit.cluster.preload import preload

    preload()
    import torch

    from kit.cluster.child import Settings
    from kit.cluster.crew import Crew
    from kit.cluster.devices import plan, survey
    from kit.cluster.loop import Loop
    from kit.cluster.request import Request

    request = Request(**told["request"])
    settings = Settings(**told["settings"])
    build = f"torch {torch.__version__}"
    found = () if request.device == "cpu" else survey()
    chosen = plan(request, found, build)
    kernel.post(
        {
            "kind": "plan",
            "backend": chosen.backend,
            "devices": chosen.devices,
            "notes": chosen.notes,
            "accelerators": tuple((one.device, one.name, one.memory) for one in found),
            "build": build,
            "imported_in": time.monotonic() - began,
        }
    )
    gc.enable()
    return Loop(kernel, Crew(chosen, settings), kernel_pid, controller_pid)


def _refusal(problem: Exception) -> dict[str, Any]:
    if isinstance(problem, ModuleNotFoundError):
        name = (problem.name or "torch").partition(".")[0]
        remedy = f"run `{sys.executable} -m pip install {name}`"
        detail = f"the ranks need {name}, which is not installed: {remedy}"
        return {"kind": "refused", "asked": True, "missing": True, "detail": detail}
    if isinstance(problem, ValueError):
        return {"kind": "refused", "asked": True, "detail": str(problem)}
    return {"kind": "refused", "asked": False, "detail": traceback.format_exc()}
