"""Large arguments and results: all processes together hold hardly more than one copy beside the kernel's own."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import torch

from kit.run.live import LiveRunner
from tests.held import held, memory_files

LARGE = 128_000_000  # bytes
MOST = 2.5  # times its size: the kernel's own, the one that all ranks share, and what running takes anyway


def test_all_processes_share_one_copy_of_an_argument_which_each_rank_may_change(four: LiveRunner) -> None:
    def look(x: Any, pids: Any) -> tuple[float, int, float]:
        import torch.distributed as dist

        total = float(x.sum())
        dist.barrier()
        together = held(pids)
        dist.barrier()
        x[:4] += dist.get_rank()
        return total, together, float(x[:5].sum())

    pids = [os.getpid(), *four.processes]
    four.record(look, torch.ones(4), pids)
    before = held(pids)
    x = torch.ones(LARGE // 4)
    recorded = four.record(look, x, pids).results
    session = four.step(look, x, pids)
    session.finish()
    for results in (recorded, session.results):
        assert [(total, changed) for total, _, changed in results] == [(LARGE / 4, 5.0 + 4 * r) for r in range(4)]
        assert max(together for _, together, _ in results) - before < MOST * LARGE
    assert float(x.sum()) == LARGE / 4, "the kernel's own is as it was"
    assert not any(list(memory_files(pid)) for pid in four.processes[:2]), "the agent and the controller hold nothing"


def test_a_result_comes_home_as_it_is(three: LiveRunner) -> None:
    def make() -> Any:
        import torch.distributed as dist

        x = torch.arange(600_000.0) + dist.get_rank()
        return {"x": x, "row": x.view(2, -1)[1], "array": np.arange(300_000), "text": "t" * 2_000_000}

    for rank, found in enumerate(three.record(make).results):
        assert torch.equal(found["x"], torch.arange(600_000.0) + rank)
        found["x"][300_000] = -1.0
        assert found["row"][0] == -1.0, "they share memory, as on the rank"
        assert found["array"].sum() == 299_999 * 150_000 and len(found["text"]) == 2_000_000
