"""What holds for the project as a whole: a light import, a complete wheel, pinned versions, clean notebooks."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import tomllib
import zipfile
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import kit
from kit import resources

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
NOTEBOOKS = sorted((ROOT / "labs").glob("*.ipynb"))


@pytest.mark.parametrize(
    "statement", ["import kit", "import kit.clusters", "import kit; kit.cluster, kit.step, kit.check"]
)
def test_importing_kit_loads_nothing_heavy(statement: str) -> None:
    program = (
        f"{statement}\nimport sys\nprint(*sorted(set(sys.modules) & {{'torch', 'bokeh', 'mermaid', 'papermill'}}))"
    )
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    assert loaded.stdout.split() == []


def test_bare_import_loads_no_widgets_and_no_cluster() -> None:
    program = "import kit, sys\nprint(*sorted(set(sys.modules) & {'ipywidgets', 'ipyparallel', 'IPython', 'numpy'}))"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    assert loaded.stdout.split() == []


def test_no_module_imports_in_a_circle() -> None:
    """Also where an import is for a checker alone, or waits for a call: either would only hide the circle."""
    files = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for path in (ROOT / "kit").rglob("*.py")
    }
    graph = {module: set[str]() for module in files}
    for module, path in files.items():
        for found in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(found, ast.Import):
                names = [alias.name for alias in found.names]
            elif isinstance(found, ast.ImportFrom):
                below = [f"{found.module}.{alias.name}" for alias in found.names]
                names = [name if name in files else str(found.module) for name in below]
            else:
                continue
            graph[module] |= {name for name in names if name in files} - {module}
    assert graph["kit.trace.trace"] >= {"kit.trace.facts", "kit.trace.match"}
    TopologicalSorter(graph).prepare()  # raises CycleError, which names the circle


def test_no_name_that_a_package_gives_lazily_is_that_of_a_module_in_it() -> None:
    """Whoever imports the module puts it in the place of what the package gives by that name when it is asked."""
    for file in (ROOT / "kit").rglob("__init__.py"):
        package, text = ".".join(file.parent.relative_to(ROOT).parts), file.read_text("utf-8")
        if "lazy.names(__name__" not in text:
            continue
        imports = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom)]
        of_modules = [node for node in imports if (node.module or "").startswith(f"{package}.")]
        given = {alias.asname or alias.name for node in of_modules for alias in node.names}
        modules = {path.stem for path in file.parent.iterdir()}
        assert not given & modules, f"{package} gives {given & modules}, and has modules of that name"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)], check=True, cwd=ROOT)
    (built,) = folder.glob("*.whl")
    return zipfile.ZipFile(built)


def test_wheel_carries_every_package_every_lab_and_every_asset(wheel: zipfile.ZipFile) -> None:
    inside = set(wheel.namelist())
    for source, target in (("kit", "kit"), ("labs", "kit/_carried/labs"), ("assets", "kit/_carried/assets")):
        files = [path.relative_to(ROOT / source) for path in (ROOT / source).rglob("*") if path.is_file()]
        wanted = {f"{target}/{path.as_posix()}" for path in files if not _passing(path)} - {
            "kit/_carried/labs/__main__.py"
        }
        assert wanted - inside == set()
    assert "kit/py.typed" in inside
    assert any(name.endswith("licenses/LICENSE") for name in inside)


def test_wheel_carries_nothing_else(wheel: zipfile.ZipFile) -> None:
    tops = {name.split("/")[0] for name in wheel.namelist()}
    assert tops == {"kit", f"lockstep_labs-{kit.__version__}.dist-info"}
    assert not any("__pycache__" in name or "_carried/labs/__main__" in name for name in wheel.namelist())


def _passing(path: Path) -> bool:
    return any(part in ("__pycache__", ".ipynb_checkpoints") for part in path.parts)


def test_wheel_finds_its_labs_when_it_is_installed(wheel: zipfile.ZipFile, tmp_path: Path) -> None:
    wheel.extractall(tmp_path)
    program = "from kit import resources\nprint(resources.labs(), resources.assets(), sep='\\n')"
    said = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path)},
    )
    carried = tmp_path / "kit" / "_carried"
    assert [Path(line) for line in said.stdout.splitlines()] == [carried / "labs", carried / "assets"]


def test_checkout_finds_its_labs() -> None:
    assert resources.labs() == ROOT / "labs"
    assert resources.assets() == ROOT / "assets"


def test_every_dependency_is_pinned_once_in_the_constraints() -> None:
    extras = PROJECT["project"]["optional-dependencies"]
    wanted = {_canonical(line) for line in sum(extras.values(), list(PROJECT["project"]["dependencies"]))}
    pins = [line for line in (ROOT / "binder" / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    names = [_canonical(line) for line in pins]
    assert wanted - {"lockstep-labs"} - set(names) == set()
    assert len(names) == len(set(names))
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", line) for line in pins)


def test_torch_is_a_range_in_the_project() -> None:
    (line,) = (line for line in PROJECT["project"]["dependencies"] if line.startswith("torch"))
    assert ">=" in line and "==" not in line


def _canonical(requirement: str) -> str:
    name = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert name is not None
    return re.sub(r"[-_.]+", "-", name[0]).lower()


def test_there_are_notebooks() -> None:
    assert {"00_ranks", "01a_collectives"} <= {path.stem for path in NOTEBOOKS}


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_carry_no_outputs(notebook: Path) -> None:
    page = json.loads(notebook.read_text(encoding="utf-8"))
    code = [cell for cell in page["cells"] if cell["cell_type"] == "code"]
    assert code
    assert [cell["id"] for cell in code if cell["outputs"] or cell["execution_count"] is not None] == []
    assert "widgets" not in page["metadata"]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_lab_has_its_solutions(notebook: Path) -> None:
    assert (ROOT / "labs" / "solutions" / f"{notebook.stem}.py").is_file()
