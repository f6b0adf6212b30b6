"""Folders: where a cluster meets, the home that Jupyter writes to, the folder one works in."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

from kit.cluster.doctor.finding import Finding
from kit.cluster.folder import RunFolder

ROOM = 50_000_000  # bytes that notebooks, their checkpoints and a cluster's files want
LIBRARIES = frozenset(
    ("torch", "numpy", "kit", "bokeh", "ipywidgets", "ipyparallel", "ipykernel", "IPython", "jupyter_bokeh", "zmq")
    + ("tornado", "traitlets", "psutil", "cloudpickle", "mermaid", "papermill", "nbformat")
)


def run_folder(parent: str | None = None) -> Finding:
    """Makes one as a cluster would, and removes it."""
    try:
        folder = RunFolder(parent)
    except ValueError as refused:
        return Finding("run folder", "problem", "cannot be made", _sentence(str(refused)))
    try:
        mode = folder.path.stat().st_mode & 0o777
        length = len(os.fsencode(folder.socket))
        free = shutil.disk_usage(folder.path).free
    finally:
        folder.remove()
    where = str(folder.path.parent)
    found = f"{where}: mode {mode:o}, {_size(free)} free, a socket's path has {length} of 107 characters"
    if mode != 0o700:
        fix = "Use a folder on a file system that keeps modes: kit.cluster(folder='/tmp')."
        return Finding("run folder", "problem", f"{found}; others could look into it", fix)
    if free < ROOM:
        fix = f"Make room in {where}, or set TMPDIR to a folder with some."
        return Finding("run folder", "warning", found, fix)
    return Finding("run folder", "ok", found)


def home(path: str | None = None) -> Finding:
    """Jupyter keeps connection files, settings and the trust of notebooks in the home folder."""
    folder = Path(path if path is not None else os.path.expanduser("~"))
    fix = (
        "Before starting Jupyter: export HOME=$(mktemp -d), or set JUPYTER_RUNTIME_DIR, JUPYTER_DATA_DIR, "
        "JUPYTER_CONFIG_DIR and IPYTHONDIR to folders that can be written to."
    )
    if not folder.is_absolute() or not folder.is_dir():
        return Finding("home", "problem", f"there is no folder {str(folder)!r}", fix)
    refusal = why_not_writable(folder)
    if refusal:
        redirected = all(os.environ.get(name) for name in ("JUPYTER_RUNTIME_DIR", "IPYTHONDIR"))
        found = f"{folder} cannot be written to ({refusal})"
        if redirected:
            return Finding("home", "note", f"{found}; JUPYTER_RUNTIME_DIR and IPYTHONDIR lead elsewhere")
        return Finding("home", "problem", found, fix)
    free = shutil.disk_usage(folder).free
    if free < ROOM:
        return Finding("home", "warning", f"{folder}: {_size(free)} free", f"Make room in {folder}.")
    return Finding("home", "ok", f"{folder}: can be written to, {_size(free)} free")


def working_folder(folder: Path | None = None) -> Finding:
    """Notebooks import from the folder they lie in first: a torch.py there hides torch from them."""
    try:
        here = folder or Path.cwd()
    except FileNotFoundError:
        return Finding("this folder", "problem", "it was deleted", "Change to a folder that exists: cd")
    hiding = sorted(name for name in here.iterdir() if _hides(name)) if os.access(here, os.R_OK) else []
    if hiding:
        names = ", ".join(path.name for path in hiding)
        fix = f"Rename {names}: notebooks in this folder would import it instead of the library of that name."
        return Finding("this folder", "warning", f"{here} holds {names}", fix)
    refusal = why_not_writable(here)
    if refusal:
        fix = "Work in another folder: lockstep lab --dir FOLDER."
        return Finding("this folder", "warning", f"{here} cannot be written to ({refusal})", fix)
    return Finding("this folder", "ok", f"{here}: can be written to, hides no library")


def _hides(path: Path) -> bool:
    if path.suffix == ".py":
        return path.stem in LIBRARIES or path.stem in sys.stdlib_module_names
    is_package = path.is_dir() and (path / "__init__.py").exists()
    # the checkout of Lockstep itself is a folder one works in
    return is_package and (path.name in LIBRARIES - {"kit"} or path.name in sys.stdlib_module_names)


def why_not_writable(folder: Path) -> str:
    """'' when a file can be made and filled there, else the system's reason. Asking is not enough on a full disk."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"lockstep" * 8192)
            file.flush()
    except OSError as refused:
        return refused.strerror or type(refused).__name__
    return ""


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:] + ("" if text.endswith(".") else ".")


def _size(size: int) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"
