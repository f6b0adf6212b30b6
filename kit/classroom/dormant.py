"""A learner's function that can be read and never called: what a judge looks at who must not run it."""

from __future__ import annotations

import ast
import linecache
import warnings
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

from kit.classroom.slices import Definition

if TYPE_CHECKING:
    from kit.classroom.handins import Answer


def dormant(answer: Answer) -> Callable[..., Any]:
    """The function of an answer, with its signature, source and code, and with the numbers of its notebook.

    Compiling runs nothing; the function's code is a constant of what is compiled. Raises ValueError for an answer that
    has a problem.
    """
    if answer.problem:
        raise ValueError(answer.problem)
    source = answer.source
    linecache.cache[answer.file] = (len(source), None, source.splitlines(keepends=True), answer.file)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = compile(source, answer.file, "exec", dont_inherit=True)
    code = [each for each in module.co_consts if isinstance(each, CodeType) and each.co_name == answer.function][-1]
    names: dict[str, Any] = {"__builtins__": {}, "__name__": "dormant", **_numbers(answer.tree)}
    definition = [each for each in ast.walk(answer.tree) if _is_of(each, code)][-1]
    assert isinstance(definition, Definition)
    positional = tuple(_value(default) for default in definition.args.defaults)
    by_name = zip(definition.args.kwonlyargs, definition.args.kw_defaults, strict=True)
    function = FunctionType(code, names, answer.function, positional or None)
    function.__kwdefaults__ = {argument.arg: _value(default) for argument, default in by_name if default is not None}
    return function


def forget(answer: Answer) -> None:
    """Let go of its source, which was kept for sentences."""
    linecache.cache.pop(answer.file, None)


def _is_of(node: ast.AST, code: CodeType) -> bool:
    if not isinstance(node, Definition) or node.name != code.co_name:
        return False
    return code.co_firstlineno in (node.lineno, *(decorator.lineno for decorator in node.decorator_list))


def _numbers(tree: ast.Module) -> dict[str, int]:
    """Whole numbers that the module binds: a function that counts on one is told so."""
    found: dict[str, int] = {}
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=int() as number)):
                found[name] = number
    return found


def _value(default: ast.expr) -> Any:
    """A default that is written out; its text for one that would have to be computed."""
    try:
        return ast.literal_eval(default)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return f"<{ast.unparse(default)}>"
