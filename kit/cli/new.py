"""`lockstep new 05_tensor`: a small lab that passes its own checks, to be made into a real one."""

from __future__ import annotations

import keyword
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kit import resources

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
    parser.add_argument("lab", metavar="NN_TOPIC", help="two digits and a word for its topic, for instance 05_tensor")
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
    """Write a lab named `lab` ('05_tensor') and return its files.

    into: a folder of labs of one's own, which is made; None: the checkout of Lockstep that `here` lies in. Nothing is
    overwritten. Raises ValueError for a name that cannot be, or that is taken, and where there is no checkout.
    """
    topic = lab[3:]
    if not re.fullmatch(r"\d\d_[a-z][a-z0-9_]*", lab) or keyword.iskeyword(topic):
        raise ValueError(f"a lab is named by two digits and a word for its topic, as in 05_tensor, not {lab!r}.")
    folder = resources.lab_folder(into) if into is not None else _checkout(here)
    for other in resources.shipped().notebooks() + folder.notebooks():
        if other.stem[3:] == topic or (other.parent == folder.labs and other.stem[:2] == lab[:2]):
            raise ValueError(f"{other} has this number or this topic: choose another one.")
    pages = {_target(path, folder, lab): _filled(path, lab) for path in sorted(_template(own=into is not None))}
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


def _target(path: Path, folder: LabFolder, lab: str) -> Path:
    topic = lab[3:]
    homes = {
        "lab.ipynb": folder.labs / f"{lab}.ipynb",
        "solutions.py": folder.labs / "solutions" / f"{lab}.py",
        "topic": folder.topics / topic,
        "tests": folder.tests / topic,
    }
    first, *others = path.relative_to(resources.template()).parts
    return homes[first].joinpath(*others).with_name(path.name.replace("my_topic", topic)) if others else homes[first]


def _filled(path: Path, lab: str) -> str:
    """A file of the template with the names of the new lab in place of its own."""
    number, topic = lab[:2], lab[3:]
    words = topic.replace("_", " ")
    names = {
        "00_my_topic": lab,
        "my_topic": topic,
        "my-topic": topic.replace("_", "-"),
        "My topic": words.capitalize(),
        "00 ·": f"{number} ·",
        "ab 00": f"ab {number}",
    }
    text = path.read_text(encoding="utf-8")
    return re.sub("|".join(names), lambda found: names[found[0]], text)
