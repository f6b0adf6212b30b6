"""The face: its names are few, and each is on its page with an example."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import kit
from kit.run.options import Options

PAGE = Path(kit.__file__).with_name("README.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def used() -> set[str]:
    """The attributes of kit in all examples."""
    nodes = (node for example in EXAMPLES for node in ast.walk(ast.parse(example)))
    found = (node for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name))
    return {node.attr for node in found if node.value.id == "kit"}


def test_every_name_has_a_section_and_an_example() -> None:
    sections = set(re.findall(r"^## (\w+)$", PAGE, re.MULTILINE))
    assert sections == set(kit.__all__) == used()


@pytest.mark.parametrize("name", kit.__all__)
def test_every_name_is_there_and_says_what_it_is(name: str) -> None:
    assert callable(getattr(kit, name)) and getattr(kit, name).__doc__


def test_every_option_is_on_the_page() -> None:
    (told,) = re.findall(r"said before it: (.*)\.", PAGE)
    assert re.findall(r"`(\w+)`", told) == list(Options.__dataclass_fields__)


def test_importing_the_packages_below_changes_no_name() -> None:
    before = {name: getattr(kit, name) for name in kit.__all__}
    program = (
        "import kit, pkgutil, importlib\n"
        "[importlib.import_module(f'kit.{m.name}') for m in pkgutil.iter_modules(kit.__path__) if m.name != 'cli']\n"
        "print([name for name in kit.__all__ if type(getattr(kit, name)).__name__ == 'module'])\n"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[]" and len(before) == len(kit.__all__)


def test_an_unknown_name_says_what_there_is() -> None:
    with pytest.raises(AttributeError, match=r"kit has no 'steps'; it has .*step"):
        _ = kit.steps  # type: ignore[attr-defined]
