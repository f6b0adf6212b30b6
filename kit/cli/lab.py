"""`lockstep lab`: the labs in a folder of the learner's own, and JupyterLab on them."""

from __future__ import annotations

import os
import socket
import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from jupyter_core.paths import jupyter_runtime_dir

from kit import resources
from kit.clusters.folder import RunFolder

if TYPE_CHECKING:
    import argparse


def add_to(commands: Any) -> None:
    parser = commands.add_parser(
        "lab",
        help="copy the labs to your folder and open them in JupyterLab",
        description="Copy the labs to your folder, where nothing is ever overwritten, and open JupyterLab on lab 00.",
        epilog="What follows a lone -- goes to JupyterLab: lockstep lab --no-browser -- --port 9999",
    )
    parser.add_argument("--dir", default="lockstep-labs", metavar="DIR", help="your folder (default: ./lockstep-labs)")
    parser.add_argument("--no-browser", action="store_true", help="print the address instead of opening a browser")
    parser.add_argument("jupyter", nargs="*", metavar="-- OPTIONS", help="options of JupyterLab")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> NoReturn:
    folder = Path(options.dir).expanduser().resolve()
    try:
        copied, kept = resources.copy_to(folder)
    except OSError as problem:
        raise ValueError(
            f"the labs cannot be copied to {folder} ({problem.strerror}): name another folder with --dir."
        ) from problem
    stays = f"; {len(kept)} that were there stay as they are" if kept else ""
    print(f"Your labs are in {folder} ({len(copied)} files copied{stays}).", flush=True)
    first = resources.shipped().notebooks()[0].name
    _have_room_for_sockets()
    command = [
        *(sys.executable, "-m", "jupyterlab"),
        f"--ServerApp.root_dir={folder}",
        f"--LabApp.default_url=/lab/tree/labs/{first}",
        # tabs of another project's notebooks would be looked for in this folder
        f"--LabApp.workspaces_dir={folder / '.jupyter' / 'workspaces'}",
        "--KernelManager.transport=ipc",  # other users of this host could read along what kernels say over TCP
        *("--log-level=ERROR", "--LabApp.log_level=ERROR"),  # the address stands alone, where it can be found
        *(["--no-browser"] if options.no_browser else []),
        *(["--allow-root"] if os.geteuid() == 0 else []),
        *options.jupyter,
    ]
    ours = str(resources.assets() / "jupyter")
    os.environ["JUPYTER_CONFIG_PATH"] = os.pathsep.join([ours, *filter(None, [os.environ.get("JUPYTER_CONFIG_PATH")])])
    os.execv(sys.executable, command)


def _have_room_for_sockets() -> None:
    """Has Jupyter put its runtime files, and the sockets of its kernels with them, where sockets can be."""
    usual = Path(jupyter_runtime_dir())
    try:
        usual.mkdir(parents=True, exist_ok=True, mode=0o700)
        longest = usual / f"kernel-{uuid.uuid4()}-ipc-5"
        with socket.socket(socket.AF_UNIX) as trial:
            trial.bind(str(longest))
        longest.unlink()
    except OSError as refused:  # the name is too long, or the file system has none
        folder = RunFolder()
        folder.keep_through_exec()
        os.environ["JUPYTER_RUNTIME_DIR"] = str(folder.path)
        why = refused.strerror or str(refused)
        print(f"Jupyter's runtime files are in {folder.path}: {usual} can hold no sockets ({why}).", flush=True)
