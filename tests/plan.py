"""What will run and how long that takes, said before the first test; what each test took is kept for the next time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import pytest

# of a test never run here
SECONDS = {"unit": 0.03, "ranks": 0.8, "labs": 15.0, "mutants": 2.0, "classroom": 0.5, "browser": 8.0}
OVERHEAD = 5.0  # s that each worker needs to import torch and to collect
KEPT = "lockstep/seconds"


class Plan:
    """kind: the folder of a test by its id. Told by whoever collects: this process, or its first worker."""

    def __init__(self, config: pytest.Config, kind: Callable[[str], str]) -> None:
        self._config = config
        self._kind = kind
        self._told = False
        self._took: dict[str, float] = {}
        self._cache = getattr(config, "cache", None)  # none with -p no:cacheprovider
        self._before: dict[str, float] = self._cache.get(KEPT, {}) if self._cache is not None else {}

    def words(self, tests: Sequence[str], workers: int) -> str:
        """'2,263 tests of unit, 12 of browser: about 3 min with 2 workers'."""
        counts = Counter(self._kind(test) for test in tests)
        seconds = sum(self._before.get(test, SECONDS[self._kind(test)]) for test in tests) / workers + OVERHEAD
        length = f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
        parts = [f"{count:,} of {kind}" for kind, count in counts.items()]
        by = f" with {workers} workers" if workers > 1 else ""
        return f"{', '.join(parts)}: about {length}{by}"

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._tell([item.nodeid for item in session.items], 1)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: object, ids: Sequence[str]) -> None:
        self._tell(ids, int(self._config.getoption("numprocesses") or 1))

    def _tell(self, tests: Sequence[str], workers: int) -> None:
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        if self._told or terminal is None or not tests or self._config.option.collectonly:
            return
        self._told = True
        terminal.write_line(f"Tests: {self.words(tests, workers)}.")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._took[report.nodeid] = self._took.get(report.nodeid, 0.0) + report.duration

    def pytest_sessionfinish(self) -> None:
        if self._cache is not None and self._took:
            self._cache.set(KEPT, {**self._before, **{test: round(s, 3) for test, s in self._took.items()}})
