"""Ranks as threads of one process, and what goes wrong: the sentences of processes, and nobody else is harmed."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest
import torch
import torch.distributed as dist

from kit.clusters.processes import children
from kit.protocol.messages import Alive
from kit.protocol.wire import Channel
from kit.run import threads as threads_module
from kit.run.errors import RankError
from kit.run.live import LiveRunner
from kit.topics.collectives.reference import ring_all_reduce
from tests.ranks.living import until
from tests.ranks.test_threads import spoken, threads


def fails_on_one(rank: int) -> None:
    if dist.get_rank() == rank:
        raise LookupError("no batch")
    dist.all_reduce(torch.ones(1))


def all_send_first() -> None:
    x, n = torch.ones(1), dist.get_world_size()
    dist.send(x, (dist.get_rank() + 1) % n)
    dist.recv(x, (dist.get_rank() - 1) % n)


def one_stays_away() -> None:
    if dist.get_rank() != 1:
        dist.all_reduce(torch.ones(1))


def said(run: object, *arguments: object) -> str:
    with pytest.raises(RankError) as caught:
        run(*arguments)  # type: ignore[operator]
    return str(caught.value)


@pytest.mark.parametrize(("program", "arguments"), [(all_send_first, ()), (one_stays_away, ()), (fails_on_one, (1,))])
def test_the_sentences_are_those_of_processes(
    three: LiveRunner, program: object, arguments: tuple[object, ...]
) -> None:
    sentences = said(threads(three).record, program, *arguments)
    assert sentences == said(three.record, program, *arguments)
    assert "Deadlock" in sentences


def test_a_failed_rank_shows_its_traceback_and_the_trace_what_was_done(three: LiveRunner) -> None:
    with pytest.raises(RankError) as caught:
        threads(three).record(fails_on_one, 2)
    assert "LookupError: no batch" in str(caught.value)
    assert 'raise LookupError("no batch")' in caught.value.__notes__[0]
    assert [len(rank.operations) for rank in caught.value.trace.ranks] == [1, 1, 0]


def disagrees() -> None:
    dist.all_reduce(torch.ones(2 if dist.get_rank() == 1 else 3))


def test_what_does_not_fit_is_said_before_anything_moves(three: LiveRunner) -> None:
    sentence = said(threads(three).record, disagrees)
    assert "rank 1 calls all_reduce of 2 x float32" in sentence and "the shapes must be equal" in sentence


def handles_it() -> str:
    try:
        disagrees()
    except RuntimeError as error:
        return type(error).__name__
    return "nothing"


def test_it_reaches_the_ranks_as_an_exception(three: LiveRunner) -> None:
    sentence = said(threads(three).record, handles_it)  # they go on; the record is not sound
    assert "the shapes must be equal" in sentence


def computes_for_ever() -> None:
    while dist.get_rank() == 1:
        pass
    dist.barrier()


def test_a_rank_that_never_comes_is_given_up(three: LiveRunner) -> None:
    sentence = said(threads(three, patience=0.5).record, computes_for_ever)
    assert "rank 1 has worked for 0.5 s without talking to another (line" in sentence
    assert "patience=600" in sentence


def kills_itself() -> None:
    dist.barrier()
    if dist.get_rank() == 2:
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.usefixtures("time_to_leave")
def test_a_process_that_dies_takes_nobody_along(three: LiveRunner) -> None:
    before = three.record(whose_process).results
    assert "died" in said(threads(three).record, kills_itself)
    assert threads(three).record(spoken, torch.ones(1), times=1).results == [1.0] * 3
    assert three.record(whose_process).results == before


def whose_process() -> tuple[int, int]:
    return os.getpid(), os.getppid()


def only_ranks_are_left(cluster: LiveRunner) -> bool:
    """Of what the host agent has forked, as soon as it has heard of the end."""
    found = cluster.record(whose_process).results
    ranks, agent = {pid for pid, _ in found}, found[0][1]
    return bool(until(lambda: set(children(agent)) <= ranks))


def test_nothing_is_left_and_this_process_is_untouched(three: LiveRunner) -> None:
    ((process, agent), *others) = threads(three).record(whose_process).results
    assert set(others) == {(process, agent)}
    assert process not in (os.getpid(), *(pid for pid, _ in three.record(whose_process).results))
    assert agent == three.record(whose_process).results[0][1]
    assert only_ranks_are_left(three)
    assert not list(three.folder.glob("t*.sock"))


def test_an_interruption_ends_it(three: LiveRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted(Channel[Any, Any]):
        def receive(self) -> None:
            assert super().receive() == Alive()
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(threads_module, "Channel", Interrupted)
        with pytest.raises(KeyboardInterrupt):
            threads(three).record(computes_for_ever)
    assert only_ranks_are_left(three)


def cannot_load() -> None:
    import no_such_module  # type: ignore[import-not-found]  # noqa: F401


def test_an_import_that_fails_is_the_ranks_failure(three: LiveRunner) -> None:
    assert "No module named 'no_such_module'" in said(threads(three).record, cannot_load)


@pytest.mark.parametrize(
    ("wishes", "words"),
    [
        ({"ranks": 0}, "ranks is a whole number from 1 to 128, not 0"),
        ({"ranks": 1000}, "from 1 to 128"),
        ({"ranks": 2.0}, "from 1 to 128"),
        ({"patience": 0}, "patience is a time in seconds"),
    ],
)
def test_what_cannot_be_says_what_can(three: LiveRunner, wishes: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        threads(three, **wishes)  # type: ignore[arg-type]


def test_one_rank_alone(three: LiveRunner) -> None:
    assert threads(three, 1).record(ring_all_reduce, torch.ones(3)).results[0].tolist() == [1.0, 1.0, 1.0]
