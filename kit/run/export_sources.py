"""The source of a function and of all it needs, taken from cells and modules, for a script without them."""

from __future__ import annotations

import ast
import builtins
import importlib
import inspect
import linecache
import symtable
import sys
import textwrap
import types
from typing import Any

from kit.probe.own import is_own_file
from kit.run.export_values import expression, is_drawn

OURS = (
    "kit.topics.",
    "kit.gpt",
)  # packages whose code may be copied into a script; the others need our ranks


class Sources:
    """What a script defines before its function: imports, constants, classes and helpers, each after what it needs."""

    def __init__(self) -> None:
        self.imports: dict[str, str] = {"torch": "import torch", "dist": "import torch.distributed as dist"}
        self.blocks: dict[str, str] = {}  # name: source, in the order of definition
        self.runs_code = False  # some block does more than define: it makes objects
        self._open: set[str] = set()

    def add(self, value: Any, name: str | None = None, namespace: dict[str, Any] | None = None) -> str:
        """Make sure that the script has `value`; returns its name there. Raises ValueError where that cannot be."""
        if isinstance(value, types.ModuleType):
            return self._module(value, name or value.__name__)
        own = getattr(value, "__name__", None)
        if isinstance(value, types.FunctionType) and own == "<lambda>":
            return self._bound(name, value, namespace)
        local = "<locals>" in getattr(value, "__qualname__", "")  # what a decorator made, or a factory
        if local and name and namespace is not None and find_binding(name, namespace) is not None:
            return self._bound(name, value, namespace)  # as the cell made it
        if isinstance(value, types.FunctionType | type) and _inlined(value.__module__):
            target = str(own)
            self._definition(value, target)
            if name and name != target:
                self._block(name, f"{name} = {target}")
            return name or target
        if isinstance(value, types.FunctionType | types.BuiltinFunctionType | type):
            return self._imported(value, name or str(own), namespace)
        return self._constant(value, name, namespace)

    # ---------------------------------------------------------------------------------- one kind of thing each

    def _module(self, module: types.ModuleType, name: str) -> str:
        if _inlined(module.__name__):
            raise ValueError(f"the code hands the module {module.__name__} around: import what it needs by name")
        plain = module.__name__
        self._import(name, f"import {plain}" if name == plain else f"import {plain} as {name}")
        return name

    def _definition(self, value: Any, name: str) -> None:
        if not _may_leave(value.__module__):
            raise ValueError(
                f"{name} belongs to {value.__module__}, which a script without kit cannot have: leave it out"
            )
        if name in self._open:
            return
        self._open.add(name)
        inner = inspect.unwrap(value) if isinstance(value, types.FunctionType) else value
        text = _source_of(inner)
        namespace = _namespace_of(inner)
        self._block(name, self._with_needs(text, namespace, but=name))
        self._open.discard(name)

    def _imported(self, value: Any, name: str, namespace: dict[str, Any] | None) -> str:
        module, own = getattr(value, "__module__", None), getattr(value, "__name__", "")
        if getattr(builtins, own, None) is value and name == own:
            return name
        statement = find_binding(name, namespace) if namespace is not None else None
        if statement is not None and statement.startswith("from ") and not statement.startswith("from ."):
            return self._bound(name, value, namespace)
        if module and getattr(sys.modules.get(module), own, None) is value:
            self._import(name, f"from {module} import {own}" + (f" as {name}" if name != own else ""))
            return name
        return self._bound(name, value, namespace)

    def _constant(self, value: Any, name: str | None, namespace: dict[str, Any] | None) -> str:
        text = expression(value, self.add)
        if text is None or name is None:
            return self._bound(name, value, namespace)
        if is_drawn(text) and namespace is not None and self._made_as_before(name, value, namespace):
            return name
        note = "# The real numbers were too many to write here.\n" if is_drawn(text) else ""
        self._block(name, f"{note}{name} = {text}")
        return name

    def _made_as_before(self, name: str, value: Any, namespace: dict[str, Any]) -> bool:
        """Whether the statement that made a tensor too large to write out can go into the script, with all it needs."""
        imports, blocks, runs_code = dict(self.imports), dict(self.blocks), self.runs_code
        try:
            self._bound(name, value, namespace)
        except ValueError:  # random numbers will have to do: leave no half of it behind
            self.imports, self.blocks, self.runs_code = imports, blocks, runs_code
            self._open.discard(name)
            return False
        return True

    def _bound(self, name: str | None, value: Any, namespace: dict[str, Any] | None) -> str:
        """By the statement of the cell or module that gave `value` its name."""
        statement = find_binding(name, namespace) if name and namespace is not None else None
        if name is None or namespace is None or statement is None:
            what = f"{name}, a {type(value).__name__}," if name else f"a {type(value).__name__}"
            raise ValueError(
                f"{what} cannot be written into a script: make it in the function, or in one line of a cell"
            )
        if statement.startswith(("import ", "from ")):
            if self._without_our_imports(statement) == statement:  # else it is defined in the script now
                self._import(name, statement)
        elif name not in self._open:
            self._open.add(name)
            self.runs_code = self.runs_code or _calls(statement)
            self._block(name, self._with_needs(statement, namespace, but=name))
            self._open.discard(name)
        return name

    # ---------------------------------------------------------------------------------- what a piece of source needs

    def _with_needs(self, text: str, namespace: dict[str, Any], but: str) -> str:
        """Add what the source takes from outside itself; returns it without our decorators, imports, module names."""
        text = _without_our_decorators(text, namespace)
        text = self._without_our_imports(text)
        text = self._without_module_names(text, namespace)
        for name in global_names(text):
            if name != but and name in namespace and not (name.startswith("__") and name.endswith("__")):
                self.add(namespace[name], name, namespace)
        return text

    def _without_our_imports(self, text: str) -> str:
        edits = []
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and node.module and not node.level and _inlined(node.module):
                module = importlib.import_module(node.module)
                for alias in node.names:
                    self.add(getattr(module, alias.name), alias.asname or alias.name, vars(module))
                edits.append((node, "pass  # defined above"))
        return _edited(text, edits)

    def _without_module_names(self, text: str, namespace: dict[str, Any]) -> str:
        """`collectives.ring_all_reduce` becomes `ring_all_reduce` where the module's code goes into the script."""
        edits = []
        for node in ast.walk(ast.parse(text)):
            found = _through_modules(node, namespace) if isinstance(node, ast.Attribute) else None
            if found is not None:
                module, attribute = found
                edits.append((node, self.add(getattr(module, attribute), attribute, vars(module))))
        return _edited(text, edits)

    def _import(self, name: str, line: str) -> None:
        if self.imports.setdefault(name, line) != line or name in self.blocks:
            raise ValueError(f"two things are called {name} ({line}; {self.imports[name]}): give one another name")

    def _block(self, name: str, text: str) -> None:
        if self.blocks.setdefault(name, text) != text or name in self.imports:
            raise ValueError(f"two different things are called {name} in the code to export: give one another name")


