"""The software: Python, torch and libraries of the kernel's environment, and what the Jupyter server can show.

The server may live in another environment than the kernel. A widget needs a part in each: the server's is a
labextension, on a JupyterHub the site's.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from kit.clusters.doctor.finding import Finding, note, ok, problem, warning, worst
from kit.clusters.system import own_processes
from kit.probe.torch_names import TRIED, never_tried

PYTHON = (3, 11)  # ipykernel 7.4 needs it
NEEDED = {  # what pyproject.toml asks for, which an environment put together by hand may lack
    "ipykernel": "7.4",
    "ipyparallel": "9.0",
    "ipywidgets": "8.1.5",
    "cloudpickle": "3.0",
    "psutil": "5.9",
    "numpy": "1.26",
}
TORCH = TRIED[0]

Version = Callable[[str], str | None]
WIDGETS, BOKEH, ANYWIDGET = "@jupyter-widgets/jupyterlab-manager", "@bokeh/jupyter_bokeh", "anywidget"
JUPYTERLAB = "4.4"


def installed(name: str) -> str | None:
    """The version of a distribution in this environment; None when it is not there."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def numbers(text: str) -> tuple[int, ...]:
    """'2.13.0+cpu' is (2, 13, 0): enough to compare releases."""
    release = re.match(r"\d+(?:\.\d+)*", text)
    return tuple(map(int, release[0].split("."))) if release else ()


def older(found: str, least: str) -> bool:
    return numbers(found) < numbers(least)


def python(running: tuple[int, ...] = sys.version_info[:3], system: str = sys.platform) -> Finding:
    found = f"Python {'.'.join(map(str, running))} on {platform.system()} {platform.machine()}, {sys.executable}"
    if running[:2] < PYTHON:
        least = ".".join(map(str, PYTHON))
        return problem(found, f"Make the environment with Python {least} or newer.")
    if system != "linux":
        return problem(found, "Ranks need Linux: use WSL, a container or Binder.")
    return ok(found)


def torch(of: Version = installed) -> Finding:
    found = of("torch")
    if found is None:
        return problem("not installed", f"Run: {sys.executable} -m pip install torch")
    if older(found, TORCH):
        fix = f"Run: {sys.executable} -m pip install 'torch>={TORCH}'"
        return problem(f"torch {found}, the labs need {TORCH} or newer", fix)
    for words in never_tried(found):
        return note(f"torch {found}: {words}")
    return ok(f"torch {found}")


def libraries(of: Version = installed) -> Finding:
    """The libraries that the ranks and the notebook's kernel need."""
    have = {name: of(name) for name in NEEDED}
    missing = [name for name, found in have.items() if found is None]
    old = [f"{name} {found}" for name, found in have.items() if found and older(found, NEEDED[name])]
    if missing or old:
        wishes = " ".join(f"'{name}>={NEEDED[name]}'" for name in [*missing, *(entry.split()[0] for entry in old)])
        words = [f"not here: {', '.join(missing)}" if missing else "", f"too old: {', '.join(old)}" if old else ""]
        fix = f"Run: {sys.executable} -m pip install {wishes}"
        return problem("; ".join(filter(None, words)), fix)
    return ok(", ".join(f"{name} {found}" for name, found in have.items()))


def papermill(of: Version = installed) -> Finding:
    """What `lockstep check` and `lockstep record` run notebooks with; learners do without it."""
    found = of("papermill")
    if found is None:
        return warning(
            "papermill is not installed: the labs run, `lockstep check` and `lockstep record` do not",
            f"Run: {sys.executable} -m pip install papermill",
        )
    return ok(f"papermill {found}")


def bokeh(of: Version = installed) -> Finding:
    """The plots: bokeh in the kernel and jupyter_bokeh, which carries them to the page, must be of one age."""
    plots, carrier = of("bokeh"), of("jupyter_bokeh")
    if plots is None or carrier is None:
        missing = " and ".join(name for name, found in (("bokeh", plots), ("jupyter_bokeh", carrier)) if found is None)
        return warning(
            f"{missing} is not installed: the panels use pictures that need ipywidgets alone",
            f"Run: {sys.executable} -m pip install bokeh jupyter_bokeh",
        )
    found = f"bokeh {plots}, jupyter_bokeh {carrier}"
    if older(plots, "3.6") or older(carrier, "4.0.5"):
        fix = f"Run: {sys.executable} -m pip install 'bokeh>=3.6' 'jupyter_bokeh>=4.0.5'"
        return warning(f"{found} do not go together: plots may stay empty", fix)
    return ok(found)


@dataclass(frozen=True, slots=True)
class Server:
    """An environment that a JupyterLab runs from, or would."""

    prefix: Path
    lab: str | None  # the version of jupyterlab
    parts: dict[str, str]  # labextension -> version
    pid: int | None = None  # of the running server, where there is one


