"""Hand-made traces: small, true to the code they show, and always the same.

For tests and for pictures that need no cluster. Values are computed; times are invented and say so in `meta.notes`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kit.trace import waits
from kit.trace.facts import Region, TensorFact
from kit.trace.trace import Trace
from tests.traces.builder import TraceBuilder, tensor

RING = """def ring_all_reduce(x, group):
    r, n = dist.get_rank(group), dist.get_world_size(group)
    chunks = list(x.tensor_split(n))     # n x (C/n,)
    right, left = (r + 1) % n, (r - 1) % n
    for s in range(n - 1):               # reduce-scatter
        out, acc = (r - s) % n, (r - s - 1) % n
        inbox = torch.empty_like(chunks[acc])
        exchange(chunks[out], right, inbox, left)
        chunks[acc] += inbox             # (C/n,)
    for s in range(n - 1):               # all-gather
        out, into = (r + 1 - s) % n, (r - s) % n
        exchange(chunks[out], right, chunks[into], left)
    return torch.cat(chunks)             # (C,)"""

VIA_ROOT = """def all_reduce_via_root(x):               # x (C,)
    n, r = dist.get_world_size(), dist.get_rank()
    if r == 0:
        for src in range(1, n):
            inbox = torch.empty_like(x)
            dist.recv(inbox, src=src)
            x = x + inbox
    else:
        dist.send(x, dst=0)
    dist.broadcast(x, src=0)
    return x"""

BOTH_SEND = """def swap(x):
    other = 1 - dist.get_rank()
    inbox = torch.empty_like(x)
    dist.send(x, dst=other)
    dist.recv(inbox, src=other)
    return inbox"""

BOOM = """def average(x):
    n, r = dist.get_world_size(), dist.get_rank()
    x = x / n
    if r == 1:
        y = x.sum()
        if y.isnan():
            raise ValueError('boom')
    dist.all_reduce(x)
    return x"""

OVERLAP = """def overlap(x):
    work = dist.all_reduce(x, async_op=True)
    y = heavy(x)
    work.wait()
    return x + y"""


class _Ring:
    """Ring all-reduce of n chunks of two elements; rank r begins with 10**r everywhere."""

    def __init__(self, ranks: int) -> None:
        self.n = ranks
        self.drawing = TraceBuilder("ring_all_reduce", RING.splitlines(), ranks, "step", f"x: {2 * ranks} x float32")
        self.x = [np.full(2 * ranks, 10.0**rank, dtype=np.float32) for rank in range(ranks)]
        self.inbox: list[np.ndarray | None] = [None] * ranks
        self.scalars: list[dict[str, object]] = [{} for _ in range(ranks)]
        self.round = 0

    def chunk(self, rank: int, index: int) -> np.ndarray:
        return self.x[rank][2 * index : 2 * index + 2]

    def facts(self, rank: int, line: int) -> list[TensorFact]:
        facts = [tensor("x", self.x[rank], storage=1)]
        if line > 3:
            facts += [tensor(f"chunks[{i}]", self.chunk(rank, i), 1, 2 * i) for i in range(self.n)]
        inbox = self.inbox[rank]
        return facts if inbox is None else [*facts, tensor("inbox", inbox, storage=2)]

    def to(self, rank: int, line: int, microseconds: float = 30) -> None:
        self.drawing.run(rank, microseconds + 3 * rank)
        about_to = "send" if line in (8, 12) else None
        self.drawing.stop(rank, line, self.facts(rank, line), self.scalars[rank], about_to=about_to)

    def all_to(self, line: int, motion: str = "step", held: Sequence[int] = ()) -> None:
        for rank in range(self.n):
            self.to(rank, line)
        self.drawing.position(motion, held)

    def enter(self) -> None:
        self.all_to(2, "start")
        for rank in range(self.n):
            self.scalars[rank] |= {"r": rank, "n": self.n}
        self.all_to(3)
        self.all_to(4)
        for rank in range(self.n):
            self.scalars[rank] |= {"right": (rank + 1) % self.n, "left": (rank - 1) % self.n}
        self.all_to(5)

    def choose(self, s: int, reducing: bool) -> None:
        """The loop's head and the line that says which chunk goes and which comes."""
        for rank in range(self.n):
            self.scalars[rank]["s"] = s
        self.all_to(6 if reducing else 11)
        for rank in range(self.n):
            out = (rank - s) % self.n if reducing else (rank + 1 - s) % self.n
            self.scalars[rank] |= {"out": out, "acc" if reducing else "into": (out - 1) % self.n}
        if reducing:
            self.all_to(7)
            self.inbox = [np.zeros(2, dtype=np.float32) for _ in range(self.n)]
        self.all_to(8 if reducing else 12)

    def match(self, source: int) -> str:
        return f"0/p/{source}>{(source + 1) % self.n}/0/{self.round}"

    def post(self, rank: int, reducing: bool) -> None:
        """isend to the right and recv from the left, as `exchange` does."""
        line, out = (8, self.scalars[rank]["out"]) if reducing else (12, self.scalars[rank]["out"])
        into = self.scalars[rank]["acc" if reducing else "into"]
        assert isinstance(out, int) and isinstance(into, int)
        left, right = (rank - 1) % self.n, (rank + 1) % self.n
        self.drawing.run(rank, 20)
        given = Region("in", 1, 2 * out, (2,), "float32")
        taken = Region("out", 2, 0, (2,), "float32") if reducing else Region("out", 1, 2 * into, (2,), "float32")
        self.drawing.issue(rank, "send", self.match(rank), line, [given], peer=right)
        self.drawing.issue(rank, "recv", self.match(left), line, [taken], peer=left)

    def deliver(self, source: int, reducing: bool) -> None:
        """The message from a rank to its right neighbour arrives."""
        self.drawing.move(self.match(source), 60)
        rank = (source + 1) % self.n
        out = self.scalars[source]["out"]
        assert isinstance(out, int)
        sent = self.chunk(source, out).copy()
        if reducing:
            self.inbox[rank] = sent
        else:
            self.chunk(rank, out)[:] = sent

    def complete(self, rank: int) -> None:
        """Wait for what came, then for what went."""
        send, receive = self.drawing.operations[rank][-2:]
        self.drawing.wait(receive)
        self.drawing.wait(send)

    def exchange(self, reducing: bool) -> None:
        for rank in range(self.n):
            self.post(rank, reducing)
        for rank in range(self.n):
            self.deliver(rank, reducing)
        for rank in range(self.n):
            self.complete(rank)
        self.round += 1

    def add(self, rank: int) -> None:
        acc, inbox = self.scalars[rank]["acc"], self.inbox[rank]
        assert isinstance(acc, int) and inbox is not None
        self.chunk(rank, acc)[:] += inbox


