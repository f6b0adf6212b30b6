"""What a live training costs beside the trainer's own loop: the kernel hears of every step, and ranks wait for nobody.

    python -m tests.benchmarks.bench_live [--rounds 5] [--steps 160] [--ranks 2] [--json FILE]

The same training on the same ranks, with `gpt.start` and a listener in this process, and by a loop over the trainer
that tells nobody; they take turns. Nothing is validated, sampled or saved. Each rank notes when a step begins and ends,
in both. Figures, each a share of what a loop takes, the median over the rounds with its 95 % interval over the rounds
drawn anew (bootstrap):

waiting: the time between a live training's steps, in which ranks answer and hear what is next.
work: processor time of what is no step: the ranks' between steps, the kernel's and the controller's. Where ranks have
all cores it is taken from them. What a loop's kernel and controller take, which hear hearts beat, is subtracted.
by the clock: waiting, and how much longer the median step is. On a machine that does other work its interval is wide.
"""

from __future__ import annotations

import random
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

from kit.clusters.request import checked
from kit.gpt.recipe import Recipe
from kit.run.live import LiveRunner
from kit.topics.gpt import live
from kit.topics.gpt.run import Config
from tests.benchmarks.alone import Times, note_steps, noted, train_alone
from tests.benchmarks.figures import Figure, options, tell

GATE = 0.01
DRAWS = 2000


def on_all(cluster: LiveRunner, function: Any, *what: Any) -> list[Any]:
    return [task.get() for task in [cluster.client[engine].apply_async(function, *what) for engine in cluster.engines]]


def train_live(cluster: LiveRunner, config: Config) -> float:
    """Returns the processor time beside that of the ranks."""
    run = live.start(config, cluster)
    before = worked_beside(cluster)
    heard: list[int] = []
    run.subscribe(lambda: heard.append(run.history.done))
    assert run.wait() == "finished", run.trouble
    assert run.history.done == config.recipe.steps and len(run.history.steps) == config.recipe.steps
    return worked_beside(cluster) - before


def loop(cluster: LiveRunner, config: Config) -> float:
    """The same of a loop alone."""
    before = worked_beside(cluster)
    on_all(cluster, train_alone, config)
    return worked_beside(cluster) - before


def between(times: Times, of: str) -> float:
    """What lies between steps, in seconds by the clock or of work."""
    return whole(times, of) - inside(times, of)


def inside(times: Times, of: str) -> float:
    return sum(float(getattr(end, of) - getattr(begin, of)) for begin, end in times)


def whole(times: Times, of: str) -> float:
    return float(getattr(times[-1][1], of) - getattr(times[0][0], of))


def waited(times: Times) -> float:
    """The time between steps, against that in them."""
    return between(times, "clock") / inside(times, "clock")


def worked_beside(cluster: LiveRunner) -> float:
    """Processor time so far of this process and all it has started but the ranks, in seconds."""
    own = psutil.Process()
    others = [one for one in own.children(recursive=True) if one.pid not in cluster.pids]
    return sum(float(one.cpu_times().user + one.cpu_times().system) for one in (own, *others))


def step(times: Times) -> float:
    """The median one, in seconds."""
    return statistics.median(end.clock - begin.clock for begin, end in times)


def interval(found: Sequence[float]) -> tuple[float, float]:
    """Of the median, 95 %."""
    draw = random.Random(0)
    medians = sorted(statistics.median(draw.choices(found, k=len(found))) for _ in range(DRAWS))
    return medians[DRAWS // 40], medians[-DRAWS // 40]


def measured(ranks: int, rounds: int, steps: int) -> list[Figure]:
    live.SAMPLE_EVERY = 0
    told: dict[str, list[float]] = {"waiting": [], "work": [], "by the clock": []}
    steps_took = []
    with tempfile.TemporaryDirectory() as folder, LiveRunner(checked(ranks, "cpu")) as cluster:
        text = Path(folder) / "text.txt"
        text.write_text("to be, or not to be: that is the question. " * 2000)
        recipe = Recipe(steps=steps, batch=12, warm_up=1, validate_every=0)
        config = Config(str(text), strategy="ddp" if ranks > 1 else "single", model={"name": "cpu"}, recipe=recipe)
        for turn in range(rounds):
            found: dict[str, list[Times]] = {}
            beside_ranks: dict[str, float] = {}
            for name in ("live", "alone") if turn % 2 else ("alone", "live"):
                cluster.reset()  # both on ranks that have done nothing yet
                on_all(cluster, note_steps)
                beside_ranks[name] = (train_live if name == "live" else loop)(cluster, config)
                found[name] = on_all(cluster, noted)
                assert all(len(times) == steps for times in found[name])
            live_ones, alone = found["live"], found["alone"]
            told["waiting"].append(max(map(waited, live_ones)) - max(map(waited, alone)))
            more = sum(between(times, "worked") for times in live_ones) + beside_ranks["live"] - beside_ranks["alone"]
            told["work"].append(more / sum(inside(times, "worked") for times in live_ones))
            longer = max(map(step, live_ones)) / max(map(step, alone)) - 1
            told["by the clock"].append(longer + told["waiting"][-1])
            steps_took.append(step(alone[0]))
    beside = f"{ranks} ranks, steps of {statistics.median(steps_took) * 1e3:.0f} ms; 95 % interval of {rounds} rounds"
    return [
        Figure(
            f"live training beside its loop alone: {name}",
            statistics.median(shares),
            "×",
            None if name == "by the clock" else GATE,
            spread=interval(shares),
            beside=beside,
        )
        for name, shares in told.items()
    ]


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=160)
    parser.add_argument("--ranks", type=int, default=2)
    chosen = parser.parse_args()
    tell(measured(chosen.ranks, chosen.rounds, chosen.steps), chosen.json)


if __name__ == "__main__":
    main()
