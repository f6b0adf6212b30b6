"""The table of torch's private names is what the source uses and what torch has, and other versions are told of."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path

import pytest
import torch

from kit.probe import torch_names
from kit.probe.torch_names import NAMES, TRIED, USUAL, exists, in_words, lacking, never_tried, release

ROOT = Path(__file__).parents[3]
SOURCES = sorted(set((ROOT / "kit").rglob("*.py")) - {Path(torch_names.__file__)})
HERE = release(torch.__version__)


def private(part: str) -> bool:
    return part.startswith("_") and not part.startswith("__")


def ours(trees: list[ast.AST]) -> set[str]:
    """What the source itself defines."""
    found = set()
    for node in (node for tree in trees for node in ast.walk(tree)):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.Name(id=name, ctx=ast.Store()):
                found.add(name)
            case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name, ctx=ast.Store()):
                found.add(name)
    return found


def imported(tree: ast.AST) -> dict[str, str]:
    """Name in the module -> what it stands for."""
    found = {}
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                found |= {
                    a.asname or a.name.partition(".")[0]: a.name if a.asname else a.name.partition(".")[0]
                    for a in names
                }
            case ast.ImportFrom(module=str(module), names=names):
                found |= {a.asname or a.name: f"{module}.{a.name}" for a in names}
    return found


def private_uses(tree: ast.AST, own: set[str]) -> Iterator[str]:
    """Torch's private names that a module uses: in full where it can be read off, else the last part ('._cdata')."""
    stands_for = imported(tree)
    if not any(name.startswith("torch") for name in stands_for.values()):
        return
    yield from (
        name for name in stands_for.values() if name.startswith("torch.") and any(map(private, name.split(".")))
    )
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(attr=attr):
                chain = re.fullmatch(r"(\w+)\.([\w.]+)", ast.unparse(node))
                root = stands_for.get(chain[1], "") if chain else ""
                if chain and root.startswith("torch") and any(map(private, chain[2].split("."))):
                    yield f"{root}.{chain[2]}"
                elif private(attr) and attr not in own and (not root or root.startswith("torch")):
                    yield f".{attr}"
            case ast.Call(func=ast.Name(id="getattr" | "setattr" | "hasattr"), args=[_, ast.Constant(str(attr)), *_]):
                if private(attr) and attr not in own:
                    yield f".{attr}"
            case ast.keyword(arg=str(arg)) if private(arg):
                yield f".{arg}"
            case ast.ClassDef(bases=bases, body=body):
                for base in filter(None, (stands_for.get(ast.unparse(b).partition(".")[0], "") and b for b in bases)):
                    yield from overridden(f"{stands_for[ast.unparse(base).partition('.')[0]]}", base, body)


def overridden(root: str, base: ast.expr, body: list[ast.stmt]) -> Iterator[str]:
    """Private methods of a class of torch that a class derived from it replaces."""
    if not root.startswith("torch"):
        return
    kind = attrgetter(".".join([*root.split("."), *ast.unparse(base).split(".")[1:]][1:]))(torch)
    yield from (
        f".{one.name}"
        for one in body
        if isinstance(one, ast.FunctionDef) and private(one.name) and hasattr(kind, one.name)
    )


def in_the_table(use: str) -> bool:
    if use.startswith("."):
        return any(use[1:] in one.name.split(".") for one in NAMES)
    return any(f"{one.name}.".startswith(f"{use}.") or f"{use}.".startswith(f"{one.name}.") for one in NAMES)


def test_every_private_name_of_torch_that_the_source_uses_is_in_the_table() -> None:
    trees: dict[Path, ast.AST] = {path: ast.parse(path.read_text(encoding="utf-8")) for path in SOURCES}
    own = ours(list(trees.values()))
    uses = {(path.relative_to(ROOT).as_posix(), use) for path, tree in trees.items() for use in private_uses(tree, own)}
    assert {use for _, use in uses} >= {
        "torch.distributed.distributed_c10d._world.pg_map",
        "torch.utils._pytree.tree_leaves",
        "torch._C._current_graph_task_id",
        "._register_backend",
        "._FrameAction",
        "._start_coalescing",
    }
    assert {where for where in uses if not in_the_table(where[1])} == set()


@pytest.mark.parametrize("name", NAMES, ids=lambda one: one.name)
def test_a_name_in_the_table_is_used(name: torch_names.Name) -> None:
    last = re.compile(rf"\b{name.name.rpartition('.')[2]}\b")
    assert any(last.search(path.read_text(encoding="utf-8")) for path in SOURCES)


@pytest.mark.parametrize("name", NAMES, ids=lambda one: one.name)
def test_a_torch_that_was_tried_has_the_names_that_the_table_says(name: torch_names.Name) -> None:
    assert set(name.versions) <= set(TRIED)
    if name.part_of and not exists(name.part_of):
        pytest.skip(f"this build has no {name.part_of}")
    assert HERE not in TRIED or exists(name.name) == (HERE in name.versions)
    assert not exists(f"{name.name}_of_old")


def test_what_torch_lacks_is_said_with_what_it_means(monkeypatch: pytest.MonkeyPatch) -> None:
    assert lacking(torch.__version__) == ()
    gone = torch_names.Name("torch._C._gone", "nothing", "no rank starts")
    older = torch_names.Name("torch._C._of_old", "nothing", "no rank starts", versions=())
    monkeypatch.setattr(torch_names, "NAMES", (*NAMES, gone, older))
    assert lacking(torch.__version__) == (gone,) and in_words((), "99.0") == ""
    assert gone in lacking("99.0") and older not in lacking("99.0")
    assert in_words([gone], "99.0").startswith("torch 99.0 has no torch._C._gone (without it no rank starts)")
    assert f"pip install torch=={USUAL}" in in_words([gone], "99.0")


@pytest.mark.parametrize("version", [f"{version}.1+cu128" for version in TRIED])
def test_nothing_is_said_of_a_version_that_was_tried(version: str) -> None:
    assert never_tried(version) == ()


def test_a_version_that_was_never_tried_is_told_of() -> None:
    tried = ", ".join(TRIED)
    assert never_tried("99.1.0a0+git123") == (
        f"torch 99.1 was never tried with Lockstep; tried: {tried}; if something is odd, pip install torch=={USUAL}",
    )


def test_the_versions_are_those_of_the_project() -> None:
    assert f"torch=={USUAL}." in (ROOT / "binder/constraints.txt").read_text(encoding="utf-8")
    needs = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    assert USUAL in TRIED and f"torch>={TRIED[0]}" in needs
