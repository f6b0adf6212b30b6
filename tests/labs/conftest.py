"""How many ranks a whole lab is run with: one number each time, two to four in the full matrix."""

from __future__ import annotations

import pytest

USUAL = {"test_solved": 3, "test_untouched": 2}  # between them both sizes; at two ranks left is right


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "lab_ranks" in metafunc.fixturenames:
        counts = (2, 3, 4) if metafunc.config.getoption("--full-matrix") else (USUAL[metafunc.function.__name__],)
        metafunc.parametrize("lab_ranks", counts, ids=lambda count: f"{count}-ranks")


LONG = ("03_data_parallel", "04_zero")  # untouched: each time without a cluster, on ranks in the full matrix


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--full-matrix"):
        return
    left_out = [item for item in items if item.name.startswith("test_untouched[") and item.name[:-1].endswith(LONG)]
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=left_out)
