"""Whatever order ranks are moved in, code that knows nothing of Lockstep gives what it gives at full speed."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

from kit.run.live import LiveRunner
from tests.clusters import NEVER
from tests.ranks import foreign

EXPECTED_WITHOUT_A_REFERENCE = {  # what full speed itself must give, where a wrong group would give it too
    foreign.coalesced_messages: [[2.0] * 3, [0.0] * 3, [1.0] * 3],
    foreign.barriers: [[3.0]] * 3,
    foreign.sparse: [[[3.0, 0.0, 0.0], [0.0, 3.0, 0.0], [0.0, 0.0, 3.0]]] * 3,
}
MOTIONS = ("step", "over", "into", "out", "to_collective", "step")
MOST = 120  # random motions; what is left runs to its end


@pytest.mark.parametrize("function", EXPECTED_WITHOUT_A_REFERENCE, ids=lambda f: f.__name__)
def test_at_full_speed(three: LiveRunner, function: Callable[[], Any]) -> None:
    assert [r.tolist() for r in three.record(function).results] == EXPECTED_WITHOUT_A_REFERENCE[function]


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("function", foreign.EVERY, ids=lambda f: f.__name__)
def test_any_order_of_moving_ranks_gives_the_same(four: LiveRunner, function: Callable[[], Any], seed: int) -> None:
    choose = random.Random(f"{function.__name__} {seed}")
    wanted = four.record(function).results
    session = four.step(function)
    for _ in range(MOST):
        if not session.live:
            break
        ranks = choose.choice([None, [choose.randrange(4)], choose.sample(range(4), 2)])
        state = getattr(session, choose.choice(MOTIONS))(
            ranks=ranks, timeout=1 if _waits_elsewhere(function) else NEVER
        )
        assert state.verdict is None, str(state)
    while session.live:
        session.finish()
    torch.testing.assert_close(session.results, wanted)


def _waits_elsewhere(function: Callable[[], Any]) -> bool:
    """Its rank stands in `Thread.join`, which nobody can tell from a long computation: such motions run out of time."""
    return function is foreign.from_another_thread
