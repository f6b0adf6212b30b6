"""Which notebooks are meant: labs by number or name, notebooks by path; and which exercises each of them holds."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kit import resources
from kit.grade.words import on_one_line

_EXERCISE = re.compile(r"""^\s*@(?:kit\.)?exercise\(\s*["']([^"']+)["']""", re.MULTILINE)


@dataclass(frozen=True)
class Notebook:
    """A notebook to run. `name` is unique within one run; `shipped` says that its exercises are untouched stubs.

    `exercises` are those to be checked: its own and, in a copy of a lab, those of the lab that somebody has taken out.
    `unreadable` is a sentence when the file is no notebook: among others it is reported and not run.
    """

    name: str
    path: Path
    shipped: bool
    exercises: tuple[str, ...]
    homes: tuple[Path, ...] = ()  # folders in which its topic is looked for, beside Lockstep's own
    unreadable: str | None = None


def find(wanted: Sequence[str], here: Path) -> list[Notebook]:
    """The notebooks that `wanted` names, in its order and each once; all labs when it is empty.

    A number (`1`, `01`, or `01a` for one of its notebooks), a topic (`collectives`) or both (`01a_collectives`) names
    a lab, with all its notebooks: one of those in `here` or `here/labs` where a learner's copy lies there, of the
    shipped ones otherwise. Anything else is the path of a notebook or of a folder of notebooks, in folders of their own
    too. Raises ValueError that names what there is.
    """
    folder = labs_folder(here)
    labs = _labs_in(folder)
    if not labs:
        raise ValueError(f"There are no labs in {folder}.")
    if not wanted:
        return _named(labs, folder)
    return _named([path for word in wanted for path in _resolve(word, labs, folder, here)], folder)


def labs_folder(here: Path) -> Path:
    """Where labs are looked up by number or name."""
    return next((folder for folder in (here, here / "labs") if _labs_in(folder)), resources.labs())


def _labs_in(folder: Path) -> list[Path]:
    return resources.lab_folder(folder).notebooks()


def _resolve(word: str, labs: Sequence[Path], folder: Path, here: Path) -> list[Path]:
    meant = [lab for lab in labs if word in _names(lab.stem)]
    if meant:
        return meant
    path = here / word
    if path.is_dir():
        inside = (found for found in path.rglob("*.ipynb") if not _hidden(found.relative_to(path)))
        notebooks = sorted(inside)
        if not notebooks:
            raise ValueError(f"There is no notebook in the folder {word}.")
        return notebooks
    if path.is_file() and path.suffix == ".ipynb":
        return [path]
    if path.is_file():
        raise ValueError(f"{word} is not a notebook: its name does not end in .ipynb.")
    if path.suffix == ".ipynb" or "/" in word:
        raise ValueError(f"There is no notebook {word} here.")
    known = ", ".join(lab.stem.replace("_", " ", 1) for lab in labs)
    raise ValueError(
        f"There is no lab '{word}' in {folder}: it has {known}. A notebook of your own is given by its path."
    )


def _names(lab: str) -> set[str]:
    """What a lab may be called: '1', '01', '1a', '01a', 'collectives', '01a_collectives'."""
    name = resources.LabName.read(lab)
    assert name is not None
    numbers = {name.number, name.label}
    return {lab, name.topic, *numbers, *(number[1:] for number in numbers if number.startswith("0"))}


def _named(paths: Sequence[Path], folder: Path) -> list[Notebook]:
    unique = list(dict.fromkeys(path.resolve() for path in paths))
    stems = [path.stem for path in unique]
    shipped = resources.labs().resolve()
    found = []
    for path in unique:
        name = on_one_line(path.stem if stems.count(path.stem) == 1 else _from_home(path, unique))
        try:
            homes = tuple(dict.fromkeys((folder.resolve(), path.parent)))
            found.append(Notebook(name, path, path.parent == shipped, _expected_of(path, homes), homes))
        except ValueError as problem:
            found.append(Notebook(name, path, False, (), unreadable=on_one_line(str(problem)).rstrip(".")))
    if all(notebook.unreadable for notebook in found):
        raise ValueError(f"{found[0].unreadable}.")
    return found


def _from_home(path: Path, among: Sequence[Path]) -> str:
    """The end of a path that tells notebooks of one name apart: `ada/01a_collectives`."""
    others = [other.with_suffix("").parts[::-1] for other in among if other != path]
    own = path.with_suffix("").parts[::-1]
    length = next(n for n in range(1, len(own) + 1) if all(other[:n] != own[:n] for other in others))
    return "/".join(own[:length][::-1])


def _hidden(path: Path) -> bool:
    """What editors keep for themselves: `.ipynb_checkpoints`."""
    return any(part.startswith(".") for part in path.parts)


def _expected_of(path: Path, homes: Sequence[Path]) -> tuple[str, ...]:
    """The exercises of a notebook, behind those of the lab it is a copy of: by its name, or by an exercise of it."""
    own = exercises_in(path)
    for lab in resources.shipped().notebooks():
        of_lab = exercises_in(lab)
        if lab.stem in path.stem or set(own) & set(of_lab):
            return tuple(dict.fromkeys((*of_lab, *own)))
    return own


def exercises_in(path: Path) -> tuple[str, ...]:
    """The ids of the exercises that the code cells of a notebook define. Raises ValueError for a file that is none."""
    return tuple(stubs_in(path))


def stubs_in(path: Path) -> dict[str, str]:
    """The code cells of a notebook that define exercises, by their ids. Raises ValueError for a file that is none."""
    if path.stat().st_size == 0:
        raise ValueError(f"{path} is an empty file.")
    try:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise ValueError(
            f"{path} is not a notebook that can be read ({type(problem).__name__}: {problem})."
        ) from problem
    return {name: source for source in sources for name in _EXERCISE.findall(source)}
