"""The command `lockstep`: `lab` opens the labs, `check` runs them without a browser, `grade` judges what a class handed
in, `board` shows where it is, `record` makes recordings of labs, `new` begins another one, `doctor` looks at the
machine. Each has a module: what it may be asked, and what it does.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from typing import NoReturn

from kit import __version__
from kit.cli import board, check, doctor, grade, lab, new, record, shards, train


class Parser(argparse.ArgumentParser):
    """Answers a request it cannot understand with one sentence and exit code 2, not with a page of usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message.rstrip('.')}. See '{self.prog} --help'.\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; 2 for a request that makes no sense."""
    parser = Parser(
        prog="lockstep", description="Watch and touch distributed training: interactive labs over real ranks."
    )
    parser.add_argument("--version", action="version", version=f"lockstep {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=Parser)
    for command in (lab, train, shards, check, grade, board, record, new, doctor):
        command.add_to(commands)
    options = parser.parse_args(arguments)
    if options.command is None:
        parser.print_help()
        return 0
    if options.command != "lab":  # which becomes JupyterLab
        signal.signal(signal.SIGTERM, _interrupt)
    try:
        code: int = options.run(options)
        return code
    except ValueError as problem:
        print(f"lockstep {options.command}: {problem}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"lockstep {options.command}: interrupted; what it had started is ended.", file=sys.stderr)
        return 130


def _interrupt(number: int, frame: object) -> NoReturn:
    raise KeyboardInterrupt
