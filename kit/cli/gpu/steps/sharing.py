"""Step 11: several ranks on one device."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Any

from kit.cli.gpu.bench import in_short
from kit.cli.gpu.step import Step
from kit.cli.gpu.steps.communication import COLLECTIVES, SMALL
from kit.run.errors import RankError

if TYPE_CHECKING:
    from collections.abc import Callable

    from kit.cli.gpu.bench import Bench
    from kit.run.results import Recording

RANKS = 4
SHOWN = {"cuda": "CUDA_VISIBLE_DEVICES", "xpu": "ZE_AFFINITY_MASK"}  # which devices a process is shown


class Sharing(Step):
    """Four ranks share one device: each operation works, or is refused in words."""

    number, title, limit = 11, "four ranks on one device", 20.0

    def run(self, bench: Bench) -> str:
        show_one_device(bench.device)
        programs = bench.programs
        cases: dict[str, tuple[Any, ...]] = {name: (programs.collective, name, SMALL, False, 1) for name in COLLECTIVES}
        cases |= {
            "isend, recv, wait": (programs.isend_then_recv,),
            "batch_isend_irecv": (programs.batched,),
            "a ring all-reduce": (programs.ring,),
            "a subgroup": (programs.subgroup,),
        }
        cases["train with DistributedDataParallel"] = (programs.train, "DistributedDataParallel", 1)
        refused = []
        with bench.cluster(RANKS) as cluster:
            bench.fact("devices", list(cluster.devices))
            bench.fact("notes", list(cluster.found.notes))
            bench.expect(
                len(set(cluster.devices)) == 1, f"four ranks with one device to share stand on {cluster.devices}"
            )
            for name, (program, *rest) in cases.items():
                with bench.part(name):
                    if not self._works(bench, name, partial(bench.record, cluster, program, *rest)):
                        refused.append(name)
        works = len(cases) - len(refused)
        words = f"; refused in words: {', '.join(refused)}" if refused else ""
        return f"{works} of {len(cases)} operations work on {cluster.devices[0]} over {cluster.backend}{words}"

    def _works(self, bench: Bench, name: str, record: Callable[[], Recording]) -> bool:
        """Whether an operation works. A rank that dies of it, or one that waits until its time is over, was told
        nothing.
        """
        try:
            told = record().results
        except (RankError, ValueError) as refusal:
            said = in_short(refusal)
            bench.fact(f"{name} is refused", said)
            bench.expect("died" not in said and "given up" not in said, f"{name}: no refusal, but {said}")
            return False
        if told and isinstance(told[0], dict):
            bench.expect_right(name, told)
        return True


def show_one_device(kind: str) -> None:
    """Leaves this process, and what it starts, the first of the devices it was shown. Nothing of torch has run yet."""
    name = SHOWN.get(kind)
    if name is not None:
        os.environ[name] = (os.environ.get(name) or "0").split(",")[0]
