"""What of a notebook's code a function needs, as text: found by reading it, with nothing of it run.

A notebook is read as if it had been run from its first cell to its last. A name a function uses when it is called has
the last value it was given; a name used while the cells run, in a default or a constant, has the value of that place.
"""

from __future__ import annotations

import ast
import builtins
import re
import symtable
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from kit.grade.words import on_one_line

_OF_A_CLUSTER = ("bandwidth", "cluster", "compare", "link", "load", "options", "record", "step")
_OF_A_NOTEBOOK = ("check", "hint", "join", "leave", "predict", "solution")
LIVE = frozenset((*_OF_A_CLUSTER, *_OF_A_NOTEBOOK))  # of kit: a cell that uses one cannot be taken along
_STARTERS = frozenset(("%%time", "%%timeit", "%%capture", "%%prun"))  # cells that are Python under their first line
_MARK = re.compile(r"""^\s*@(?:\w+\.)?exercise\(\s*["']([^"']+)["']""", re.MULTILINE)
_UNHAD = frozenset(("display", "exit", "get_ipython", "input", "quit"))
_BUILT_IN = frozenset(dir(builtins)) - _UNHAD | {"__name__", "__file__", "__doc__", "__annotations__"}
_AT_ONCE = frozenset(("genexpr", "listcomp", "setcomp", "dictcomp"))
Definition = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Lost:
    """A cell that is not Python, with the exercises that it seems to answer."""

    sentence: str
    exercises: tuple[str, ...]


@dataclass(eq=False)
class Statement:
    """One statement of the top of a cell, as long as need be."""

    tree: ast.stmt
    lines: Sequence[str]  # of its cell
    alone: bool  # on its lines
    binds: set[str] = field(default_factory=set)
    changes: set[str] = field(default_factory=set)  # values that it changes, without naming them anew
    at_once: set[str] = field(default_factory=set)  # names that it needs when it runs
    later: set[str] = field(default_factory=set)  # names that its functions need when they are called

    def __post_init__(self) -> None:
        table = symtable.symtable(self.text(self.tree, bare=True), "a cell", "exec")
        for symbol in table.get_symbols():
            if symbol.is_assigned() or symbol.is_imported():
                self.binds.add(symbol.get_name())
            if symbol.is_referenced():
                self.at_once.add(symbol.get_name())
        for inner in table.get_children():
            self._read(inner, at_once=True)
        for node in _at_once(self.tree):
            match node:
                case ast.AugAssign(target=ast.Name(id=name)):
                    self.at_once.add(name)
                case ast.Subscript(ctx=ast.Store() | ast.Del()) | ast.Attribute(ctx=ast.Store() | ast.Del()):
                    self.changes |= _root(node)
                case ast.Expr(value=ast.Call(func=ast.Attribute() as method)):
                    self.changes |= _root(method)
        if not isinstance(self.tree, Definition):
            self.at_once -= self.binds - self._reads_its_own()

    def _read(self, table: symtable.SymbolTable, at_once: bool) -> None:
        at_once = at_once and (table.get_type() == "class" or table.get_name() in _AT_ONCE)
        for symbol in table.get_symbols():
            if symbol.is_global() and symbol.is_referenced():
                (self.at_once if at_once else self.later).add(symbol.get_name())
        for inner in table.get_children():
            self._read(inner, at_once)

    def _reads_its_own(self) -> set[str]:
        """Names it needs before it binds them: `x = x + 1` and `x += 1`, and not a loop's variable."""
        match self.tree:
            case ast.AugAssign(target=ast.Name(id=name)):
                return {name}
            case ast.Assign() | ast.AnnAssign():
                return {node.id for node in ast.walk(self.tree) if isinstance(node, ast.Name) and _is_read(node)}
        added = (node.target for node in _at_once(self.tree) if isinstance(node, ast.AugAssign))
        return {target.id for target in added if isinstance(target, ast.Name)}

    @property
    def is_import(self) -> bool:
        return isinstance(self.tree, ast.Import | ast.ImportFrom)

    @property
    def is_star(self) -> bool:
        return isinstance(self.tree, ast.ImportFrom) and self.tree.names[0].name == "*"

    @property
    def is_future(self) -> bool:
        return isinstance(self.tree, ast.ImportFrom) and self.tree.module == "__future__"

    @property
    def is_whole(self) -> bool:
        """Whether it binds its names whatever comes before it."""
        return isinstance(self.tree, Definition | ast.ClassDef | ast.Assign | ast.AnnAssign | ast.ImportFrom)

    @cached_property
    def is_live(self) -> bool:
        """Whether it uses a cluster, a panel or a check while it runs."""
        if isinstance(self.tree, Definition):
            return False
        for node in _at_once(self.tree):
            match node:
                case ast.Attribute(value=ast.Name(id="kit"), attr=name) if name in LIVE:
                    return True
        return False

    @cached_property
    def marked(self) -> dict[str, Definition]:
        """Functions in it that answer exercises, by the exercises' ids."""
        return {name: node for node in _definitions(self.tree) if (name := _exercise_of(node))}

    def named(self, wanted: set[str]) -> str:
        """An import cut down to the names that are wanted."""
        assert isinstance(self.tree, ast.Import | ast.ImportFrom)
        kept = [one for one in self.tree.names if (one.asname or one.name.partition(".")[0]) in wanted]
        if isinstance(self.tree, ast.Import):
            return ast.unparse(ast.Import(kept))
        return ast.unparse(ast.ImportFrom(self.tree.module, kept, self.tree.level))

    def text(self, of: ast.stmt, bare: bool = False) -> str:
        """The lines of a statement in it. bare: without the marks of exercises, and from the left edge."""
        if not self.alone:
            return ast.get_source_segment("\n".join(self.lines), of) or ast.unparse(of)
        decorators = of.decorator_list if isinstance(of, Definition | ast.ClassDef) else []
        first = min([of.lineno, *(decorator.lineno for decorator in decorators)])
        kept = dict(enumerate(self.lines[first - 1 : of.end_lineno], first))
        if bare:
            for node in _definitions(of):
                for decorator in filter(_names_an_exercise, node.decorator_list):
                    for line in range(decorator.lineno, (decorator.end_lineno or decorator.lineno) + 1):
                        kept.pop(line, None)
        edge = of.col_offset
        return "\n".join(line[edge:] if not line[:edge].strip() else line for line in kept.values())