# -------------------------------------------------------------------------------------- reading source


def global_names(text: str) -> list[str]:
    """Names that a piece of source takes from outside itself, in no scope of its own; sorted."""
    names: set[str] = set()

    def walk(table: symtable.SymbolTable) -> None:
        outermost = table.get_type() == "module"
        for symbol in table.get_symbols():
            if symbol.is_referenced() and (outermost or symbol.is_global()):
                names.add(symbol.get_name())
        for child in table.get_children():
            walk(child)

    walk(symtable.symtable(text, "<export>", "exec"))
    return sorted(names)


def find_binding(name: str, namespace: dict[str, Any]) -> str | None:
    """The top-level statement that bound `name` in the module (or the notebook: its latest cell) of this namespace."""
    for lines in _texts(namespace):
        text = "".join(lines)
        try:
            body = ast.parse(text).body
        except SyntaxError:  # a cell with magics is not all Python
            continue
        for node in reversed(body):
            if isinstance(node, ast.Import | ast.ImportFrom):
                for alias in node.names:
                    if (alias.asname or alias.name) == name:
                        node.names = [alias]
                        return ast.unparse(node)
            elif name in _targets(node):
                start = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
                return "\n".join(text.splitlines()[start - 1 : node.end_lineno])
    return None


def _calls(statement: str) -> bool:
    body = ast.parse(statement).body
    return any(isinstance(node, ast.Assign) and any(isinstance(n, ast.Call) for n in ast.walk(node)) for node in body)


