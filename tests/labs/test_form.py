"""What a lab must be before anyone runs it: short cells and prose, the fixed order, stable identities, no outputs."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest

from kit import resources

LABS = resources.shipped().notebooks()
ORDER = (
    "Goal and time",
    "Set-up",
    "See it",
    "Predict",
    "Step it live",
    "Measure it",
    "Write it",
    "Check",
    "Break it",
    "What to remember",
    "One harder variation",
    "Take it home",
)
CODE_LINES, PROSE_WORDS = 12, 79

every_lab = pytest.mark.parametrize("path", LABS, ids=lambda path: path.stem)


def notebook(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))


def text(cell: dict[str, Any]) -> str:
    return "".join(cell["source"])


def code_cells(path: Path) -> list[dict[str, Any]]:
    return [cell for cell in notebook(path)["cells"] if cell["cell_type"] == "code"]


def python(cell: dict[str, Any]) -> ast.Module:
    """The cell's syntax tree; a cell that writes a file is read as that file."""
    return ast.parse(re.sub(r"\A%%writefile.*\n", "", text(cell)))


def calls(tree: ast.AST, name: str) -> list[ast.Call]:
    """Calls of `name` or of `anything.name`."""
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [c for c in found if getattr(c.func, "id", getattr(c.func, "attr", None)) == name]


def exercises(tree: ast.AST) -> dict[str, str]:
    """Identity of each exercise defined in a cell, with its function's name."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    return {c.args[0].value: f.name for f in functions for d in f.decorator_list for c in calls(d, "exercise")}


def headings(path: Path) -> list[str]:
    prose = "\n".join(text(cell) for cell in notebook(path)["cells"] if cell["cell_type"] == "markdown")
    return [line.lstrip("# ") for line in prose.splitlines() if re.match(r"#{2,3} ", line)]


def test_the_labs_are_there():
    assert [path.stem for path in LABS][:3] == ["00_ranks", "01a_collectives", "01b_collectives"]


@every_lab
def test_committed_as_source_only(path):
    content = notebook(path)
    assert content["nbformat"] == 4 and content["nbformat_minor"] >= 5
    assert content["metadata"]["kernelspec"]["name"] == "python3"
    assert "widgets" not in content["metadata"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code_cells(path))
    assert path.read_text(encoding="utf-8") == json.dumps(content, indent=1, ensure_ascii=False) + "\n"


@every_lab
def test_cells_have_names_that_stay(path):
    names = [cell["id"] for cell in notebook(path)["cells"]]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name) and re.search("[a-z]{3}", name) for name in names)


@every_lab
def test_the_first_code_cell_holds_the_parameters(path):
    first, *others = code_cells(path)
    assert first["metadata"]["tags"] == ["parameters"]
    assert not any("parameters" in cell["metadata"].get("tags", []) for cell in others)
    names = {target.id for node in python(first).body for target in node.targets}
    assert {"ranks", "device", "seed"} < names


@every_lab
def test_the_set_up_names_the_recordings_that_stand_in(path):
    """Before torch is imported, so that a machine without it gets that far; then the ranks are the recordings'."""
    (cell,) = [cell for cell in code_cells(path) if calls(python(cell), "cluster")]
    (call,) = calls(python(cell), "cluster")
    wishes = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
    assert (wishes["ranks"], wishes["replay"]) == ("ranks", f"'{path.stem}'")
    assert "ranks = cluster.size" in text(cell)
    assert "import torch" not in text(cell).split("kit.cluster(")[0]


@every_lab
def test_sections_come_in_the_fixed_order(path):
    found = headings(path)
    first = [next((i for i, heading in enumerate(found) if heading.startswith(word)), None) for word in ORDER]
    missing = [word for word, at in zip(ORDER, first, strict=True) if at is None]
    assert not missing
    assert first == sorted(first)


@every_lab
def test_cells_are_short(path):
    for cell in code_cells(path):
        lines = [line for line in text(cell).splitlines() if line.strip()]
        assert len(lines) <= CODE_LINES or exercises(python(cell)), f"{cell['id']} has {len(lines)} lines"


