"""Hand-made runs: results and operations without a rank."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kit.grade.exercise import Case, Run
from kit.trace.facts import Meta, Operation, Output, Place, RankTrace, Source
from kit.trace.trace import Trace

FILE = "cell"


def operation(
    rank: int,
    name: str,
    nbytes: int = 0,
    peer: int | None = None,
    line: int = 9,
    file: str = FILE,
    at: int | None = None,
) -> dict[str, Any]:
    """The facts of one operation that rules look at; `run` fills in the rest. at: its turn on a clock of all ranks."""
    return {"rank": rank, "name": name, "payload": nbytes, "peer": peer, "place": Place(file, line, "f"), "at": at}


def run(
    world: int,
    operations: Sequence[dict[str, Any]] = (),
    arguments: Sequence[tuple[Any, ...]] | None = None,
    results: Sequence[Any] | None = None,
    after: Sequence[tuple[Any, ...]] | None = None,
    printed: Sequence[str] = (),
    size: int = 4,
    **facts: Any,
) -> Run:
    """A run of `world` ranks. The n-th message from a to b meets the n-th receive; turns are places in `operations`."""
    given = tuple(arguments or [()] * world)
    counts: dict[tuple[str, int, int], int] = {}
    lists: list[list[Operation]] = [[] for _ in range(world)]
    for turn, facts_of in enumerate(operations):
        now = 10 * (facts_of["at"] if facts_of["at"] is not None else turn)
        rank, name, peer = facts_of["rank"], facts_of["name"], facts_of["peer"]
        match = f"0/c/{len(lists[rank])}"
        if peer is not None:
            pair = (rank, peer) if name == "send" else (peer, rank)
            count = counts[(name, *pair)] = counts.get((name, *pair), 0) + 1
            match = f"0/p/{pair[0]}>{pair[1]}/0/{count}"
        lists[rank].append(
            Operation(
                rank=rank,
                index=len(lists[rank]),
                name=name,
                group="0",
                ranks=tuple(range(world)),
                match=match,
                place=facts_of["place"],
                regions=(),
                payload=facts_of["payload"],
                issued=now,
                ended=now + 5,
                peer=peer,
            )
        )
    ranks = tuple(
        RankTrace(rank, (), tuple(lists[rank]), (), (Output("stdout", printed[rank]),) if printed else ())
        for rank in range(world)
    )
    meta = Meta("f", "record", world, "gloo", ("cpu",) * world)
    trace = Trace(meta, ranks, (), (Source(FILE, "your cell", ()), Source("other.py", "kit/topics/my/other.py", ())))
    case = Case(world, given, size, facts)
    return Run(case, tuple(results or [None] * world), tuple(after or given), trace, FILE)


class Failed(Exception):
    """What a runner raises when a rank failed."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence)
        self.trace = run(2).trace


def serial_runner(
    answer: Callable[[int, tuple[Any, ...], int], Any],
    operations: Callable[[int], Sequence[dict[str, Any]]] = lambda n: (),
) -> Callable[..., Any]:
    """A runner without ranks. answer(rank, arguments, world) stands for the learner's function; it may raise Failed."""

    def runner(function: Any, world: int, arguments: Sequence[tuple[Any, ...]]) -> Any:
        results = [(answer(rank, arguments[rank], world), arguments[rank]) for rank in range(world)]
        return results, run(world, operations(world), arguments).trace

    return runner