def front_end(servers: Iterable[Server] | None = None) -> Finding:
    found = list(known_servers() if servers is None else servers)
    if not found:
        return problem(
            "no JupyterLab was found, neither running nor in this environment",
            f"Run: {sys.executable} -m pip install 'jupyterlab>={JUPYTERLAB}'",
        )
    answers = [_judge(server) for server in found]
    fixes = dict.fromkeys(answer.fix for answer in answers if answer.fix)
    return Finding(worst(answers), "; ".join(answer.found for answer in answers), " ".join(fixes))


def _judge(server: Server) -> Finding:
    where = f"the running server {server.pid}" if server.pid else "this environment"
    pip = f"{server.prefix}/bin/python -m pip install"
    if server.lab is None:
        return problem(f"{where} ({server.prefix}) has no jupyterlab", f"Run: {pip} 'jupyterlab>={JUPYTERLAB}'")
    said = f"{where} has jupyterlab {server.lab}"
    if older(server.lab, JUPYTERLAB):
        return warning(f"{said}, older than {JUPYTERLAB}", f"Run: {pip} 'jupyterlab>={JUPYTERLAB}'")
    if WIDGETS not in server.parts:
        fix = f"Run: {pip} ipywidgets (in the server's environment), then restart the server."
        return problem(f"{said} without the part that shows ipywidgets: no panel appears", fix)
    said += f", widgets {server.parts[WIDGETS]}"
    ours, theirs = installed("jupyter_bokeh"), server.parts.get(BOKEH)
    if theirs is None:
        fix = f"Run: {pip} jupyter_bokeh (in the server's environment), or leave it: nothing is lost but zooming."
        return warning(f"{said}, no jupyter_bokeh: the panels use pictures that need ipywidgets alone", fix)
    if ours and numbers(ours)[:1] != numbers(theirs)[:1]:
        fix = f"Make them equal: {pip} jupyter_bokeh=={ours}"
        return warning(f"{said}, jupyter_bokeh {theirs} where the kernel has {ours}: plots may stay empty", fix)
    said += f", jupyter_bokeh {theirs}"
    extra = f", anywidget {server.parts[ANYWIDGET]}" if ANYWIDGET in server.parts else ", no anywidget (not needed)"
    return ok(said + extra)


def known_servers() -> list[Server]:
    """The environments of this user's running servers, then this one where it is none of them."""
    found: dict[Path, Server] = {}
    for pid, prefix in _running():
        found.setdefault(prefix, environment(prefix, pid))
    own = Path(sys.prefix)
    if own not in found and (installed("jupyterlab") or not found):
        found[own] = environment(own)
    return list(found.values())


def environment(prefix: Path, pid: int | None = None) -> Server:
    """What the environment at `prefix` offers a page, read from its files."""
    lab = next(iter(sorted(prefix.glob("lib/python3*/site-packages/jupyterlab-*.dist-info"))), None)
    version = lab.name.removeprefix("jupyterlab-").removesuffix(".dist-info") if lab is not None else None
    if version is None and prefix == Path(sys.prefix):
        version = installed("jupyterlab")  # installed for the user or by the system
    folders = [prefix / "share/jupyter", *_shared()]
    parts: dict[str, str] = {}
    for folder in folders:
        for name in (WIDGETS, BOKEH, ANYWIDGET):
            package = folder / "labextensions" / name / "package.json"
            if name not in parts and package.is_file():
                parts[name] = str(json.loads(package.read_text(encoding="utf-8")).get("version", "?"))
    return Server(prefix, version, parts, pid)


def _shared() -> list[Path]:
    """Where every environment of this user looks for extensions too."""
    named = [Path(entry) for entry in os.environ.get("JUPYTER_PATH", "").split(os.pathsep) if entry]
    data = os.environ.get("JUPYTER_DATA_DIR") or str(Path(os.path.expanduser("~")) / ".local/share/jupyter")
    return [*named, Path(data), Path("/usr/local/share/jupyter"), Path("/usr/share/jupyter")]


def _running() -> list[tuple[int, Path]]:
    """(process id, environment) of this user's Jupyter servers."""
    found = []
    for pid, words in own_processes():
        program = shutil.which(words[0]) if any(_is_jupyter(word) for word in words[1:4]) else None
        if program and "python" in Path(program).name:
            found.append((pid, Path(os.path.abspath(program)).parent.parent))
    return found


def _is_jupyter(word: str) -> bool:
    return Path(word).name in ("jupyterlab", "jupyter-lab", "jupyter-labhub", "jupyterhub-singleuser", "jupyter-server")
