"""`lockstep doctor`: what is missing on this machine, and how to mend it."""

from __future__ import annotations

import shutil
import time
from typing import TYPE_CHECKING, Any

from kit import __version__
from kit.cli.numbers import whole

if TYPE_CHECKING:
    import argparse


def add_to(commands: Any) -> None:
    parser = commands.add_parser(
        "doctor",
        help="look at this machine before a workshop: what is missing, and how to mend it",
        description="Look at this machine: Python, torch, GPUs, memory, folders, JupyterLab's parts, the batch job "
        "and real ranks in an all-reduce. Nothing is changed. The exit code is 0 if the labs run here, 1 if there is a "
        "problem.",
    )
    ranks = whole(1, "the number of ranks")
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")
    parser.add_argument("--ranks", type=ranks, default=4, metavar="N", help="ranks to start (default: 4)")
    parser.add_argument(
        "--end-leftovers", action="store_true", help="first end ranks of yours whose notebook is gone, by process id"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from kit.clusters.doctor import examine, leftovers
    from kit.clusters.doctor.finding import as_json, lines, summary

    began = time.monotonic()
    width = min(120, max(60, shutil.get_terminal_size().columns))
    ended = leftovers.end() if options.end_leftovers else ()
    if ended and not options.json:
        print(f"Ended left-over processes {', '.join(map(str, ended))}.", flush=True)
    findings = []
    for finding in examine(options.ranks):
        findings.append(finding)
        if not options.json:
            print(lines(finding, width), flush=True)
    took = time.monotonic() - began
    if options.json:
        print(as_json(findings, __version__, options.ranks, took, ended))
    else:
        print("", summary(findings, took), sep="\n")
    return 1 if any(finding.status == "problem" for finding in findings) else 0
