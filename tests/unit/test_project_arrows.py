"""The arrows between the rooms of kit: the contracts in pyproject.toml are complete, and they hold."""

from __future__ import annotations

import ast
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
KIT = ROOT / "kit"
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]

# As the design draws them: a room imports only from the rooms after its arrow.
ARROWS = {
    "resources": set(),
    "trace": set(),
    "cost": {"trace"},
    "parallel": set(),
    "gpt": {"parallel"},
    "probe": {"trace"},
    "cluster": {"probe", "trace"},
    "session": {"cluster", "probe", "trace", "cost"},
    "views": {"trace", "cost"},
    "check": {"trace", "cost"},
    "panels": {"session", "views", "check"},
    "instructor": {"check"},
}
EVERYTHING = {"front", "cli"}  # what may import every room
# Methods that are short for a function of a higher room, and ask the package for it when they are called.
FACE = {
    "cluster": {"step_on", "record_on", "stand_in"},  # cluster.step, cluster.record, kit.cluster(replay=...)
    "cost": {"plot_of"},  # sweep.plot
    "session": {"panel_of", "plot_memory", "plot_overlap"},  # session.panel, recording.panel, accounted.plot, ...
    "check": {"bench"},  # check(function) on the cluster of this kernel
}


def test_every_room_of_kit_is_in_the_drawing() -> None:
    rooms = {path.name for path in KIT.iterdir() if (path / "__init__.py").exists()}
    files = {path.stem for path in KIT.glob("*.py")} - {"__init__"}
    assert rooms | files == set(ARROWS) | EVERYTHING


@pytest.mark.parametrize("room", ARROWS)
def test_contract_of_a_room_forbids_all_it_has_no_arrow_to(room: str) -> None:
    (contract,) = (contract for contract in SETTINGS["contracts"] if contract["source_modules"] == [f"kit.{room}"])
    forbidden = {name.removeprefix("kit.") for name in contract["forbidden_modules"] if name.startswith("kit.")}
    free = {"resources"} | ARROWS[room] | {room}
    assert forbidden == (set(ARROWS) | EVERYTHING) - free


def test_contracts_hold() -> None:
    command = [str(Path(sysconfig.get_path("scripts")) / "lint-imports"), "--no-cache"]
    linted = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert linted.returncode == 0, linted.stdout


def test_rooms_ask_the_face_of_kit_for_conveniences_alone() -> None:
    """`import kit; kit.step(...)` inside a room would go round every arrow; what does is listed in FACE, and used."""
    asked: dict[str, set[str]] = {}
    for path in sorted(KIT.glob("*/**/*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "kit":
                asked.setdefault(path.relative_to(KIT).parts[0], set()).add(node.attr)
            if isinstance(node, ast.ImportFrom) and node.module == "kit":
                names = {name.name for name in node.names} - set(ARROWS)
                asked.setdefault(path.relative_to(KIT).parts[0], set()).update(names)
    asked = {room: names - {"__file__", "__version__"} for room, names in asked.items()}
    assert {room: names for room, names in asked.items() if names} == FACE


@pytest.mark.parametrize(("room", "libraries"), [("trace", {"numpy"}), ("cost", {"numpy"})])
def test_the_record_needs_the_standard_library_and_numpy_alone(room: str, libraries: set[str]) -> None:
    used = set()
    for _, node in _imports(KIT / room):
        names = [name.name for name in node.names] if isinstance(node, ast.Import) else [node.module or "kit"]
        used |= {name.split(".")[0] for name in names}
    assert used - set(sys.stdlib_module_names) - {"kit"} <= libraries


def _imports(folder: Path) -> Iterator[tuple[Path, ast.Import | ast.ImportFrom]]:
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import | ast.ImportFrom):
                yield path, node
