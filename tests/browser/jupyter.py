"""A JupyterLab of our own on loopback, in folders that are nobody else's."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


class LabServer:
    """JupyterLab in a folder of its own: its settings, runtime files and notebooks are nobody else's."""

    def __init__(self, folder: Path) -> None:
        self.notebooks = folder / "notebooks"
        self.token = secrets.token_hex(16)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        for part in ("notebooks", "config", "data", "runtime", "workspaces", "settings"):
            (folder / part).mkdir(parents=True)
        quiet = folder / "settings" / "@jupyterlab" / "apputils-extension"
        quiet.mkdir(parents=True)
        news = {"fetchNews": "false", "checkForUpdates": False}
        (quiet / "notification.jupyterlab-settings").write_text(json.dumps(news))
        environment = os.environ | {
            "JUPYTER_CONFIG_DIR": str(folder / "config"),
            "JUPYTER_DATA_DIR": str(folder / "data"),
            "JUPYTER_RUNTIME_DIR": str(folder / "runtime"),
            "JUPYTERLAB_SETTINGS_DIR": str(folder / "settings"),
            "JUPYTERLAB_WORKSPACES_DIR": str(folder / "workspaces"),
            "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))),
        }
        self.log = (folder / "server.log").open("w")
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "jupyterlab",
                "--no-browser",
                "--allow-root",
                "--ServerApp.ip=127.0.0.1",
                f"--ServerApp.port={self.port}",
                "--ServerApp.port_retries=0",
                f"--IdentityProvider.token={self.token}",
                f"--ServerApp.root_dir={self.notebooks}",
                "--LabApp.expose_app_in_browser=True",
            ],
            cwd=folder,
            env=environment,
            stdout=self.log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def wait_until_ready(self, limit: float = 90.0) -> None:
        deadline = time.monotonic() + limit
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise RuntimeError(f"JupyterLab ended with {self.process.returncode}; see {self.log.name}")
            with contextlib.suppress(urllib.error.URLError, ConnectionError, TimeoutError):
                urllib.request.urlopen(f"{self.url}/api?token={self.token}", timeout=5).close()
                return
            time.sleep(0.2)
        raise RuntimeError(f"JupyterLab did not answer within {limit:.0f} s; see {self.log.name}")

    def shut_kernels(self) -> None:
        kernels = f"{self.url}/api/kernels"
        with urllib.request.urlopen(f"{kernels}?token={self.token}", timeout=10) as answer:
            running = json.load(answer)
        for kernel in running:
            gone = urllib.request.Request(f"{kernels}/{kernel['id']}?token={self.token}", method="DELETE")
            with contextlib.suppress(urllib.error.HTTPError):
                urllib.request.urlopen(gone, timeout=30).close()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.shut_kernels()
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()


def notebook_of(cells: list[str]) -> dict[str, Any]:
    code = [
        {"cell_type": "code", "id": f"c{i}", "source": text, "metadata": {}, "outputs": [], "execution_count": None}
        for i, text in enumerate(cells)
    ]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return {"cells": code, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
