"""What a type checker says of the face. Nothing here runs: mypy reads it, and an ignore too many is an error."""

from __future__ import annotations

import kit


def f(x: int) -> int:
    return x


cluster = kit.cluster(ranks=4, device="cpu")
sizes: int = cluster.size
run = kit.options(ranks=2, memory=True).record(f, 1)
print(run.results, run.trace.meta.world, kit.check(f, seed=1).passed)
session = kit.step(f, x=1)
session.finish(ranks=[0])
with kit.link(latency=1e-3):
    kit.record(f, 1)
kit.compare({"one": run}).plot()

kit.cluster(rank=4)  # type: ignore[call-arg]
kit.options(thread=True)  # type: ignore[call-arg]
kit.nothing()  # type: ignore[attr-defined]
