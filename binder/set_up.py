"""Make the virtual environment that `python3 labs` and `python3 tests` run in: standard library only.

The second run finds the stamp of the first and is over in a moment; a change of pyproject.toml, of the constraints or
of the extras asked for runs pip again. The package is installed editable: a change of its code needs nothing.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
import venv
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
CONSTRAINTS = ROOT / "binder" / "constraints.txt"
CPU_BUILDS = "https://download.pytorch.org/whl/cpu"
STAMP = "lockstep-set-up.json"
LOG = "lockstep-set-up.log"


def environment(folder: Path, extras: tuple[str, ...] = ()) -> Path:
    """The Python of a virtual environment in `folder` that holds the package with `extras`.

    SystemExit, with what to do in its text, where it cannot be made.
    """
    python = folder / "bin" / "python"
    source = {"checkout": str(ROOT), "content": _fingerprint()}
    stamp = _stamped(folder)
    if python.exists() and source.items() <= stamp.items() and set(extras) <= set(stamp["extras"]):
        return python
    _say(f"Setting up Lockstep in {folder} (once; a few minutes on a slow line).")
    installer = _installer(folder, python)
    package = f"{ROOT}[{','.join(extras)}]" if extras else str(ROOT)
    arguments = ["install", "--editable", package, "--constraint", str(CONSTRAINTS), *_torch_index()]
    _pip([*installer, *arguments], folder / LOG)
    (folder / STAMP).write_text(json.dumps({**source, "extras": extras}))
    return python


def run(python: Path, *arguments: str) -> None:
    """Become `python arguments…`, with the environment's own commands first on the path. Does not return."""
    os.environ["PATH"] = os.pathsep.join([str(python.parent), os.environ.get("PATH", os.defpath)])
    os.environ["VIRTUAL_ENV"] = str(python.parent.parent)
    sys.stdout.flush()
    os.execv(python, [str(python), *arguments])


def take_option(arguments: list[str], name: str, default: str) -> str:
    """Take `name VALUE` or `name=VALUE` out of `arguments` and return the value; the others stay."""
    for position, argument in enumerate(arguments):
        if argument == name and position + 1 < len(arguments):
            value = arguments[position + 1]
            del arguments[position : position + 2]
            return value
        if argument == name:
            raise SystemExit(f"{name} needs a folder after it.")
        if argument.startswith(f"{name}="):
            return arguments.pop(position).partition("=")[2]
    return default


def _fingerprint() -> str:
    content = (ROOT / "pyproject.toml").read_bytes() + CONSTRAINTS.read_bytes()
    return hashlib.sha256(content).hexdigest()


def _stamped(folder: Path) -> dict[str, Any]:
    """What the last complete set-up of `folder` wrote; empty where there was none or it was cut short."""
    try:
        stamp: dict[str, Any] = json.loads((folder / STAMP).read_text())
    except (FileNotFoundError, ValueError):
        return {}
    return stamp


def _installer(folder: Path, python: Path) -> list[str]:
    """A pip command that installs into the environment in `folder`, which is made where it is missing."""
    own = [str(python), "-m", "pip"]
    if _works([*own, "--version"]):
        return own
    if importlib.util.find_spec("ensurepip") is not None:
        try:
            venv.EnvBuilder(with_pip=True, symlinks=True).create(folder)
        except (OSError, subprocess.CalledProcessError) as problem:
            raise SystemExit(f"The virtual environment {folder} could not be made: {problem}.") from problem
        return own
    # Debian and Ubuntu keep ensurepip in a package of its own; the pip of this Python can fill an empty environment.
    here = [sys.executable, "-m", "pip"]
    if not _works([*here, "--python", sys.executable, "--version"]):
        raise SystemExit(
            f"{sys.executable} can make no virtual environment: it has neither 'ensurepip' nor a pip from 22.3 on. "
            "On Debian and Ubuntu: sudo apt install python3-venv. Then run this command again."
        )
    venv.EnvBuilder(with_pip=False, symlinks=True).create(folder)
    return [*here, "--python", str(python)]


def _torch_index() -> list[str]:
    """pip's arguments that find the CPU build of torch, which is a tenth of the size, where no GPU asks for another."""
    if not sys.platform.startswith("linux") or _has_gpu():
        return []
    try:
        with urllib.request.urlopen(f"{CPU_BUILDS}/torch/", timeout=5):
            return ["--extra-index-url", CPU_BUILDS]
    except (urllib.error.URLError, OSError):
        _say(f"{CPU_BUILDS} cannot be reached: torch comes from where pip is configured to look.")
        return []


def _has_gpu() -> bool:
    return _works(["nvidia-smi", "--list-gpus"]) or Path("/proc/driver/nvidia/version").exists()


def _pip(command: list[str], log: Path) -> None:
    """Run pip with its talk in `log` and one moving line on a terminal; SystemExit with pip's errors when it fails."""
    moving = sys.stdout.isatty()
    with log.open("w") as record:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        )
        assert process.stdout is not None
        for line in process.stdout:
            record.write(line)
            if moving and line.lstrip().startswith(("Collecting", "Downloading", "Installing", "Building")):
                print(f"\r\033[K  {line.strip()[:76]}", end="", flush=True)
    if moving:
        print("\r\033[K", end="")
    if process.wait() != 0:
        errors = [line for line in log.read_text().splitlines() if "ERROR" in line or "error:" in line][-6:]
        raise SystemExit(
            "\n".join(errors) + f"\n\npip could not install Lockstep (all it said is in {log}). "
            "Most often the machine cannot reach a package index: connect it, or name a mirror with "
            "'pip config set global.index-url URL', and run this command again."
        )


def _works(command: list[str]) -> bool:
    try:
        return subprocess.run(command, capture_output=True, timeout=60).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def _say(sentence: str) -> None:
    print(sentence, flush=True)
