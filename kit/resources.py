"""Where labs and what belongs to them lie: in an installed wheel, in a checkout, or in a folder of somebody's own."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

_TOPICS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "topics") + os.sep


OWN_LABS = "LOCKSTEP_LABS"  # folders of labs, for a process that works elsewhere


@dataclass(frozen=True)
class LabName:
    """What the name of a notebook says: '01a_collectives' is the first of the notebooks of lab 01, on collectives."""

    number: str  # '01'
    part: str  # 'a'; '' where the lab is one notebook
    topic: str  # 'collectives': the name of its package in `kit.topics`

    @classmethod
    def read(cls, name: str) -> LabName | None:
        """The parts of a name; None for one that is no lab's."""
        found = re.fullmatch(r"(\d\d)([a-z]?)_(\w+)", name)
        return cls(*found.groups()) if found else None

    @property
    def label(self) -> str:
        """What people call it: '01a'."""
        return self.number + self.part


@dataclass(frozen=True)
class LabFolder:
    """A folder of labs, and where that which belongs to them lies."""

    labs: Path  # NN_topic.ipynb, or NNa_topic.ipynb and NNb_topic.ipynb; and solutions/NN_topic.py
    topics: Path  # a package for each topic
    traces: Path  # a folder of recordings for each lab
    tests: Path  # a folder of tests for each topic

    def notebooks(self) -> list[Path]:
        return sorted(path for path in self.labs.glob("*.ipynb") if LabName.read(path.stem))

    def has(self, topic: str) -> bool:
        """Whether it has a lab of this topic: exercises, beside a notebook that is named for it."""
        if not (self.topics / topic / "exercises.py").is_file():
            return False
        return any(topic_of(notebook.stem) == topic for notebook in self.notebooks())


def topic_of(lab: str) -> str:
    """'collectives' for '01a_collectives'; '' for what is no lab's name."""
    name = LabName.read(lab)
    return name.topic if name else ""


def shipped() -> LabFolder:
    """The labs that come with Lockstep."""
    return LabFolder(labs(), Path(_TOPICS), assets() / "traces", labs().parent / "tests" / "topics")


def lab_folder(folder: Path) -> LabFolder:
    """A folder of labs of somebody's own: all that belongs to them lies in it."""
    return LabFolder(folder, folder / "topics", folder / "traces", folder / "tests")


def own() -> list[LabFolder]:
    """The folders of own labs that count here, those named first of all: what the environment names, or else the folder
    that this process works in.
    """
    try:
        named = os.environ.get(OWN_LABS) or os.getcwd()
    except OSError:  # the folder was deleted meanwhile
        return []
    folders = [lab_folder(Path(name).absolute()) for name in named.split(os.pathsep)]
    return [folder for folder in folders if any(folder.has(topic_of(notebook.stem)) for notebook in folder.notebooks())]


def traces_of(lab: str) -> Path:
    """The folder in which the recordings of a lab lie, in a folder of its name."""
    homes = [folder for folder in own() if folder.has(topic_of(lab))]
    return (homes[0] if homes else shipped()).traces


def labs() -> Path:
    """The folder of the notebooks `NN_topic.ipynb`, with `solutions/NN_topic.py` in it."""
    return _folder("labs")


def assets() -> Path:
    """The folder of styles, recorded traces, figures and the settings JupyterLab starts with."""
    return _folder("assets")


def template() -> Path:
    """The folder of the small lab that `lockstep new` begins with."""
    return assets() / "template"


def root() -> Path:
    """The folder that `kit` lies in: a checkout, or site-packages."""
    return Path(__file__).parents[1]


def reference_label(file: str) -> str | None:
    """'kit/topics/collectives/reference/ring.py' for a file of a topic's reference implementation, else None.

    Such code is read and stepped like a learner's own, and exported with it. In a topic of somebody's own all code is.
    """
    if file.startswith(_TOPICS):
        parts = file[len(_TOPICS) :].split(os.sep)
        return "/".join(("kit", "topics", *parts)) if parts[1:2] in (["reference"], ["reference.py"]) else None
    for folder in own():
        inside = file.removeprefix(f"{folder.topics}{os.sep}").split(os.sep)
        if file.startswith(f"{folder.topics}{os.sep}") and folder.has(inside[0]):
            return "/".join(("kit", "topics", *inside))
    return None


def installed() -> bool:
    """Whether labs and assets are those of an installed wheel, which are not for changing."""
    return assets().parent.name == "_carried"


def copy_to(folder: Path) -> tuple[list[Path], list[Path]]:
    """Copy the notebooks and the assets to `folder/labs` and `folder/assets`; what is there already stays as it is.

    Solutions are not copied: a lab shows one when it is asked to. Returns the files that were copied and those that
    were there. Raises OSError where the folder cannot be made or written.
    """
    copied, kept = [], []
    for source, target in _pairs(folder):
        if target.exists():
            kept.append(target)
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        # into place in one move: a copy that was cut short must not be taken for the learner's own file
        beside = target.with_name(f".{target.name}.part")
        shutil.copyfile(source, beside)
        beside.rename(target)
        copied.append(target)
    return copied, kept


def _pairs(folder: Path) -> list[tuple[Path, Path]]:
    notebooks = [(notebook, folder / "labs" / notebook.name) for notebook in sorted(labs().glob("*.ipynb"))]
    others = [path for path in sorted(assets().rglob("*")) if path.is_file() and template() not in path.parents]
    return notebooks + [(path, folder / "assets" / path.relative_to(assets())) for path in others]


def _folder(name: str) -> Path:
    package = Path(str(files("kit")))
    for folder in (package / "_carried" / name, package.parent / name):
        if folder.is_dir():
            return folder
    raise ValueError(
        f"The {name} of Lockstep are missing beside {package}: install it again with "
        "'pip install --force-reinstall --no-deps lockstep-labs'."
    )
