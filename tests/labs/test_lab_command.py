"""`lockstep lab` from the command to a kernel that answers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

from jupyter_client.blocking.client import BlockingKernelClient

from tests.ranks.living import until

ROOT = Path(__file__).parents[2]


def new_kernel(runtime: Path) -> str | None:
    """The id of a kernel the server has started; None until it listens: its file is there before its socket."""
    try:
        (about,) = runtime.glob("jpserver-*.json")
        server = json.loads(about.read_text())
        request = urllib.request.Request(f"{server['url']}api/kernels?token={server['token']}", data=b"{}")
        with urllib.request.urlopen(request) as answer:
            return str(json.load(answer)["id"])
    except urllib.error.HTTPError:
        raise
    except (ValueError, urllib.error.URLError):  # no file, half a file, nobody listens
        return None


def test_kernels_speak_over_sockets_in_a_private_folder(short_path: Path) -> None:
    runtime = short_path / "runtime"
    own = {"HOME": str(short_path), "JUPYTER_RUNTIME_DIR": str(runtime), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "kit.cli", "lab", "--dir", str(short_path / "mine"), "--no-browser"]
    with (
        (short_path / "log").open("w") as log,
        subprocess.Popen(
            [*command, "--", "--ServerApp.port=0"], env={**os.environ, **own}, stdout=log, stderr=log
        ) as lab,
    ):
        try:
            identity = until(lambda: new_kernel(runtime))
            assert identity, (short_path / "log").read_text()
            kernel = runtime / f"kernel-{identity}.json"
            assert runtime.stat().st_mode & 0o077 == 0
            assert json.loads(kernel.read_text())["transport"] == "ipc"
            client = BlockingKernelClient(connection_file=str(kernel))
            client.load_connection_file()
            client.start_channels()
            try:
                client.wait_for_ready(timeout=60)  # what it says before somebody listens is lost
                said = client.execute_interactive("print(6 * 7)", timeout=60, allow_stdin=False)
            finally:
                client.stop_channels()
            assert said["content"]["status"] == "ok"
        finally:
            lab.terminate()
