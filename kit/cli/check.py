"""`lockstep check`: labs without a browser, what their checks say, and whether usual mistakes get their sentences."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kit import __version__, resources
from kit.cli.numbers import seconds, whole

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from kit.grade.notebooks import Notebook
    from kit.grade.report import Outcome


def add_to(commands: Any) -> None:
    parser = commands.add_parser(
        "check",
        help="run labs without a browser and report what their checks say",
        description="Run labs without a browser and report, lab by lab, which checks passed, failed or were not "
        "attempted. The exit code is 0 only if all is as expected: every notebook runs to its end; with --solutions "
        "every check passes; in the labs as shipped every check says 'not attempted'; in your own none fails.",
        epilog="Examples: 'lockstep check 01', 'lockstep check collectives --solutions --ranks 3', 'lockstep check "
        "handed-in/*.ipynb --json marks.json'. Notebooks run with your rights: run those of strangers in a container.",
    )
    parser.add_argument(
        "labs", nargs="*", metavar="LAB", help="number or name of a lab, or path of notebooks (default: all labs)"
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--solutions", action="store_true", help="put the solutions in place of the exercises")
    how.add_argument(
        "--mistakes",
        action="store_true",
        help="for authors of labs: check every usual mistake alone, and tell which does not get its own sentence",
    )
    ranks = whole(2, "the number of ranks")
    parser.add_argument("--ranks", type=ranks, metavar="N", help="number of ranks (default: what the notebook says)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report to FILE too, notebook by notebook")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the notebooks as they were run")
    parser.add_argument(
        "--cell-limit", type=seconds, default=120.0, metavar="S", help="seconds a cell may take (default: 120)"
    )
    parser.add_argument(
        "--lab-limit", type=seconds, default=600.0, metavar="S", help="seconds a lab may take (default: 600)"
    )
    parser.add_argument(
        "--jobs",
        type=whole(1, "the number of notebooks at once"),
        metavar="N",
        help="notebooks at once (default: as cores and memory allow)",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from kit.grade import report
    from kit.grade.notebooks import find, labs_folder
    from kit.grade.run import Settings, run_all

    notebooks = find(options.labs, Path.cwd())
    if options.mistakes:
        return _mistakes(notebooks, options.ranks or 4)
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
    for outcome in run_all(notebooks, settings, options.jobs):
        print(table.row(outcome), flush=True)
        outcomes.append(outcome)
        outcomes.sort(key=lambda outcome: notebooks.index(outcome.notebook))
        keep_json()
    print("", *report.sentences(outcomes), sep="\n", flush=True)
    return 0 if all(outcome.as_expected for outcome in outcomes) else 1


def _mistakes(notebooks: Sequence[Notebook], ranks: int) -> int:
    """Check every usual mistake of the notebooks' exercises on one cluster; 1 if any does not get its sentence."""
    homes = dict.fromkeys(home for notebook in notebooks for home in notebook.homes)
    os.environ[resources.OWN_LABS] = os.pathsep.join(map(str, homes))  # before any topic is looked for
    import kit
    from kit.grade import answers, discovery

    missed = 0
    with kit.cluster(ranks=ranks):
        for identity in dict.fromkeys(name for notebook in notebooks for name in notebook.exercises):
            exercise = discovery.find(identity)
            verdicts = [(each, kit.check(answers.mistaken(exercise, each))) for each in exercise.mistakes]
            told = [(each.name, each.missed_by(verdict.stage, verdict.sentence), verdict) for each, verdict in verdicts]
            lines = [f"  {name}: {why}: {verdict}" for name, why, verdict in told if why]
            caught = f"{len(verdicts) - len(lines)} of {len(verdicts)} usual mistakes get their own sentence"
            print(f"{exercise.lab}, {identity}: {caught}", *lines, sep="\n", flush=True)
            missed += len(lines)
    return 1 if missed else 0
