"""How many ranks a whole lab is run with: one number each time, two to four in the full matrix."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.labs.test_labs import promises_of
from tests.launch import stand_in_for_torchrun

NOT_LONG = ("tests/labs/test_labs.py::test_untouched[",)
USUAL = {"test_solved": 3, "test_untouched": 2}  # between them both sizes; at two ranks left is right


@pytest.fixture
def quick_torchrun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[None]:
    """What a lab starts with torchrun is forked where torch is imported already; in the full matrix it is torchrun."""
    if request.config.getoption("--full-matrix"):
        yield
        return
    with stand_in_for_torchrun() as source:
        (tmp_path / "sitecustomize.py").write_text(source)
        monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
        yield


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "lab_ranks" in metafunc.fixturenames:
        counts = (2, 3, 4) if metafunc.config.getoption("--full-matrix") else (USUAL[metafunc.function.__name__],)
        metafunc.parametrize("lab_ranks", counts, ids=lambda count: f"{count}-ranks")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A long lab is run untouched without a cluster each time, on ranks in the full matrix alone."""
    if config.getoption("--full-matrix"):
        return
    left_out = [item for item in items if item.nodeid.startswith(NOT_LONG) and _is_long(item)]
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=left_out)


def _is_long(item: pytest.Item) -> bool:
    assert isinstance(item, pytest.Function)
    return bool(promises_of(item.callspec.params["path"]).LONG)
