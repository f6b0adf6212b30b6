"""What every test shares: a marker and a time limit by folder, the sizes of the world, the switches of a whole run."""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path

import hypothesis
import pytest

from tests.plan import Plan

pytest_plugins = ["tests.clusters"]

TESTS = Path(__file__).parent

# read when torch is imported: several tests run at a time, and threads that wait for each other would spin
os.environ.setdefault("OMP_NUM_THREADS", "1")

hypothesis.settings.register_profile("lockstep", deadline=None)  # a busy machine is slow, not wrong
hypothesis.settings.load_profile("lockstep")
# by folder: longer is a hang
SECONDS = {"unit": 60, "ranks": 300, "labs": 600, "mutants": 300, "classroom": 300, "browser": 300}


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("lockstep")
    group.addoption(
        "--binder", action="store_true", help="build what Binder builds and run the labs in it: three minutes"
    )
    group.addoption("--full-matrix", action="store_true", help="worlds of 1 to 8 ranks instead of 2 and 3")
    group.addoption("--sessions", type=int, help="how many sessions with random faults: 12, or 200 in the full matrix")
    group.addoption("--seed", help="of the sessions with random faults: a fresh one unless given")
    group.addoption(
        "--demand-all",
        action="store_true",
        help="fail unless every kind of test ran, and no browser test was skipped",
    )
    group.addoption(
        "--quick", action="store_true", help="every unit test, and the first of each file with ranks: two minutes"
    )


def pytest_configure(config: pytest.Config) -> None:
    # what a shell starts in its background ignores Ctrl-C, and so would all that tests press it for
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if not hasattr(config, "workerinput"):  # with several workers the first process does not test, it reports
        config.pluginmanager.register(Plan(config, kind_of_id), "lockstep-plan")
        if config.getoption("--demand-all"):
            config.pluginmanager.register(Demand(), "lockstep-demand")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that takes `world` runs once for each number of ranks, unless it names its own."""
    named = {name.strip() for mark in metafunc.definition.iter_markers("parametrize") for name in _names(mark)}
    if "world" in metafunc.fixturenames and "world" not in named:
        worlds = range(1, 9) if metafunc.config.getoption("--full-matrix") else (2, 3)
        metafunc.parametrize("world", worlds, ids=lambda world: f"{world}-ranks")


def _names(mark: pytest.Mark) -> list[str]:
    names = mark.args[0] if mark.args else mark.kwargs["argnames"]
    return names.split(",") if isinstance(names, str) else list(names)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        kind = _kind(item.path)
        if kind not in SECONDS:
            raise pytest.UsageError(f"{item.nodeid} lies in none of the folders {', '.join(SECONDS)} of tests.")
        item.add_marker(getattr(pytest.mark, kind))
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(SECONDS[kind]))
    if config.getoption("--quick"):
        kept = quick(items)
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = kept
    # quick ones first: a mistake shows early
    items.sort(key=lambda item: list(SECONDS).index(_kind(item.path)))


def quick(items: list[pytest.Item]) -> list[pytest.Item]:
    """Every unit test, and of each file of tests with ranks the first."""
    first = {item.path: item for item in reversed(items) if _kind(item.path) in ("ranks", "mutants", "classroom")}
    return [item for item in items if _kind(item.path) == "unit" or first.get(item.path) is item]


def kind_of_id(test: str) -> str:
    return _kind(TESTS.parent / test.partition("::")[0])


def _kind(path: Path) -> str:
    """'ranks' for tests/ranks/... and for tests/topics/zero/ranks/...: the folder says how a test is run."""
    parts = path.relative_to(TESTS).parts
    return parts[2] if parts[0] == "topics" else parts[0]


class Demand:
    """Counts what ran, by folder, and turns a silent gap into a failure of the whole run."""

    def __init__(self) -> None:
        self.passed: Counter[str] = Counter()
        self.skipped: Counter[str] = Counter()
        self.gaps: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        kind = kind_of_id(report.nodeid)
        if report.when == "call" and report.passed:
            self.passed[kind] += 1
        if report.skipped:
            self.skipped[kind] += 1

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        self.gaps = [f"no test of tests/{kind} ran and passed" for kind in SECONDS if not self.passed[kind]]
        if self.skipped["browser"]:
            self.gaps.append(f"{self.skipped['browser']} browser tests were skipped; they must run here")
        if self.gaps and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for gap in self.gaps:
            terminalreporter.write_line(f"DEMANDED: {gap}.", red=True)
