"""`lockstep new 20_halo`: a small lab that passes its own checks, to be made into a real one."""

from __future__ import annotations

import keyword
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kit import resources
from kit.resources import LabName

if TYPE_CHECKING:
    import argparse

    from kit.resources import LabFolder


def add_to(commands: Any) -> None:
    parser = commands.add_parser(
        "new",
        help="for authors of labs: begin another one",
        description="Write a small lab that passes its own checks: a notebook, its solutions, a folder for its topic "
        "with a reference, a formula, a figure and an exercise with its usual mistakes, and a folder of tests. Nothing "
        "is overwritten.",
        epilog="Then, as with any lab: 'lockstep check my_labs --solutions', 'lockstep check my_labs --mistakes', "
        "'lockstep record my_labs'. All of it is told in kit/LABS.md.",
    )
    parser.add_argument(
        "lab",
        metavar="NN_TOPIC",
        help="two digits and a word for its topic, as in 20_halo; or 20a_halo, the first of several notebooks",
    )
    parser.add_argument(
        "--into", type=Path, metavar="DIR", help="a folder of your own labs (default: this checkout of Lockstep)"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    try:
        files = new(options.lab, options.into and options.into.absolute(), Path.cwd())
    except OSError as problem:
        raise ValueError(f"{problem.filename} cannot be written ({problem.strerror}).") from problem
    print(*(os.path.relpath(path) for path in files), sep="\n")
    return 0


def new(lab: str, into: Path | None, here: Path) -> list[Path]:
    """Write a lab named `lab` ('20_halo') and return its files.

    into: a folder of labs of one's own, which is made; None: the checkout of Lockstep that `here` lies in. Nothing is
    overwritten. Raises ValueError for a name that cannot be, or that is taken, and where there is no checkout.
    """
    name = LabName.read(lab)
    if name is None or not re.fullmatch(r"[a-z][a-z0-9_]*", name.topic) or keyword.iskeyword(name.topic):
        raise ValueError(f"a lab is named by two digits and a word for its topic, as in 20_halo, not {lab!r}.")
    folder = resources.lab_folder(into) if into is not None else _checkout(here)
    for other in resources.shipped().notebooks() + folder.notebooks():
        taken = LabName.read(other.stem)
        if taken and (taken.topic == name.topic or (other.parent == folder.labs and taken.label == name.label)):
            raise ValueError(f"{other} has this number or this topic: choose another one.")
    pages = {_target(path, folder, lab, name): _filled(path, lab, name) for path in sorted(_template(into is not None))}
    there = [path for path in pages if path.exists()]
    if there:
        raise ValueError(f"{there[0]} is there already, and nothing is overwritten: remove it, or choose another name.")
    for path, text in pages.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return list(pages)


def _checkout(here: Path) -> LabFolder:
    root = resources.labs().parent
    if resources.installed() or not here.resolve().is_relative_to(root):
        raise ValueError("this is no checkout of Lockstep: name a folder for labs of your own with --into DIR.")
    return resources.shipped()


def _template(own: bool) -> list[Path]:
    """The files to begin with; the promises of a lab are kept by the tests of Lockstep alone."""
    files = [path for path in resources.template().rglob("*") if path.suffix in (".py", ".ipynb")]
    return [path for path in files if not (own and path.name == "promises.py")]


def _target(path: Path, folder: LabFolder, lab: str, name: LabName) -> Path:
    topic = name.topic
    homes = {
        "lab.ipynb": folder.labs / f"{lab}.ipynb",
        "solutions.py": folder.labs / "solutions" / f"{lab}.py",
        "topic": folder.topics / topic,
        "tests": folder.tests / topic,
    }
    first, *others = path.relative_to(resources.template()).parts
    if not others:
        return homes[first]
    file = promises(name) + ".py" if path.name == "promises.py" else path.name.replace("my_topic", topic)
    return homes[first].joinpath(*others).with_name(file)


def promises(name: LabName) -> str:
    """The module, beside its topic's tests, that keeps what the prose of a lab promises."""
    return f"promises_{name.part}" if name.part else "promises"


def _filled(path: Path, lab: str, name: LabName) -> str:
    """A file of the template with the names of the new lab in place of its own."""
    topic, words = name.topic, name.topic.replace("_", " ")
    names = {
        "00_my_topic": lab,
        "my_topic": topic,
        "my-topic": topic.replace("_", "-"),
        "My topic": words.capitalize(),
        "00 ·": f"{name.label} ·",
        "ab 00": f"ab {name.label}",
    }
    text = path.read_text(encoding="utf-8")
    return re.sub("|".join(names), lambda found: names[found[0]], text)
