"""What a lab gives its learners: the text of each stub, its hints, the section it stands in and what leads to it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from typing import Any

from kit.classroom.handins import answers_in
from kit.grade import discovery

_HEADING = re.compile(r"^## +(.+)$", re.MULTILINE)
_CODE = re.compile(r"`([^`]+)`")
_API = re.compile(r"(?:dist|torch)\.\w+|\b[A-Za-z]\w*_\w+")  # what a library calls something
_EVERYWHERE = {"dist.get_rank", "dist.get_world_size"}
_FRAME = ("Goal and time", "Set-up")  # sections that teach nothing
HARDER = "One harder variation"


@dataclass(frozen=True)
class Section:
    """A part of a lab under one heading."""

    title: str
    text: str


@dataclass(frozen=True)
class Given:
    """An exercise as its lab has it. All is empty for one of a lab that is not here."""

    stub: str = ""
    lines: frozenset[str] = frozenset()  # of all code of the lab: imports and helpers of it are nobody's own
    hints: tuple[str, ...] = ()
    section: str = ""  # the heading it stands under
    before: str = ""  # the section that teaches what it needs
    shows: tuple[str, ...] = ()  # the names of its hints that stand in that section
    harder: bool = False  # whether the lab ends with a harder variation


@cache
def given(identity: str) -> Given:
    """What the lab gives for an exercise."""
    exercise = discovery.exercises().get(identity)
    if exercise is None:
        return Given()
    lab = discovery.labs()[exercise.lab]
    stub = next((each.source for each in answers_in(lab.notebook, lab) if each.exercise == identity), "")
    cells = json.loads(lab.notebook.read_text(encoding="utf-8"))["cells"]
    sections, own = _sections(cells, identity)
    wanted = {name for code in _CODE.findall(" ".join(exercise.hints)) for name in _API.findall(code)} - _EVERYWHERE
    taught = [each for each in sections[:own] if each.title not in _FRAME and not each.title.startswith("Write it")]
    best = max(reversed(taught), key=lambda each: len(_shared(each, wanted)), default=None)  # the nearest of equals
    shows = _shared(best, wanted) if best else []
    code = [line.rstrip() for cell in cells if cell["cell_type"] == "code" for line in _text(cell).splitlines()]
    return Given(
        stub,
        frozenset(line for line in code if line),
        exercise.hints,
        sections[own].title if own < len(sections) else "",
        best.title if best and shows else "",
        tuple(shows[:3]),
        any(each.title == HARDER for each in sections),
    )


def _shared(section: Section, wanted: set[str]) -> list[str]:
    return sorted(name for name in wanted if re.search(rf"\b{re.escape(name)}\b", section.text))


def _sections(cells: list[Any], identity: str) -> tuple[list[Section], int]:
    """The sections of a lab, and the number of that in which the stub stands."""
    titles, texts, own = [""], [""], 0
    for cell in cells:
        text = _text(cell)
        if cell["cell_type"] == "markdown" and (found := _HEADING.search(text)):
            titles.append(found[1].strip())
            texts.append("")
        elif f'@exercise("{identity}")' in text:
            own = len(titles) - 1
        texts[-1] += text + "\n"
    return [Section(title, text) for title, text in zip(titles, texts, strict=True)], own


def _text(cell: Any) -> str:
    return "".join(cell["source"])
