"""Situations that the examples of kit.trace do not hold: long code, calls, many kinds of tensors, hostile names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from kit.trace.facts import Frame, Place, RankState, Region, Source, Summary, TensorFact
from kit.trace.trace import Trace
from tests.traces.builder import TraceBuilder, tensor

HOSTILE = "<script>alert('x')</script>"


def standing(
    world: int,
    tensors: Sequence[Sequence[TensorFact]],
    line: int = 2,
    lines: Sequence[str] = ("def f(x):", "    y = x + 1", "    return y"),
    function: str = "f",
) -> Trace:
    """One position: every rank paused before a line, holding the tensors given by rank."""
    drawing = TraceBuilder(function, lines, world, "step")
    for rank in range(world):
        drawing.run(rank, 10)
        drawing.stop(rank, line, tensors[rank])
    drawing.position("start")
    return drawing.trace()


def phases() -> Trace:
    """Seven ranks, each in another phase, in a function of 60 lines; the first is held."""
    lines = ["def long(x):", *(f"    x = x + {i}  # step {i}" for i in range(58)), "    return x"]
    drawing = TraceBuilder("long", lines, 8, "step")
    for rank in range(8):
        drawing.run(rank, 10 * (rank + 1))
        drawing.stop(rank, 40 + rank, [tensor("x", np.arange(4, dtype=np.float32), 1)])
    drawing.position("start")
    for rank in range(1, 8):
        drawing.run(rank, 10)
    place = drawing.place
    drawing.states[1] = RankState(1, "running", place(41), since=drawing.now, stop=0)
    drawing.waits(2, 42, "barrier", [0, 1])
    drawing.states[3] = RankState(3, "stopped", place(43), stop=0, detail="stopped by SIGSTOP")
    drawing.fail(4, 44, "ValueError", HOSTILE)
    drawing.states[5] = RankState(5, "dead", place(45), stop=0, detail="killed by SIGKILL")
    drawing.finish(6)
    drawing.position("step", held=[0], verdict=f"Deadlock: {HOSTILE}")
    return drawing.trace()


def called() -> Trace:
    """Three ranks: 0 and 1 inside a helper of another file, 2 still in the stepped function."""
    drawing = TraceBuilder(
        "outer", ["if True:", "", "    def outer(x):", "        helper(x)", "        return x"], 3, "step"
    )
    helper = Source("lib/helper.py", "kit/helper.py", ("def helper(t):", "    a = t + 1", "    return a"))
    for rank in range(3):
        drawing.run(rank, 10)
        drawing.stop(rank, 4, [tensor("x", np.full(2, 10.0**rank, np.float32), 1)])
    inner = Place(helper.file, 2, "helper")
    for rank in (0, 1):
        stop = drawing.stops[rank][0]
        t = tensor("t", np.full(2, 10.0**rank, np.float32), 1)
        drawing.stops[rank][0] = replace(stop, frames=(*stop.frames, Frame(inner, (t,), ())))
        drawing.states[rank] = replace(drawing.states[rank], place=inner)
    drawing.position("into")
    trace = drawing.trace()
    return replace(trace, sources=(*trace.sources, helper))


def two_gradients_travel() -> Trace:
    """Two ranks hold two gradients and reduce one after the other, a line each."""
    drawing = TraceBuilder("f", ["def f():", "    first", "    second", "    return"], 2, "step")
    grads = [tensor(f"{name}.grad", np.array([0.5, 1.5]), storage) for storage, name in ((1, "weight"), (2, "bias"))]
    for line, match in ((2, "0/c/0"), (3, "0/c/1"), (4, None)):
        for rank in (0, 1):
            drawing.stop(rank, line, grads)
        drawing.position("step")
        if match is not None:
            region = Region("inout", line - 1, 0, (2,), "float64")
            parts = [drawing.issue(rank, "all_reduce", match, line, [region]) for rank in (0, 1)]
            drawing.move(match, 10)
            for part in parts:
                drawing.wait(part)
    return drawing.trace()


def large(name: str, shape: tuple[int, ...], nans: int = 0) -> TensorFact:
    """A tensor too large to copy."""
    head = tuple(float(v) for v in np.sin(np.arange(48)))
    return TensorFact(
        name, shape, "float32", "cpu", None, Summary(-3.25, 4.125, 0.0125, 1.0, nans, 0, head), storage=9, offset=0
    )


def many_tensors() -> Trace:
    """Four ranks that hold a bit of everything."""
    held = []
    for rank in range(4):
        generator = np.random.default_rng(rank)
        held.append(
            [
                tensor("vector", generator.normal(size=6).astype(np.float32), 1),
                tensor("longer", np.arange(14, dtype=np.int64) * 10**rank, 2),
                tensor("matrix", generator.normal(size=(3, 4)).astype(np.float32), 3),
                tensor("wide", generator.integers(0, 9, size=(4, 7)), 4),
                tensor("scalar", np.array(0.125 * rank, dtype=np.float32), 5),
                tensor("mask", np.array([True, False, True]), 6),
                tensor("odd", np.array([np.nan, np.inf, -1e-7, 123456.789], dtype=np.float32), 7),
                tensor("empty", np.zeros((0,), np.float32), 8),
                tensor("phase", np.array([1 + 2j, 0.5j], dtype=np.complex64), 10),
                large("model.0.weight", (1024, 512), nans=3 * rank),
                replace(large("model.0.weight.grad", (1024, 512)), storage=11),
                tensor("series", np.sin(np.arange(50, dtype=np.float32)), 12),
            ]
        )
    return standing(4, held)


def hostile() -> Trace:
    """Names, source lines and operations that would run as markup if one view forgot to escape."""
    lines = [f"def f(x):  # {HOSTILE}", f'    s = "{HOSTILE}"', "    return x"]
    name = f"d['{HOSTILE}\"]"
    drawing = TraceBuilder("f", lines, 2, "step", HOSTILE)
    drawing.source = replace(drawing.source, label=HOSTILE)
    for rank in range(2):
        drawing.run(rank, 10)
        drawing.stop(rank, 2, [tensor(name, np.full(2, 3.5, np.float32), 1)])
    drawing.position("start")
    for rank in range(2):
        drawing.run(rank, 10)
        region = [Region("in", 1, 0, (2,), "float32")]
        drawing.issue(rank, "send", f"0/p/{rank}>{1 - rank}/0/0", 2, region, peer=1 - rank)
        drawing.waits(rank, 2, f"send {HOSTILE}", [1 - rank])
    drawing.position("step", verdict=HOSTILE)
    return drawing.trace()


def collective_called_by(
    name: str, callers: Sequence[int], world: int = 4, root: int | None = None, done: bool = False
) -> Trace:
    """Some ranks have called a collective on x; `done` lets it end."""
    drawing = TraceBuilder("f", ["def f(x):", f"    dist.{name}(x)", "    return x"], world, "step")
    for rank in range(world):
        drawing.run(rank, 10)
        drawing.stop(rank, 2, [tensor("x", np.full(4, 10.0**rank, np.float32), 1)])
    drawing.position("start")
    for rank in callers:
        drawing.run(rank, 10)
        region = Region("inout", 1, 0, (4,), "float32")
        reduce = "SUM" if "reduce" in name else None
        drawing.issue(rank, name, "0/c/0", 2, [region], root=root, reduce=reduce)
        if not done:
            drawing.waits(rank, 2, name, [r for r in range(world) if r not in callers])
    if done:
        drawing.move("0/c/0", 50)
        for rank in callers:
            drawing.wait(drawing.operations[rank][-1])
            drawing.stop(rank, 3, [tensor("x", np.full(4, 1111.0, np.float32), 1)])
    drawing.position("step")
    return drawing.trace()
