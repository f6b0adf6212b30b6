"""The page's side: what the Jupyter server can show, which may live in another environment than the kernel.

A widget needs a part in the kernel's environment and one in the server's (a labextension). On a JupyterHub the second
is the site's.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import psutil

from kit.cluster.doctor.finding import Finding
from kit.cluster.doctor.software import installed, numbers, older

WIDGETS, BOKEH, ANYWIDGET = "@jupyter-widgets/jupyterlab-manager", "@bokeh/jupyter_bokeh", "anywidget"
JUPYTERLAB = "4.4"


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
        return Finding(
            "JupyterLab",
            "problem",
            "no JupyterLab was found, neither running nor in this environment",
            f"Run: {sys.executable} -m pip install 'jupyterlab>={JUPYTERLAB}'",
        )
    words, fixes, status = [], [], "ok"
    for server in found:
        said, fix, worse = _judge(server)
        words.append(said)
        if fix and worse != "ok":
            fixes.append(fix)
        status = max(status, worse, key=("ok", "note", "warning", "problem").index)
    return Finding("JupyterLab", status, "; ".join(words), " ".join(dict.fromkeys(fixes)))  # type: ignore[arg-type]


def _judge(server: Server) -> tuple[str, str, str]:
    """(what there is, fix, status) of one server."""
    where = f"the running server {server.pid}" if server.pid else "this environment"
    pip = f"{server.prefix}/bin/python -m pip install"
    if server.lab is None:
        return f"{where} ({server.prefix}) has no jupyterlab", f"Run: {pip} 'jupyterlab>={JUPYTERLAB}'", "problem"
    said = f"{where} has jupyterlab {server.lab}"
    if older(server.lab, JUPYTERLAB):
        return f"{said}, older than {JUPYTERLAB}", f"Run: {pip} 'jupyterlab>={JUPYTERLAB}'", "warning"
    if WIDGETS not in server.parts:
        fix = f"Run: {pip} ipywidgets (in the server's environment), then restart the server."
        return f"{said} without the part that shows ipywidgets: no panel appears", fix, "problem"
    said += f", widgets {server.parts[WIDGETS]}"
    ours, theirs = installed("jupyter_bokeh"), server.parts.get(BOKEH)
    if theirs is None:
        fix = f"Run: {pip} jupyter_bokeh (in the server's environment), or leave it: nothing is lost but zooming."
        return f"{said}, no jupyter_bokeh: the panels use pictures that need ipywidgets alone", fix, "warning"
    if ours and numbers(ours)[:1] != numbers(theirs)[:1]:
        fix = f"Make them equal: {pip} jupyter_bokeh=={ours}"
        return f"{said}, jupyter_bokeh {theirs} where the kernel has {ours}: plots may stay empty", fix, "warning"
    said += f", jupyter_bokeh {theirs}"
    extra = f", anywidget {server.parts[ANYWIDGET]}" if ANYWIDGET in server.parts else ", no anywidget (not needed)"
    return said + extra, "", "ok"


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
    for process in psutil.process_iter():
        try:
            if process.uids().real != os.getuid():
                continue
            words = process.cmdline()
        except psutil.Error:
            continue  # it ended meanwhile
        is_server = any(_is_jupyter(word) for word in words[1:4])
        program = shutil.which(words[0]) if words else None
        if is_server and program and "python" in Path(program).name:
            found.append((process.pid, Path(os.path.abspath(program)).parent.parent))
    return found


def _is_jupyter(word: str) -> bool:
    return Path(word).name in ("jupyterlab", "jupyter-lab", "jupyter-labhub", "jupyterhub-singleuser", "jupyter-server")
