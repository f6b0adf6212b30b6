"""`lockstep record`: the recordings that a lab shows where no cluster can be had."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import argparse


def add_to(commands: Any) -> None:
    parser = commands.add_parser(
        "record",
        help="for authors of labs: make the recordings that a lab shows where no cluster can be had",
        description="Run labs with their clusters and keep what their cells step, record and sweep, for machines that "
        "can have no cluster. A lab's recordings are replaced when all of it ran, and have a budget of 700 kB. The "
        "exit code is 0 only if every lab was recorded.",
        epilog="Run it whenever a test says that a lab has changed since it was recorded: lockstep record 01",
    )
    parser.add_argument("labs", nargs="*", metavar="LAB", help="number, name or path of a lab (default: all labs)")
    parser.add_argument(
        "--into",
        type=Path,
        metavar="DIR",
        help="folder of recordings (default: assets/traces of this checkout; traces beside a lab of your own)",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from kit.grade.lab_recordings import record_all
    from kit.grade.notebooks import find
    from kit.grade.run import Settings

    into = options.into.absolute() if options.into else None
    troubles = []
    for recorded in record_all(find(options.labs, Path.cwd()), into, Settings()):
        print(recorded, flush=True)
        troubles.append(recorded.trouble)
    return 1 if any(troubles) else 0