def ring(ranks: int = 4) -> Trace:
    """Ring all-reduce of 2 x ranks float32, stepped line by line on all ranks to its end; ranks >= 2."""
    drawn = _Ring(ranks)
    drawn.enter()
    for s in range(ranks - 1):
        drawn.choose(s, reducing=True)
        drawn.exchange(reducing=True)
        drawn.all_to(9)
        for rank in range(ranks):
            drawn.add(rank)
        drawn.all_to(5)
    drawn.all_to(10)
    for s in range(ranks - 1):
        drawn.choose(s, reducing=False)
        drawn.exchange(reducing=False)
        drawn.all_to(10)
    drawn.all_to(13)
    for rank in range(ranks):
        drawn.drawing.run(rank, 10)
        drawn.drawing.finish(rank)
    drawn.drawing.position("step")
    return drawn.drawing.trace()


def held_ring() -> Trace:
    """The ring on 4 ranks at its first exchange, rank 3 held before it: rank 0 waits to receive, rank 2 to send.

    At the last position rank 1 has its chunk added and stands before line 5 again; the waits have lasted 1.9 s.
    """
    drawn = _Ring(4)
    drawing = drawn.drawing
    drawn.enter()
    drawn.choose(0, reducing=True)
    for rank in (0, 1, 2):
        drawn.post(rank, reducing=True)
    for source in (0, 1):
        drawn.deliver(source, reducing=True)
    drawing.wait(drawing.operations[1][1])  # rank 1 has its message from 0, and rank 2 has taken its own
    drawing.wait(drawing.operations[1][0])
    drawing.wait(drawing.operations[2][1])
    drawn.to(1, 9)
    drawing.waits(0, 8, "recv from rank 3", [3])
    drawing.waits(2, 8, "send to rank 3", [3])
    drawing.position("step", held=[3])
    drawn.add(1)
    drawn.to(1, 5)
    drawing.position("step", held=[3])
    state = drawing.positions[-1].states[0]
    drawing.look(1_900_000_000 - ((state.now or 0) - (state.since or 0)))
    return drawing.trace()


