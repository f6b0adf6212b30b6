"""Scripts on ranks as launchers start them, but forked from one process that has imported torch: 0.3 s in place of 10.

What a launcher gives a script is an environment, a folder, and a Python that finds torch and no kit; so does this. One
test of tests/ranks/test_export.py asks torchrun itself, and so do all labs in the full matrix.
"""

from __future__ import annotations

import multiprocessing
import os
import runpy
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Client, Listener
from pathlib import Path
from threading import Thread

ROOT = str(Path(__file__).parents[1])
PRELOADED = ["torch", "torch.distributed", "torch.nn.parallel", "torch._dynamo"]  # optimizers load the last
NOT_THEIRS = ("PYTHONPATH", "LOCKSTEP_", "RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_")

_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(PRELOADED)


@dataclass(frozen=True, slots=True)
class Ended:
    code: int
    said: str
    complained: str


def launch(script: Path, environments: Sequence[Mapping[str, str]], seconds: float = 240) -> list[Ended]:
    """Runs `script` in one process for each of `environments`, at once. TimeoutError when one takes longer."""
    given = {name: value for name, value in os.environ.items() if not name.startswith(NOT_THEIRS)}
    common = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "MASTER_ADDR": "127.0.0.1"}
    outputs = [script.with_name(f"{script.stem}-{number}") for number in range(len(environments))]
    started = [
        _processes.Process(target=_be, args=(str(script), {**given, **common, **own}, str(output)))
        for own, output in zip(environments, outputs, strict=True)
    ]
    for process in started:
        process.start()
    for process in started:
        process.join(seconds)
    late = [process for process in started if process.is_alive()]
    for process in late:
        process.kill()
        process.join()
    ended = [
        Ended(process.exitcode or 0, output.with_suffix(".out").read_text(), output.with_suffix(".err").read_text())
        for process, output in zip(started, outputs, strict=True)
    ]
    if late:
        raise TimeoutError(f"{script.name} took longer than {seconds:g} s: {ended}")
    return ended


def as_torchrun(script: Path, ranks: int) -> str:
    """What the ranks print, one after the other, when all end well."""
    ended = launch(script, _environments(ranks))
    assert [one.code for one in ended] == [0] * ranks, "\n".join(one.complained for one in ended) + script.read_text()
    return "".join(one.said for one in ended)


def _environments(ranks: int) -> list[dict[str, str]]:
    port = free_port()
    return [
        {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(ranks),
            "LOCAL_WORLD_SIZE": str(ranks),
            "MASTER_PORT": str(port),
        }
        for rank in range(ranks)
    ]


STAND_IN = """
import os, sys
if sys.orig_argv[1:3] == ["-m", "torch.distributed.run"]:
    from multiprocessing.connection import Client
    with Client({address!r}, authkey=b"torchrun") as launcher:
        launcher.send((sys.orig_argv[3:], os.getcwd()))
        code, said, complained = launcher.recv()
    sys.stdout.write(said)
    sys.stderr.write(complained)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
"""


@contextmanager
def stand_in_for_torchrun() -> Iterator[str]:
    """Source of a sitecustomize.py: `-m torch.distributed.run --standalone --nproc-per-node 2 x.py` launches then."""
    with Listener(family="AF_UNIX", authkey=b"torchrun") as listener:
        serving = Thread(target=_serve, args=(listener,), daemon=True)
        serving.start()
        yield STAND_IN.format(address=listener.address)
        with Client(str(listener.address), authkey=b"torchrun") as last:
            last.send(None)
        serving.join()


def _serve(listener: Listener) -> None:
    while True:
        with listener.accept() as asked:
            order = asked.recv()
            if order is None:
                return
            (standalone, option, ranks, script), folder = order
            assert (standalone, option) == ("--standalone", "--nproc-per-node"), order
            ended = launch(Path(folder, script), _environments(int(ranks)))
            said, complained = "".join(one.said for one in ended), "".join(one.complained for one in ended)
            asked.send((max(one.code for one in ended), said, complained))


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _be(script: str, environment: dict[str, str], output: str) -> None:
    for descriptor, kind in ((1, ".out"), (2, ".err")):
        file = os.open(output + kind, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, descriptor)
    os.environ.clear()
    os.environ.update(environment)
    import torch

    torch.set_num_threads(1)  # OMP_NUM_THREADS was read when torch was imported
    folder = os.path.dirname(script)
    os.chdir(folder)
    sys.path[:] = [folder, *(path for path in sys.path if path not in ("", ROOT))]
    sys.argv = [script]
    assert "kit" not in sys.modules
    sys.modules["kit"] = None  # type: ignore[assignment]  # what is exported imports no kit
    runpy.run_path(script, run_name="__main__")
    sys.stdout.flush()
