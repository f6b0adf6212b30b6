"""What was handed in: notebooks, read as text; nothing of them is ever run or opened otherwise.

The functions that answer exercises are taken out, each with the imports, constants and helpers that it needs. What
cannot be read is told in a sentence and costs nobody else anything.
"""

from __future__ import annotations

import ast
import hashlib
import json
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kit.classroom.slices import Code, Definition
from kit.grade import discovery
from kit.grade.words import on_one_line

if TYPE_CHECKING:
    from kit.grade.discovery import Lab

LARGEST_FILE = 256_000_000  # bytes: a notebook full of pictures has tens of millions
LARGEST_CODE = 2_000_000  # characters in all its cells
MOST_STATEMENTS = 5_000


@dataclass(frozen=True)
class Answer:
    """What one notebook answers to one exercise."""

    exercise: str
    function: str  # its name in `source`
    source: str  # one module: all that the function needs of the notebook's own, and the function
    problem: str = ""  # why there is nothing to run, as a sentence
    untouched: bool = False  # it still raises NotAttempted before anything else

    @cached_property
    def tree(self) -> ast.Module:
        return _parsed(self.source)

    @cached_property
    def digest(self) -> str:
        """Equal for answers that do the same in the same words: comments, docstrings and layout do not count."""
        tree = _parsed(self.source)
        for node in ast.walk(tree):
            if isinstance(node, Definition | ast.ClassDef | ast.Module) and ast.get_docstring(node) is not None:
                node.body = node.body[1:] or [ast.Pass()]
        return _digest(self.exercise, self.function, ast.dump(tree))

    @cached_property
    def layout(self) -> str:
        """Equal for equal answers whose statements also stand on the same lines, so that 'line 9' means the same."""
        lines = [getattr(node, "lineno", 0) for node in ast.walk(self.tree)]
        return _digest(self.digest, str(lines))

    @property
    def file(self) -> str:
        """The name of the file that its code is said to stand in."""
        return f"<{self.exercise} {_digest(self.source)[:12]}>"


class Unreadable(ValueError):
    """A file that is no notebook; the text is a sentence that tells why."""


class HandIn:
    """One notebook. Raises Unreadable for a file that is none."""

    def __init__(self, path: Path) -> None:
        self.cells = cells_of(path)
        self._own = Code(self.cells)
        if len(self._own.statements) > MOST_STATEMENTS:
            raise Unreadable(f"it has more than {MOST_STATEMENTS:,} statements outside of functions")

    @property
    def exercises(self) -> tuple[str, ...]:
        """The ids of the exercises it answers, whichever lab has them."""
        return self._own.exercises

    @property
    def troubles(self) -> tuple[str, ...]:
        """A sentence for each cell that is lost."""
        return tuple(f"{lost.sentence}: it was left out" for lost in self._own.lost)

    def labs(self, name: str) -> tuple[Lab, ...]:
        """Whose lab it is: by its exercises, whatever it is called; by its name where somebody took all of them out."""
        known = discovery.exercises()
        of = {known[exercise].lab for exercise in self.exercises if exercise in known}
        return tuple(lab for lab in discovery.labs().values() if lab.name in of or (not of and lab.name in name))

    def answers(self, lab: Lab) -> Iterator[Answer]:
        """Its answer to each exercise of a lab, in the lab's order."""
        code = Code(self.cells, before=_given(lab))
        for exercise in lab.exercises:
            yield _answer(code, exercise.id, exercise.function, _lent(lab))


def answers_in(path: Path, lab: Lab) -> list[Answer]:
    """What a notebook answers to the exercises of a lab. Raises Unreadable for a file that is none."""
    return list(HandIn(path).answers(lab))


def _answer(code: Code, exercise: str, function: str, lent: frozenset[str]) -> Answer:
    try:
        found = code.answer(exercise)
    except RecursionError:
        return Answer(exercise, function, "", "what it needs goes too deep to be taken out of the notebook")
    if found is None:
        lost = next((lost.sentence for lost in code.lost if exercise in lost.exercises), "")
        return Answer(exercise, function, "", lost or f'the notebook has no function marked @exercise("{exercise}")')
    source, definition = found
    problem = _why_not(definition, source) or _not_its_own(source, lent)
    return Answer(exercise, definition.name, source, problem, _is_untouched(definition))


def _not_its_own(source: str, lent: frozenset[str]) -> str:
    """A sentence where an answer calls what a topic has of its own, beyond what its solution builds on."""
    for name in _of_topics(ast.parse(source)):
        if name not in lent:
            return f"it calls Lockstep's own {name.rpartition('.')[2]}: write it yourself"
    return ""