class Code:
    """The statements of cells, in order."""

    def __init__(self, cells: Sequence[str], before: Code | None = None) -> None:
        """before: what is there before the first cell, of use where the cells do not bind a name themselves."""
        self.given = len(before.statements) if before else 0  # statements that are not of these cells
        self.statements: list[Statement] = [*before.statements] if before else []
        self.lost: list[Lost] = []
        for number, cell in enumerate(cells, 1):
            self._add(cell, number)
        self._binding: dict[str, list[int]] = defaultdict(list)
        for number, statement in enumerate(self.statements):
            for name in statement.binds | statement.changes:
                self._binding[name].append(number)

    def _add(self, cell: str, number: int) -> None:
        try:
            text = _python(cell)
            lines = text.split("\n")
            trees = ast.parse(text).body
            edges = Counter(line for tree in trees for line in {tree.lineno, tree.end_lineno})
            found = [Statement(tree, lines, edges[tree.lineno] == edges[tree.end_lineno] == 1) for tree in trees]
        except (SyntaxError, ValueError, RecursionError, MemoryError) as problem:
            self.lost.append(Lost(f"code cell {number} {_why(problem)}", tuple(_MARK.findall(cell))))
        else:
            self.statements += found

    @property
    def exercises(self) -> tuple[str, ...]:
        """The ids that functions of these cells are marked with, and those in cells that were lost."""
        own = self.statements[self.given :]
        return tuple(
            dict.fromkeys(
                [
                    *(name for statement in own for name in statement.marked),
                    *(name for lost in self.lost for name in lost.exercises),
                ]
            )
        )

    def answer(self, exercise: str) -> tuple[str, Definition] | None:
        """The text that the last function marked so needs, itself included, and that function; None without one."""
        own = range(self.given, len(self.statements))
        last = next((number for number in reversed(own) if exercise in self.statements[number].marked), None)
        if last is None:
            return None
        return _Slice(self, last, exercise).text(), self.statements[last].marked[exercise]

    def positions(self, name: str) -> Sequence[int]:
        return self._binding.get(name, ())