def _targets(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return {node.name}
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return {leaf.id for target in targets for leaf in ast.walk(target) if isinstance(leaf, ast.Name)}


def _texts(namespace: dict[str, Any]) -> list[list[str]]:
    if namespace.get("__file__"):
        return [linecache.getlines(namespace["__file__"])]
    cells = [file for file in linecache.cache if "ipykernel_" in file or file.startswith("<ipython-input")]
    return [linecache.getlines(file) for file in reversed(cells)]


def _source_of(value: Any) -> str:
    """The text of a function or class, from its file or its cell. Raises ValueError where there is none."""
    try:
        return textwrap.dedent(inspect.getsource(value)).rstrip()
    except (OSError, TypeError):  # a class of a notebook has no file that inspect knows
        found = find_binding(value.__name__, _namespace_of(value)) if isinstance(value, type) else None
    if found is None:
        raise ValueError(f"no source is known for {value.__name__}: define it in a cell (without %%magic) or in a file")
    return found


def _namespace_of(value: Any) -> dict[str, Any]:
    """Globals of a function, its closure's variables among them; or of the module of a class."""
    if isinstance(value, types.FunctionType):
        closure = inspect.getclosurevars(value).nonlocals if value.__closure__ else {}
        return {**value.__globals__, **closure}
    return vars(sys.modules[value.__module__])


def _inlined(module: str | None) -> bool:
    """Whether a module's code goes into the script: the notebook, ours, the learner's; not what was installed."""
    if module is None or module == "builtins":
        return False
    if module == "__main__" or module.split(".")[0] in ("kit", "labs"):
        return True
    file = getattr(sys.modules.get(module), "__file__", None)
    return file is not None and is_own_file(file)


def _may_leave(module: str) -> bool:
    return not (module == "kit" or module.startswith("kit.")) or module.startswith(OURS)


def _without_our_decorators(text: str, namespace: dict[str, Any]) -> str:
    lines = text.splitlines()
    for node in ast.walk(ast.parse(text)):
        for decorator in getattr(node, "decorator_list", []):
            root = next(leaf for leaf in ast.walk(decorator) if isinstance(leaf, ast.Name))
            value = namespace.get(root.id)
            module = value.__name__ if isinstance(value, types.ModuleType) else getattr(value, "__module__", None)
            if isinstance(module, str) and not _may_leave(module):
                for number in range(decorator.lineno - 1, decorator.end_lineno):
                    lines[number] = "\0"
    return "\n".join(line for line in lines if line != "\0")


def _through_modules(node: ast.Attribute, namespace: dict[str, Any]) -> tuple[types.ModuleType, str] | None:
    """The module and the name in it, where an attribute chain goes through modules whose code goes into the script."""
    chain: list[str] = []
    inner: ast.expr = node
    while isinstance(inner, ast.Attribute):
        chain.append(inner.attr)
        inner = inner.value
    value = namespace.get(inner.id) if isinstance(inner, ast.Name) else None
    for attribute in reversed(chain[1:]):
        value = getattr(value, attribute, None) if isinstance(value, types.ModuleType) else None
    if not isinstance(value, types.ModuleType) or not _inlined(value.__name__):
        return None
    return None if isinstance(getattr(value, chain[0], None), types.ModuleType) else (value, chain[0])


def _edited(text: str, edits: list[tuple[Any, str]]) -> str:
    """The source with some nodes' text replaced. Offsets of the syntax tree count bytes."""
    lines = [line.encode() for line in text.splitlines()]
    for node, new in sorted(edits, key=lambda edit: (edit[0].lineno, edit[0].col_offset), reverse=True):
        first, last = node.lineno - 1, node.end_lineno - 1
        joined = lines[first][: node.col_offset] + new.encode() + lines[last][node.end_col_offset :]
        lines[first : last + 1] = [joined]
    return b"\n".join(lines).decode()
