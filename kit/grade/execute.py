"""Runs one notebook through papermill: what `lockstep check` starts as a process, once for each notebook."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import papermill
from traitlets.config import Config

from kit.clusters.folder import RunFolder


def execute(notebook: Path, executed: Path, work: Path, cell_limit: float, parameters: dict[str, Any]) -> Any:
    """The notebook as it stands after all its cells, which `executed` holds too; raises for a cell with an error.

    work: the kernel's working folder. cell_limit: seconds. Kernel and papermill speak over sockets in a folder of this
    user's: others on the host cannot read along, and two kernels that start at once cannot be given the same ports.
    """
    sockets = RunFolder()
    kernel = {"transport": "ipc", "connection_file": str(sockets.path / "kernel.json")}
    try:
        return papermill.execute_notebook(
            str(notebook),
            str(executed),
            parameters=parameters,
            kernel_name="python3",
            cwd=str(work),
            execution_timeout=max(1, round(cell_limit)),
            progress_bar=False,
            coalesce_streams=True,  # a kernel sends what is printed in pieces, which end anywhere
            config=Config(KernelManager=kernel),
        )
    finally:
        sockets.remove()


def main() -> None:
    """Ends as papermill's own command does: exit code 1 and a traceback for a notebook that stopped."""
    parser = argparse.ArgumentParser(description=__doc__)
    for place in ("notebook", "executed", "work"):
        parser.add_argument(place, type=Path)
    parser.add_argument("--cell-limit", type=float, required=True)
    parser.add_argument("--ranks", type=int)
    given = parser.parse_args()
    parameters = {} if given.ranks is None else {"ranks": given.ranks}
    execute(given.notebook, given.executed, given.work, given.cell_limit, parameters)


if __name__ == "__main__":
    main()
