"""Steps 5 to 8: what ranks say to each other, and what is said when one does not answer."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, Any

from kit.cli.gpu.bench import in_short
from kit.cli.gpu.step import Needs, Step
from kit.run.errors import RankError
from kit.trace.text import canonical

if TYPE_CHECKING:
    from collections.abc import Callable

    from kit.cli.gpu.bench import Bench
    from kit.run.live import LiveRunner
    from kit.trace.facts import Operation
    from kit.trace.trace import Trace

COLLECTIVES = (
    "all_reduce",
    "broadcast",
    "reduce",
    "all_gather",
    "all_gather_into_tensor",
    "reduce_scatter_tensor",
    "all_to_all_single",
    "gather",
    "scatter",
    "barrier",
)
TIMES = 3  # calls of one collective, whose middle one counts
SMALL = 4000  # bytes of a buffer whose values alone matter


class Collectives(Step):
    """Every collective, blocking and not, recorded and stepped: values, and when it ended."""

    number, title, limit = 5, "every collective", 35.0
    needs = Needs(ranks=2)

    def run(self, bench: Bench) -> str:
        with bench.cluster() as cluster:
            for name in COLLECTIVES:
                for asynchronous in (False, True):
                    way = f"{name}, {'asynchronous' if asynchronous else 'blocking'}"
                    with bench.part(f"{way}, recorded"):
                        self._recorded(bench, cluster, way, name, asynchronous)
                    with bench.part(f"{way}, stepped"):
                        told = bench.step(cluster, bench.programs.collective, name, SMALL, asynchronous, 1)
                        bench.expect_right(f"{way}, stepped", told)
        return f"{len(COLLECTIVES)} of them, blocking and asynchronous, recorded and stepped: values and ends are right"

    def _recorded(self, bench: Bench, cluster: LiveRunner, way: str, name: str, asynchronous: bool) -> None:
        size = bench.scale.buffer
        run = bench.record(cluster, bench.programs.collective, name, size, asynchronous, TIMES)
        bench.expect_right(f"{way}, recorded", run.results)
        known = [part_of(run.trace, rank, name) for rank in range(bench.ranks)]
        for rank, operations in enumerate(known):
            if not bench.expect(
                len(operations) == TIMES, f"{way}: rank {rank} recorded {len(operations)} of {TIMES} calls"
            ):
                return
            for operation in operations:
                if not bench.expect(operation.ended is not None, f"{way}: rank {rank} recorded no end"):
                    return
        judge_ends(bench, way, known, [one["moments"] for one in run.results])


def part_of(trace: Trace, rank: int, name: str) -> list[Operation]:
    """A rank's parts in the collective, without the barriers before each."""
    same = [one for one in trace.ranks[rank].operations if canonical(one.name) == canonical(name)]
    return same[1::2] if name == "barrier" else same


def judge_ends(bench: Bench, way: str, known: list[list[Operation]], moments: list[list[tuple[int, int]]]) -> None:
    """Against each rank's own clock. On the host's clock no end lies after the return of its rank's call; a device has
    a clock of its own, so how far its ends may be off, either way, is the scale's to say.
    """
    within = bench.scale.end_within
    off: list[float] = []
    for rank, operations in enumerate(known):
        for at, operation in enumerate(operations):
            last_call = max(own[at][0] for own in moments)
            over = moments[rank][at][1]
            ended = operation.ended or 0
            late = f"{way}: rank {rank} recorded an end {(ended - over) / 1e6:.2f} ms after it had returned"
            off.append((ended - over) / max(1, over - last_call))
            if not bench.expect(operation.issued <= ended, f"{way}: rank {rank} recorded an end before its beginning"):
                return
            if not bench.expect(ended <= over or within is not None, late):
                return
    typical = statistics.median(off)
    bench.fact(f"end of {way}, off by a part of its duration", round(typical, 4))
    if within is not None:
        bench.expect(
            abs(typical) <= within,
            f"{way}: its recorded end is off by {abs(typical):.0%} of its duration, not {within:.0%}",
        )