def via_root(elements: int = 250_000) -> Trace:
    """All-reduce via rank 0 on 4 ranks, recorded: three receives, then a broadcast."""
    drawing = TraceBuilder("all_reduce_via_root", VIA_ROOT.splitlines(), 4, "record", f"x: {elements} x float32")
    whole = Region("in", 1, 0, (elements,), "float32")
    for rank in range(4):
        drawing.run(rank, 40 + 100 * rank)
    for source in (1, 2, 3):
        match = f"0/p/{source}>0/0/0"
        receive = drawing.issue(0, "recv", match, 6, [Region("out", 2, 0, (elements,), "float32")], peer=source)
        send = drawing.issue(source, "send", match, 9, [whole], peer=0)
        drawing.move(match, 250)
        drawing.wait(receive)
        drawing.wait(send)
        drawing.run(0, 80)
    shared = [
        drawing.issue(rank, "broadcast", "0/c/0", 10, [Region("inout", 1, 0, (elements,), "float32")], root=0)
        for rank in range(4)
    ]
    drawing.move("0/c/0", 500)
    total = np.full(3, 1111.0, dtype=np.float32)
    for rank, operation in enumerate(shared):
        drawing.wait(operation)
        drawing.run(rank, 10)
        drawing.stop(rank, 11, [tensor("x", total, 1)])
        drawing.finish(rank)
    drawing.position("finish")
    return drawing.trace()


def deadlock() -> Trace:
    """Two ranks that both send first, stepped: each waits for the other, and the verdict says so."""
    drawing = TraceBuilder("swap", BOTH_SEND.splitlines(), 2, "step", "x: 2 x float32")
    for line, motion in ((2, "start"), (3, "step"), (4, "step")):
        for rank in range(2):
            drawing.run(rank, 30)
            drawing.stop(
                rank, line, [tensor("x", np.full(2, 10.0**rank, np.float32), 1)], about_to="send" if line == 4 else None
            )
        drawing.position(motion)
    for rank in range(2):
        drawing.run(rank, 15 + 5 * rank)
        match = f"0/p/{rank}>{1 - rank}/0/0"
        drawing.issue(rank, "send", match, 4, [Region("in", 1, 0, (2,), "float32")], peer=1 - rank)
        drawing.waits(rank, 4, f"send to rank {1 - rank}", [1 - rank])
    drawing.position("step", verdict=waits.deadlock(drawing.states, {0: (1,), 1: (0,)}))
    return drawing.trace()


def failure() -> Trace:
    """Rank 1 of 3 raises ValueError at line 7 while the others wait in all_reduce, stepped."""
    drawing = TraceBuilder("average", BOOM.splitlines(), 3, "step", "x: 4 x float32")
    lines = {0: [2, 3, 4, 8], 1: [2, 3, 4, 5, 6, 7], 2: [2, 3, 4, 8]}
    for motion in range(6):
        for rank, path in lines.items():
            if motion < len(path):
                value = np.full(4, np.nan if rank == 1 else 3.0, np.float32)
                drawing.run(rank, 25)
                drawing.stop(rank, path[motion], [tensor("x", value, 1)], {"n": 3, "r": rank} if motion else {})
            elif motion == len(path):
                drawing.run(rank, 12)
                drawing.issue(rank, "all_reduce", "0/c/0", 8, [Region("inout", 1, 0, (4,), "float32")], reduce="SUM")
                drawing.waits(rank, 8, "all_reduce", [other for other in range(3) if other not in (rank, 2 - rank)])
        drawing.position("start" if motion == 0 else "step")
    drawing.run(1, 40)
    drawing.fail(1, 7, "ValueError", "boom")
    drawing.position("step", verdict=waits.deadlock(drawing.states, {0: (1,), 2: (1,)}))
    return drawing.trace()


def overlap() -> Trace:
    """An asynchronous all_reduce on 2 ranks, recorded: half of it is hidden behind computing, half is waited for."""
    drawing = TraceBuilder("overlap", OVERLAP.splitlines(), 2, "record", "x: 1000 x float32")
    for rank in range(2):
        drawing.run(rank, 100)
    posted = [
        drawing.issue(rank, "all_reduce", "0/c/0", 2, [Region("inout", 1, 0, (1000,), "float32")], reduce="SUM")
        for rank in range(2)
    ]
    drawing.move("0/c/0", 400)
    for rank, operation in enumerate(posted):
        drawing.run(rank, 200)
        drawing.wait(operation)
        drawing.run(rank, 50)
        drawing.finish(rank)
    drawing.position("finish")
    return drawing.trace()
