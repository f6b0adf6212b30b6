"""The command `lockstep`: `lab` opens the labs, `check` runs them without a browser, `record` makes their recordings,
`doctor` looks at the machine.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from kit import __version__, resources


class Parser(argparse.ArgumentParser):
    """Answers a request it cannot understand with one sentence and exit code 2, not with a page of usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message.rstrip('.')}. See '{self.prog} --help'.\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; 2 for a request that makes no sense."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.command is None:
        parser.print_help()
        return 0
    try:
        return {"lab": _lab, "check": _check, "record": _record, "doctor": _doctor}[options.command](options)
    except ValueError as problem:
        print(f"lockstep {options.command}: {problem}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"lockstep {options.command}: interrupted; what it had started is ended.", file=sys.stderr)
        return 130


def _parser() -> Parser:
    parser = Parser(
        prog="lockstep", description="Watch and touch distributed training: interactive labs over real ranks."
    )
    parser.add_argument("--version", action="version", version=f"lockstep {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=Parser)

    lab = commands.add_parser(
        "lab",
        help="copy the labs to your folder and open them in JupyterLab",
        description="Copy the labs to your folder, where nothing is ever overwritten, and open JupyterLab on lab 01.",
        epilog="What follows a lone -- goes to JupyterLab: lockstep lab --no-browser -- --port 9999",
    )
    lab.add_argument("--dir", default="lockstep-labs", metavar="DIR", help="your folder (default: ./lockstep-labs)")
    lab.add_argument("--no-browser", action="store_true", help="print the address instead of opening a browser")
    lab.add_argument("jupyter", nargs="*", metavar="-- OPTIONS", help="options of JupyterLab")

    check = commands.add_parser(
        "check",
        help="run labs without a browser and report what their checks say",
        description="Run labs without a browser and report, lab by lab, which checks passed, failed or were not "
        "attempted. The exit code is 0 only if all is as expected: every notebook runs to its end; with --solutions "
        "every check passes; in the labs as shipped every check says 'not attempted'; in your own none fails.",
        epilog="Examples: 'lockstep check 01', 'lockstep check collectives --solutions --ranks 3', 'lockstep check "
        "handed-in/*.ipynb --json marks.json'. Notebooks run with your rights: run those of strangers in a container.",
    )
    check.add_argument(
        "labs", nargs="*", metavar="LAB", help="number or name of a lab, or path of notebooks (default: all labs)"
    )
    check.add_argument("--solutions", action="store_true", help="put the solutions in place of the exercises")
    check.add_argument("--ranks", type=_ranks, metavar="N", help="number of ranks (default: what the notebook says)")
    check.add_argument("--json", type=Path, metavar="FILE", help="write the report to FILE too, notebook by notebook")
    check.add_argument("--keep", type=Path, metavar="DIR", help="keep the notebooks as they were run")
    check.add_argument(
        "--cell-limit", type=_seconds, default=120.0, metavar="S", help="seconds a cell may take (default: 120)"
    )
    check.add_argument(
        "--lab-limit", type=_seconds, default=600.0, metavar="S", help="seconds a lab may take (default: 600)"
    )
    check.add_argument("--jobs", type=_jobs, metavar="N", help="notebooks at once (default: as cores and memory allow)")

    record = commands.add_parser(
        "record",
        help="for authors of labs: make the recordings that a lab shows where no cluster can be had",
        description="Run labs with their clusters and keep what their cells step, record and sweep, for machines that "
        "can have no cluster. A lab's recordings are replaced when all of it ran, and have a budget of 700 kB. The "
        "exit code is 0 only if every lab was recorded.",
        epilog="Run it whenever a test says that a lab has changed since it was recorded: lockstep record 01",
    )
    record.add_argument("labs", nargs="*", metavar="LAB", help="number, name or path of a lab (default: all labs)")
    record.add_argument(
        "--into", type=Path, metavar="DIR", help="folder of recordings (default: assets/traces of this checkout)"
    )

    doctor = commands.add_parser(
        "doctor",
        help="look at this machine before a workshop: what is missing, and how to mend it",
        description="Look at this machine: Python, torch, GPUs, memory, folders, JupyterLab's parts, the batch job "
        "and real ranks in an all-reduce. Nothing is changed. The exit code is 0 if the labs run here, 1 if there is a "
        "problem.",
    )
    doctor.add_argument("--json", action="store_true", help="print the findings as JSON")
    doctor.add_argument("--ranks", type=_at_least_one, default=4, metavar="N", help="ranks to start (default: 4)")
    doctor.add_argument(
        "--end-leftovers", action="store_true", help="first end ranks of yours whose notebook is gone, by process id"
    )
    return parser


def _whole(text: str, least: int, what: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < least:
        raise argparse.ArgumentTypeError(f"{what} is a whole number from {least} on, not '{text}'")
    return int(text)


def _ranks(text: str) -> int:
    return _whole(text, 2, "the number of ranks")


def _at_least_one(text: str) -> int:
    return _whole(text, 1, "the number of ranks")


def _jobs(text: str) -> int:
    return _whole(text, 1, "the number of notebooks at once")


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"a limit is a number of seconds above 0, not '{text}'")
    return seconds


def _lab(options: argparse.Namespace) -> int:
    folder = Path(options.dir).expanduser().resolve()
    try:
        copied, kept = resources.copy_to(folder)
    except OSError as problem:
        raise ValueError(
            f"the labs cannot be copied to {folder} ({problem.strerror}): name another folder with --dir."
        ) from problem
    stays = f"; {len(kept)} that were there stay as they are" if kept else ""
    print(f"Your labs are in {folder} ({len(copied)} files copied{stays}).", flush=True)
    first = next(iter(sorted((folder / "labs").glob("01_*.ipynb"))), folder / "labs")
    command = [
        *(sys.executable, "-m", "jupyterlab"),
        f"--ServerApp.root_dir={folder}",
        f"--LabApp.default_url=/lab/tree/{first.relative_to(folder).as_posix()}",
        # tabs of another project's notebooks would be looked for in this folder
        f"--LabApp.workspaces_dir={folder / '.jupyter' / 'workspaces'}",
        *("--log-level=ERROR", "--LabApp.log_level=ERROR"),  # the address stands alone, where it can be found
        *(["--no-browser"] if options.no_browser else []),
        *(["--allow-root"] if os.geteuid() == 0 else []),
        *options.jupyter,
    ]
    ours = str(resources.assets() / "jupyter")
    os.environ["JUPYTER_CONFIG_PATH"] = os.pathsep.join([ours, *filter(None, [os.environ.get("JUPYTER_CONFIG_PATH")])])
    os.execv(sys.executable, command)


def _check(options: argparse.Namespace) -> int:
    from kit.instructor import report
    from kit.instructor.notebooks import find, labs_folder
    from kit.instructor.outcome import Outcome
    from kit.instructor.run import Settings, run_all

    notebooks = find(options.labs, Path.cwd())
    for target in filter(None, [options.json and options.json.parent, options.keep]):
        try:
            target.mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            raise ValueError(f"the folder {target} cannot be made ({problem.strerror}).") from problem
    if not options.labs:
        print(f"Labs in {labs_folder(Path.cwd())}", flush=True)
    settings = Settings(options.solutions, options.ranks, options.cell_limit, options.lab_limit, options.keep)
    outcomes: list[Outcome] = []

    def keep_json() -> None:  # before the first and after each, so that an evening's work outlives an interrupt
        if options.json:
            page = report.as_json(outcomes, __version__, options.ranks, len(notebooks))
            options.json.write_text(page, encoding="utf-8")

    try:
        keep_json()
    except OSError as problem:
        raise ValueError(f"{options.json} cannot be written ({problem.strerror}): name another file.") from problem
    table = report.Table(notebooks)
    print(table.head(), flush=True)
    signal.signal(signal.SIGTERM, _interrupt)
    for outcome in run_all(notebooks, settings, options.jobs):
        print(table.row(outcome), flush=True)
        outcomes.append(outcome)
        outcomes.sort(key=lambda outcome: notebooks.index(outcome.notebook))
        keep_json()
    print("", *report.sentences(outcomes), sep="\n", flush=True)
    return 0 if all(outcome.as_expected for outcome in outcomes) else 1


def _record(options: argparse.Namespace) -> int:
    from kit.instructor.notebooks import find
    from kit.instructor.record import record_all
    from kit.instructor.run import Settings

    if options.into is None and resources.installed():
        raise ValueError("recordings belong into a checkout of Lockstep: name a folder of your own with --into DIR.")
    into = options.into or resources.assets() / "traces"
    signal.signal(signal.SIGTERM, _interrupt)
    made = []
    for recorded in record_all(find(options.labs, Path.cwd()), into.absolute(), Settings()):
        print(recorded, flush=True)
        made.append(recorded)
    return 1 if any(recorded.trouble for recorded in made) else 0


def _doctor(options: argparse.Namespace) -> int:
    from kit.cluster.doctor import leftovers, table
    from kit.cluster.doctor.examine import examine

    began = time.monotonic()
    width = min(120, max(60, shutil.get_terminal_size().columns))
    ended = leftovers.end() if options.end_leftovers else ()
    if ended and not options.json:
        print(f"Ended left-over processes {', '.join(map(str, ended))}.", flush=True)
    signal.signal(signal.SIGTERM, _interrupt)
    findings = []
    for finding in examine(options.ranks):
        findings.append(finding)
        if not options.json:
            print(table.lines(finding, width), flush=True)
    seconds = time.monotonic() - began
    if options.json:
        print(table.as_json(findings, __version__, options.ranks, seconds, ended))
    else:
        print("", table.summary(findings, seconds), sep="\n")
    return 1 if any(finding.status == "problem" for finding in findings) else 0


def _interrupt(number: int, frame: object) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
