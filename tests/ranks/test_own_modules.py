"""A module of the learner's is one object on a rank, whoever asks for it."""

from __future__ import annotations

import multiprocessing
import pickle
import re
import sys
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import pytest
import torch
import torch.distributed as dist

from kit.run.errors import RankError
from kit.run.live import LiveRunner
from kit.run.options import Options
from tests.ranks.modules import groups, layers, settings
from tests.ranks.modules.settings import bump


def sets_state() -> list[Any]:
    settings.setup(7)
    bump()
    bump()
    import tests.ranks.modules.settings as again

    again.seen.append(9)
    return [settings.value, settings.count, settings.current(), settings.Box.total, settings.seen, again is settings]


@pytest.mark.parametrize("threads", [False, True], ids=["processes", "threads"])
def test_state_that_its_functions_set_is_there_for_all(three: LiveRunner, threads: bool) -> None:
    wanted = [[7, 2, 2, 2, [1, 2, 9], True]] * 3
    for _ in range(2):  # the second run finds it as the kernel has it, not as the first left it
        assert Options(ranks=3, threads=threads, cluster=three).record(sets_state).results == wanted


def finds_it_by_name() -> list[Any]:
    box = settings.Box(4)
    there = pickle.loads(pickle.dumps(box))
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as children:
        return [type(there) is settings.Box, children.submit(box.doubled).result(), box]


def test_pickles_and_spawned_children_find_it(three: LiveRunner) -> None:
    for same, doubled, box in Options(ranks=1, cluster=three).record(finds_it_by_name).results:
        assert (same, doubled, type(box)) == (True, 8, settings.Box)


def sums_in_pairs() -> float:
    groups.setup_process_group_manager(1)
    x = torch.full((1,), 1.0 + dist.get_rank())
    return float(layers.summed(x))


def test_a_manager_of_groups_in_a_module_is_found_and_stepped_into(three: LiveRunner) -> None:
    session = three.step(sums_in_pairs)
    files = set()
    while session.live:
        files |= {state.place.file for state in session.step() if state.place}
    assert session.results == [1.0, 2.0, 3.0]
    assert files >= {__file__, groups.__file__, layers.__file__}
    assert three.record(sums_in_pairs).results == session.results
    assert Options(ranks=3, threads=True, cluster=three).record(sums_in_pairs).results == session.results


def imports_it_late() -> int:
    from tests.ranks.modules.late import again

    again()
    return again()


def test_a_module_that_only_the_function_imports_is_stepped_into_and_read_anew(three: LiveRunner) -> None:
    late = settings.__file__.replace("settings", "late")
    for _ in range(2):
        session = three.step(imports_it_late)
        files = set()
        while session.live:
            files |= {state.place.file for state in session.step() if state.place}
        assert session.results == [2, 2, 2] and late in files
        assert any(source.file == late and "times += 1" in "".join(source.lines) for source in session.trace.sources)
    assert "tests.ranks.modules.late" not in sys.modules, "nobody else has loaded it"


def takes_the_lock() -> None:
    with settings.lock:
        bump()


def test_what_cannot_travel_is_missed_by_those_alone_who_ask_for_it(three: LiveRunner) -> None:
    sentence = "module 'tests.ranks.modules.settings' has no attribute 'lock' on a rank"
    with pytest.raises(RankError, match=re.escape(sentence)):
        three.record(takes_the_lock)