class Race(Step):
    """A collective must not read what the device is still computing."""

    number, title, limit = 6, "collectives wait for the device", 20.0

    BUSY = 0.1  # s of products

    def run(self, bench: Bench) -> str:
        with bench.cluster() as cluster:
            ways: dict[str, Callable[..., list[Any]]] = {
                "stepped": lambda *rest: bench.step(cluster, *rest),
                "recorded": lambda *rest: bench.record(cluster, *rest).results,
            }
            moments = []
            for way, run in ways.items():
                with bench.part(way):
                    told = run(bench.programs.race, bench.scale.side, self.BUSY)
                    bench.expect_right(f"an all-reduce behind {self.BUSY * 1e3:.0f} ms of products, {way}", told)
                    moments += [(one["launched"], one["done"]) for one in told]
            bench.fact("seconds until all was launched, and until it was done", moments)
            if bench.scale.queues and moments:
                raced = all(launched < self.BUSY / 2 < done for launched, done in moments)
                bench.expect(raced, "the host did not run ahead of its device: no race was tried")
        return f"right behind {self.BUSY * 1e3:.0f} ms of products, stepped and recorded"


class Messages(Step):
    """Ring, exchange, isend and recv among 2 to n ranks; batched, in a subgroup, and a barrier among all."""

    number, title, limit = 7, "messages, subgroups, barriers", 20.0
    needs = Needs(ranks=2)

    def run(self, bench: Bench) -> str:
        programs = bench.programs
        around = {
            "a ring all-reduce": programs.ring,
            "an exchange": programs.exchanged,
            "isend, recv, wait": programs.isend_then_recv,
        }
        others = {"batch_isend_irecv": programs.batched, "a subgroup": programs.subgroup, "a barrier": programs.met}
        with bench.cluster() as cluster:
            for name, program in others.items():
                with bench.part(name):
                    bench.expect_right(name, bench.record(cluster, program).results)
            for world in range(2, bench.ranks + 1):
                for name, program in around.items():
                    way = f"{name} among {world} ranks"
                    with bench.part(way):
                        bench.expect_right(way, bench.record(cluster, program, ranks=world).results)
            for name, program in {**around, **others}.items():
                with bench.part(f"{name}, stepped"):
                    bench.expect_right(f"{name}, stepped", bench.step(cluster, program))
        return f"right among 2 to {bench.ranks} ranks" if bench.ranks > 2 else "right between 2 ranks"


class Faults(Step):
    """A rank that leaves, one that does not come to a new group's first operation, one that is killed."""

    number, title, limit = 8, "hangs and deaths are told", 30.0
    needs = Needs(ranks=2)

    def run(self, bench: Bench) -> str:
        programs, slowest = bench.programs, 0.0
        cases = (
            ("a rank leaves", programs.leaves, "finished without it"),
            (
                "a rank does not come to a new group's first operation",
                programs.leaves_a_new_group,
                "finished without it",
            ),
            ("a rank is killed", programs.is_killed, "died: killed by SIGKILL"),
        )
        with bench.cluster() as cluster:
            for name, program, words in cases:
                with bench.part(name):
                    slowest = max(slowest, self._told(bench, cluster, name, program, words))
                with bench.part(f"the run after: {name}"):
                    after = bench.record(cluster, programs.sums, 1).results
                    bench.expect_right(f"the all-reduce after: {name}", after)
        return f"each was told within {slowest:.1f} s, with the rank's number; the run after it was right"

    def _told(self, bench: Bench, cluster: LiveRunner, name: str, program: Callable[..., Any], words: str) -> float:
        """Seconds until the sentence came."""
        began = time.perf_counter()
        try:
            bench.record(cluster, program)
        except RankError as error:
            took, said = time.perf_counter() - began, str(error)
            bench.fact(
                name, {"seconds": round(took, 2), "told": said, "lost": {str(r): w for r, w in cluster.lost.items()}}
            )
            about_one = "rank 1 " in said and words in said
            bench.expect(about_one, f"{name}: told was {in_short(error)!r}, which does not say that rank 1 {words}")
            bench.expect(took <= bench.verdict_within, f"{name}: it took {took:.1f} s until it was told")
            others = [rank for rank in cluster.lost if rank != 1]
            bench.expect(not others, f"{name}: rank {', '.join(map(str, others))} died with it")
            return took
        bench.expect(False, f"{name}: nobody noticed")
        return 0.0