def _of_topics(tree: ast.Module) -> Iterator[str]:
    """What a text imports of topics: 'kit.topics.zero.adamw_'."""
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{one.name}" for one in node.names]
        elif isinstance(node, ast.Import):
            names = [one.name for one in node.names]
        yield from (name for name in names if name.startswith("kit.topics"))


@cache
def _lent(lab: Lab) -> frozenset[str]:
    """What of topics the solutions build on, or else what the notebook imports."""
    home = lab.solutions
    texts = [home.read_text(encoding="utf-8")] if home.is_file() else cells_of(lab.notebook)
    return frozenset(name for text in texts for name in _of_topics(ast.parse(text)))


def _why_not(definition: Definition, source: str) -> str:
    name = definition.name
    if isinstance(definition, ast.AsyncFunctionDef):
        return f"{name} is an async function, and calling it runs nothing of it: write def, without async"
    if any(isinstance(node, ast.Yield | ast.YieldFrom) for node in _body_of(definition)):
        return f"{name} is a generator (it says yield), and calling it runs nothing of it: return its result instead"
    try:
        _parsed(source)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(source, "an answer", "exec", dont_inherit=True)
    except SyntaxError as problem:
        return f"it does not compile (line {problem.lineno}: {on_one_line(problem.msg)})"
    except (ValueError, RecursionError, MemoryError):
        return "it does not compile (it is nested too deeply)"
    return ""


def _body_of(definition: Definition) -> Iterator[ast.AST]:
    """The nodes of a function that are not those of functions within it."""
    waiting: list[ast.AST] = [*definition.body]
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, Definition | ast.Lambda | ast.ClassDef):
            waiting += ast.iter_child_nodes(node)


def _is_untouched(definition: Definition) -> bool:
    body = definition.body[1:] if ast.get_docstring(definition) is not None else definition.body
    match body[:1]:
        case [ast.Raise(exc=ast.Name(id="NotAttempted") | ast.Attribute(attr="NotAttempted"))]:
            return True
        case [ast.Raise(exc=ast.Call(func=ast.Name(id="NotAttempted") | ast.Attribute(attr="NotAttempted")))]:
            return True
    return False


def _parsed(source: str) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of odd escapes in a learner's strings
        return ast.parse(source)


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "backslashreplace")).hexdigest()


@cache
def _given(lab: Lab) -> Code:
    """The lab as shipped: its imports and helpers are there also where a learner took them out."""
    return Code(cells_of(lab.notebook))


# ---------------------------------------------------------------------------------------------- notebooks as files


def cells_of(path: Path) -> list[str]:
    """The text of the code cells of a notebook. Raises Unreadable for a file that is none."""
    try:
        if path.is_symlink():
            raise Unreadable("it is a link to another file: hand in the notebook itself")
        if path.is_dir():
            raise Unreadable("it is a folder with the name of a notebook")
        if not path.is_file():
            raise Unreadable("it is no plain file")
        nbytes = path.stat().st_size
        if nbytes == 0:
            raise Unreadable("it is an empty file")
        if nbytes > LARGEST_FILE:
            raise Unreadable(f"it has {nbytes / 1e6:,.0f} MB: clear the outputs of its cells, and hand it in again")
        cells = _cells(json.loads(path.read_bytes().decode("utf-8-sig")))
    except UnicodeDecodeError as problem:
        raise Unreadable("it is not text in UTF-8, as notebooks are") from problem
    except OSError as problem:
        raise Unreadable(f"it cannot be read ({problem.strerror})") from problem
    except (RecursionError, MemoryError) as problem:
        raise Unreadable("it is not a notebook: it is nested too deeply") from problem
    except json.JSONDecodeError as problem:
        words = f"it is not a notebook: it is no JSON (line {problem.lineno}: {problem.msg})"
        raise Unreadable(words) from problem
    except Unreadable:
        raise
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        raise Unreadable(f"it is not a notebook: it is JSON without cells ({type(problem).__name__})") from problem
    if sum(map(len, cells)) > LARGEST_CODE:
        raise Unreadable(f"it has more than {LARGEST_CODE // 1_000_000} million characters of code")
    return cells


def _cells(page: Any) -> list[str]:
    """Of nbformat 4, and of 3, where cells lie in worksheets."""
    cells = page["cells"] if "cells" in page else [cell for sheet in page["worksheets"] for cell in sheet["cells"]]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    sources = [cell["source"] if "source" in cell else cell["input"] for cell in code]
    return [source if isinstance(source, str) else "".join(source) for source in sources]
