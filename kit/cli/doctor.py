"""`lockstep doctor`: what is missing on this machine, and how to mend it; with `--gpu`, what its GPUs really do."""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kit import __version__
from kit.cli.numbers import minutes, numbers, whole

if TYPE_CHECKING:
    import argparse

    from kit.cli.gpu.facts import Outcome
    from kit.cli.gpu.report import Page
    from kit.cli.gpu.trial import Wishes

RANKS = 4


def add_to(commands: Any) -> None:
    parser = commands.add_parser(
        "doctor",
        help="look at this machine before a workshop: what is missing, and how to mend it",
        description="Look at this machine: Python, torch, GPUs, memory, folders, JupyterLab's parts, the batch job "
        "and real ranks in an all-reduce. Nothing is changed. The exit code is 0 if the labs run here, 1 if there is a "
        "problem.",
        epilog="The first time on a machine with GPUs: 'lockstep doctor --gpu' takes five minutes at most, says of "
        "each of its steps whether it passed, and leaves one file to send home.",
    )
    ranks = whole(1, "the number of ranks")
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")
    parser.add_argument("--ranks", type=ranks, metavar="N", help=f"ranks to start (default: {RANKS}; one for each GPU)")
    parser.add_argument(
        "--end-leftovers", action="store_true", help="first end ranks of yours whose notebook is gone, by process id"
    )
    gpu = parser.add_argument_group("with GPUs")
    gpu.add_argument("--gpu", action="store_true", help="try everything that only GPUs can show; see the end")
    gpu.add_argument(
        "--device", choices=("auto", "cuda", "xpu", "cpu"), default="auto", help="what to try it on (default: auto)"
    )
    gpu.add_argument("--labs", action="store_true", help="then run all labs with their solutions, which takes longer")
    gpu.add_argument("--steps", type=numbers, metavar="N,N", default=frozenset(), help="these steps alone")
    gpu.add_argument(
        "--minutes", type=minutes, default=5.0, metavar="M", help="more time for a slow machine (default: 5)"
    )
    gpu.add_argument("--to", type=Path, metavar="FILE", help="the file to send home (default: ./lockstep-gpu.json)")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    return try_gpus(options) if options.gpu else look(options)


def look(options: argparse.Namespace) -> int:
    from kit.clusters.doctor import examine, leftovers
    from kit.clusters.doctor.finding import as_json, lines, summary

    began = time.monotonic()
    width = _width()
    ranks = options.ranks or RANKS
    ended = leftovers.end() if options.end_leftovers else ()
    if ended and not options.json:
        print(f"Ended left-over processes {', '.join(map(str, ended))}.", flush=True)
    findings = []
    for finding in examine(ranks):
        findings.append(finding)
        if not options.json:
            print(lines(finding, width), flush=True)
    took = time.monotonic() - began
    if options.json:
        print(as_json(findings, __version__, ranks, took, ended))
    else:
        print("", summary(findings, took), sep="\n")
    return 1 if any(finding.status == "problem" for finding in findings) else 0


def try_gpus(options: argparse.Namespace) -> int:
    """All steps; the file is written after each, so that it is there whatever comes."""
    from kit.cli.gpu import report, trial

    wishes = trial.Wishes(options.device, options.ranks, options.minutes, options.steps, options.labs)
    steps = wishes.steps()
    if options.device != "cpu" and not trial.sees_a_gpu():
        raise ValueError(trial.NO_GPU)
    target = (options.to or Path(report.FILE)).absolute()
    started, began = datetime.now(UTC).isoformat(timespec="seconds"), time.monotonic()
    outcomes: list[Outcome] = []

    def page(finished: bool) -> Page:
        device, ranks = _place(wishes, outcomes)
        took = round(time.monotonic() - began, 2)
        environment = report.kept(os.environ)
        return report.Page(
            __version__, started, platform.node(), device, ranks, took, finished, environment, tuple(outcomes)
        )

    report.written(page(finished=False), target)  # that it cannot be is said before anything is tried
    if not options.json:
        print(report.head(len(steps), trial.seconds_at_most(steps, options.minutes) / 60), flush=True)
    with tempfile.TemporaryDirectory(prefix="lockstep-doctor-") as scratch:
        for outcome in trial.run(wishes, Path(scratch)):
            outcomes.append(outcome)
            report.written(page(finished=False), target)
            if not options.json:
                print(report.lines(outcome, _width()), flush=True)
    last = page(finished=True)
    report.written(last, target)
    if options.json:
        print(last.as_json(), end="")
    else:
        print("", report.summary(outcomes, last.seconds), report.send_home(target), sep="\n")
    return 0 if last.ok else 1


def _place(wishes: Wishes, outcomes: list[Outcome]) -> tuple[str, int]:
    from kit.cli.gpu.trial import place_of

    place = place_of(outcomes[0], wishes) if outcomes else None
    return (place.device, place.ranks) if place else (wishes.device, wishes.ranks or 0)


def _width() -> int:
    return min(120, max(60, shutil.get_terminal_size().columns))
