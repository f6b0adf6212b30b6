"""What mybinder.org makes of `binder/`, made here: the environment, JupyterLab on lab 00, and the labs in its limits.

repo2docker takes the Python of runtime.txt and runs `pip install -r binder/requirements.txt`, then `binder/postBuild`,
both in the root of the repository (https://repo2docker.readthedocs.io/en/latest/config_files.html). A session there has
2 GB, its server included; one core stands for its share of a busy machine.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from packaging.utils import canonicalize_name

from binder.set_up import CPU_BUILDS, _installer
from tests.benchmarks.bench_labs import Sampler
from tests.ranks.living import until

ROOT = Path(__file__).parents[2]
LABS = ("00", "01")  # of the others, memory is for tests.benchmarks.bench_labs to say
LIMIT = 2_000_000_000  # bytes
ONE_CORE = ("taskset", "--cpu-list", str(min(os.sched_getaffinity(0))))
ADDRESS = re.compile(r"https://mybinder\.org/v2/\S+\?urlpath=(?P<page>lab/tree/(?P<lab>[\w/]+\.ipynb))")


@dataclass(frozen=True)
class Environment:
    """What was built: where its commands are, and the variables that its processes get."""

    commands: Path
    variables: dict[str, str]

    def run(self, *command: str | Path) -> str:
        done = subprocess.run(command, cwd=ROOT, env=self.variables, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        return done.stdout


@dataclass(frozen=True)
class Server:
    """JupyterLab in that environment, as Binder starts it: in the root of the repository."""

    process: subprocess.Popen[bytes]
    port: int
    token: str

    def get(self, page: str) -> str:
        question = urllib.request.Request(f"http://127.0.0.1:{self.port}/{page}")
        question.add_header("Authorization", f"token {self.token}")
        with urllib.request.urlopen(question, timeout=30) as answer:
            return str(answer.read(), "utf-8")

    def answers(self) -> bool:
        with contextlib.suppress(OSError):
            return bool(self.get("api"))
        return False


@pytest.fixture(scope="module")
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    if not request.config.getoption("--binder"):
        pytest.skip("takes three minutes and a package index; --binder runs it")
    wanted = (ROOT / "binder" / "runtime.txt").read_text().strip()
    if wanted != f"python-{sys.version_info.major}.{sys.version_info.minor}":
        pytest.skip(f"Binder has {wanted}; run the tests with that")
    folder = tmp_path_factory.mktemp("binder")
    commands = folder / "venv" / "bin"
    variables = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "LOCKSTEP_SOLUTIONS")}
    variables |= {f"JUPYTER_{kind}_DIR": str(folder / kind) for kind in ("CONFIG", "DATA", "RUNTIME")}
    variables["PATH"] = os.pathsep.join([str(commands), os.environ.get("PATH", os.defpath)])
    environment = Environment(commands, variables | _patience())
    installer = _installer(folder / "venv", commands / "python")
    environment.run(*installer, "install", "-r", "binder/requirements.txt")
    environment.run(ROOT / "binder" / "postBuild")
    yield environment
    shutil.rmtree(folder)  # more than a gigabyte


def _patience() -> dict[str, str]:
    """Where the index of the CPU builds is out of reach, pip would ask it six times for each package."""
    try:
        urllib.request.urlopen(f"{CPU_BUILDS}/torch/", timeout=5).close()
    except OSError:
        return {"PIP_RETRIES": "0"}
    return {}


@pytest.fixture(scope="module")
def server(built: Environment) -> Iterator[Server]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    token = secrets.token_hex(16)
    options = ["--no-browser", "--allow-root", "--ip=127.0.0.1", f"--port={port}", f"--IdentityProvider.token={token}"]
    log = built.commands.parent / "server.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [*ONE_CORE, str(built.commands / "jupyter"), "lab", *options],
            cwd=ROOT,
            env=built.variables,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    running = Server(process, port, token)
    try:
        assert until(lambda: process.poll() is not None or running.answers(), 90), "no answer from JupyterLab"
        assert process.poll() is None, log.read_text()
        yield running
    finally:
        process.terminate()
        process.wait(30)


def test_the_environment_is_the_tested_one_with_the_cpu_torch(built: Environment) -> None:
    lines = (ROOT / "binder" / "constraints.txt").read_text().splitlines()
    pinned = {canonicalize_name(name): version for name, _, version in (line.partition("==") for line in lines)}
    listed = json.loads(built.run("pip", "list", "--format", "json"))
    beside = {"pip", "setuptools", "lockstep-labs"}  # what an empty environment has, and the package itself
    names = {canonicalize_name(one["name"]): one["version"].partition("+")[0] for one in listed}
    installed = {name: version for name, version in names.items() if name not in beside}
    assert installed == {name: pinned.get(name, "not pinned") for name in installed}
    assert built.run("python", "-c", "import torch; print(torch.version.cuda)").strip() == "None"


def test_the_address_in_the_readme_opens_the_first_lab_in_jupyterlab(server: Server) -> None:
    address = ADDRESS.search((ROOT / "README.md").read_text())
    assert address, "the README has no address on mybinder.org"
    contents = json.loads(server.get(f"api/contents/{address['lab']}"))
    cells = json.loads((ROOT / "labs" / "00_ranks.ipynb").read_text())["cells"]
    assert [cell["id"] for cell in contents["content"]["cells"]] == [cell["id"] for cell in cells]
    page = server.get(address["page"])
    settings = json.loads(
        re.findall(r'<script id="jupyter-config-data" type="application/json">(.*?)</script>', page)[0]
    )
    assert settings["treePath"] == address["lab"]
    assert settings["news"]["disabled"], "what postBuild copies is not heard"


@pytest.mark.parametrize("how", ["--solutions", "untouched"])
def test_the_labs_pass_in_two_gigabytes_and_on_one_core(
    built: Environment, server: Server, how: str, tmp_path: Path
) -> None:
    check = [*ONE_CORE, str(built.commands / "lockstep"), "check", *LABS, "--json", "marks.json"]
    command = check if how == "untouched" else [*check, how]
    process = subprocess.Popen(command, cwd=tmp_path, env=built.variables, stdout=subprocess.PIPE, text=True)
    sampler = Sampler(psutil.Process(server.process.pid), psutil.Process(process.pid))
    sampler.start()
    said, _ = process.communicate()
    highest = sampler.stop()
    print(f"{how}: {highest / 1e6:.0f} MB at the highest")  # -rP shows it
    marks = json.loads((tmp_path / "marks.json").read_text())
    assert process.returncode == 0, said
    assert (marks["solutions"], len(marks["labs"])) == (how == "--solutions", len(LABS))
    assert 0 < highest < LIMIT, f"{highest / 1e6:.0f} MB"