class _Slice:
    """The statements that one answer needs."""

    def __init__(self, code: Code, answer: int, exercise: str) -> None:
        self.code = code
        self.statements = code.statements
        self.end = len(code.statements)
        self.answer = answer
        self.function = self.statements[answer].marked[exercise]
        self.wanted: dict[int, set[str]] = {}  # statement: the names that are wanted of it
        self.not_had: set[int] = set()  # statements that cannot be taken along
        for number, statement in enumerate(self.statements[code.given :], code.given):
            if statement.is_future:  # it changes what all cells after it mean
                self.wanted[number] = statement.binds
        self.whole = self._carry(answer)
        if not self.whole:  # a block that cannot be taken along: its function still can
            self.wanted[answer] = {self.function.name}
            own = Statement(ast.parse(self._text_of_function()).body[0], self._text_of_function().split("\n"), True)
            for name in own.at_once | own.later:
                self._need(name, self.end)

    def text(self) -> str:
        imports, rest = [], []
        for number, names in sorted(self.wanted.items()):
            statement = self.statements[number]
            if number == self.answer and not self.whole:
                rest.append((statement, self._text_of_function()))
            elif statement.is_import:
                imports.append((statement.is_future, statement.named(names | {"*"})))
            else:
                rest.append((statement, statement.text(statement.tree, bare=True)))
        head = [text for _, text in sorted(dict.fromkeys(imports), key=lambda each: not each[0])]
        paragraphs = ["\n".join(head)] if head else []
        for statement, text in rest:
            small = isinstance(statement.tree, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Expr)
            paragraphs.append(f"\n{text}" if not small else text)
        return "\n\n".join(paragraphs).strip("\n") + "\n"

    def _text_of_function(self) -> str:
        return self.statements[self.answer].text(self.function, bare=True)

    def _carry(self, number: int) -> bool:
        """Take a statement along with all it needs; False, and nothing of it is taken, where something is not there."""
        if number in self.wanted:
            return True
        statement = self.statements[number]
        if number in self.not_had or statement.is_live:
            return False
        before = {one: set(names) for one, names in self.wanted.items()}
        self.wanted[number] = set()
        missing = [name for name in sorted(statement.at_once) if not self._need(name, number)]
        if missing and not isinstance(statement.tree, Definition | ast.ClassDef):
            self.wanted = before
            self.not_had.add(number)
            return False
        for name in sorted(statement.later):
            self._need(name, self.end)
        return True

    def _need(self, name: str, before: int) -> bool:
        """Take along what gives a name its value at a place; whether there is such a thing."""
        if name == self.function.name:
            return self._carry(self.answer)
        found, changes = False, list[int]()
        for number in reversed(self.code.positions(name)):
            statement = self.statements[number]
            if number >= before:
                continue
            if name not in statement.binds:
                changes.append(number)
                continue
            if statement.is_import and _is_live_import(statement, name):
                continue
            if not self._carry(number):
                continue
            found = True
            if statement.is_import:
                changes.clear()  # of a module, which is no value of the notebook's
                self._import(name)
                self.wanted[number].add(name)
                break
            if statement.is_whole:
                break
        for number in reversed(changes) if found else ():
            self._carry(number)
        if found or name in _BUILT_IN:
            return True
        if before < self.end:  # cells may have been run in another order than they stand in
            return self._need(name, self.end)
        stars = [number for number, statement in enumerate(self.statements) if statement.is_star]
        self.wanted |= {number: {"*"} for number in stars}
        return bool(stars)

    def _import(self, name: str) -> None:
        """`import torch` and `import torch.distributed` bind one name, and both count."""
        for number in self.code.positions(name):
            if isinstance(self.statements[number].tree, ast.Import):
                self.wanted.setdefault(number, set()).add(name)


def _python(cell: str) -> str:
    """A cell as Python: lines for the shell and for IPython become calls, and a cell in another language is none."""
    from IPython.core.inputtransformer2 import TransformerManager

    first, _, rest = cell.lstrip().partition("\n")
    if first.startswith("%%"):
        if first.split()[0] not in _STARTERS:
            if _MARK.search(rest):
                raise ValueError(f"begins with {on_one_line(first.split()[0])}, and is no Python")
            return ""
        cell = "\n" + rest
    text: str = TransformerManager().transform_cell(cell)
    return text


def _why(problem: Exception) -> str:
    if isinstance(problem, SyntaxError):
        where = f"line {problem.lineno}: " if problem.lineno else ""
        return f"does not parse ({where}{on_one_line(problem.msg)})"
    if isinstance(problem, ValueError):
        return on_one_line(str(problem)) if "begins with" in str(problem) else "does not parse (it is not text)"
    return "does not parse (it is nested too deeply)"


def _at_once(tree: ast.AST) -> Iterator[ast.AST]:
    """The nodes of what runs when a statement runs: not the bodies of functions."""
    yield tree
    for inner in ast.iter_child_nodes(tree):
        if isinstance(tree, Definition) and inner in tree.body:
            continue
        if isinstance(tree, ast.Lambda) and inner is tree.body:
            continue
        yield from _at_once(inner)


def _definitions(tree: ast.AST) -> Iterator[Definition]:
    """The functions that a statement defines at the top of its cell, under an `if` too."""
    if isinstance(tree, Definition):
        yield tree
    elif not isinstance(tree, ast.ClassDef | ast.expr):
        for inner in ast.iter_child_nodes(tree):
            yield from _definitions(inner)


def _names_an_exercise(decorator: ast.expr) -> bool:
    match decorator:
        case ast.Call(func=ast.Name(id="exercise") | ast.Attribute(attr="exercise")):
            return True
    return False


def _exercise_of(function: Definition) -> str:
    for decorator in function.decorator_list:
        if _names_an_exercise(decorator) and isinstance(decorator, ast.Call):
            for argument in (*decorator.args, *(keyword.value for keyword in decorator.keywords)):
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                    return argument.value
    return ""


def _root(node: ast.expr) -> set[str]:
    while isinstance(node, ast.Subscript | ast.Attribute):
        node = node.value
    return {node.id} if isinstance(node, ast.Name) else set()


def _is_read(name: ast.Name) -> bool:
    return isinstance(name.ctx, ast.Load)


def _is_live_import(statement: Statement, name: str) -> bool:
    tree = statement.tree
    if not isinstance(tree, ast.ImportFrom) or tree.module != "kit":
        return False
    return any((one.asname or one.name) == name and one.name in LIVE for one in tree.names)