@every_lab
def test_prose_between_runs_is_short(path):
    words = 0
    for cell in notebook(path)["cells"]:
        seen = re.sub(r"<details>.*?</details>", "", text(cell), flags=re.DOTALL)  # the rest is read on request
        words = 0 if cell["cell_type"] == "code" else words + len(seen.split())
        assert words <= PROSE_WORDS, f"{words} words up to {cell['id']}"


@every_lab
def test_the_voice_is_calm(path):
    for cell in notebook(path)["cells"]:
        if cell["cell_type"] == "markdown":
            assert not re.search(r"!|\bsimply\b|\bobviously\b|\bTODO\b|[\U0001f300-\U0001faff]", text(cell)), cell["id"]


@every_lab
def test_each_exercise_is_a_stub_with_a_hint_before_and_a_check_after(path):
    cells = notebook(path)["cells"]
    trees = {i: python(cell) for i, cell in enumerate(cells) if cell["cell_type"] == "code"}
    stubs = {(i, identity, name) for i, tree in trees.items() for identity, name in exercises(tree).items()}
    assert stubs
    for at, identity, name in stubs:
        assert f'hint("{identity}")' in text(cells[at - 1]), f"no hint is named before {identity}"
        checked = [i for i, tree in trees.items() for c in calls(tree, "check") if getattr(c.args[0], "id", "") == name]
        assert checked and checked[0] > at and len(checked) == 1, f"{identity} needs one check after it"
        function = next(node for node in trees[at].body if isinstance(node, ast.FunctionDef) and node.name == name)
        assert ast.get_docstring(function)
        assert isinstance(function.body[1], ast.Raise) and function.body[1].exc.id == "NotAttempted"


@every_lab
def test_the_exercises_are_those_that_can_be_checked(path):
    from kit.grade import discovery

    written = {identity for cell in code_cells(path) for identity in exercises(python(cell))}
    assert written == {each.id for each in discovery.labs()[path.stem].exercises}


@every_lab
def test_a_guess_comes_before_the_run_that_answers_it(path):
    asked: dict[str, int] = {}
    answered: dict[str, int] = {}
    for at, cell in enumerate(code_cells(path)):
        tree = python(cell)
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and calls(node.value, "predict"):
                asked[node.targets[0].id] = at
        answered |= {call.func.value.id: at for call in calls(tree, "reveal")}
    assert len(asked) >= 3
    assert asked.keys() == answered.keys()
    assert all(asked[name] < answered[name] for name in asked)


def bound(tree: ast.AST) -> set[str]:
    """Names that a cell gives a value, in no scope of its own."""
    names: set[str] = set()
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif not isinstance(node, ast.Lambda | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
            names |= bound(node)
    return names


@every_lab
def test_an_answer_can_be_asked_for_again_after_the_cells_below_have_run(path):
    """Whoever forgot to commit is told to run the cell again: no later cell may have put something else into it."""
    trees = [(cell["id"], python(cell)) for cell in code_cells(path)]
    for at, (name, tree) in enumerate(trees):
        if not calls(tree, "reveal"):
            continue
        stored = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        stored |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
        read = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} - stored
        lost = {later: read & bound(other) for later, other in trees[at + 1 :] if read & bound(other)}
        assert not lost, f"{name} reads what {lost} change"


@every_lab
def test_nothing_is_hidden_and_no_cell_holds_an_answer(path):
    """A click, or a screen reader, would open it: right choices and reasons are in the topic's `questions.py`."""
    from kit.grade import discovery

    for cell in notebook(path)["cells"]:
        assert "jupyter" not in cell["metadata"], f"{cell['id']} is collapsed: arrow keys pass it by, a click opens it"
    trees = [python(cell) for cell in code_cells(path)]
    asked = {call.args[0].value for tree in trees for call in calls(tree, "predict")}
    assert asked <= discovery.answers().keys()
    for call in (call for tree in trees for call in calls(tree, "reveal")):
        told = [node.value for node in ast.walk(call) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
        assert not told and not any(keyword.arg == "why" for keyword in call.keywords)


@every_lab
def test_the_last_cell_writes_a_script_to_take_home(path):
    last = notebook(path)["cells"][-1]
    assert last["cell_type"] == "code"
    (call,) = calls(python(last), "export")
    assert call.args[0].value.endswith(".py")
    assert "torchrun" in text(last)
