"""What a live training costs beside the trainer's own loop: the kernel hears of every step, and ranks wait for nobody.

    python -m tests.benchmarks.bench_live [--rounds 20] [--steps 100] [--ranks 2] [--json FILE]

The same training on the same ranks, with `gpt.start` and a listener in this process, and by a loop over the trainer
that tells nobody; they take turns. Nothing is validated, sampled or saved. Each rank notes when a step begins and ends,
in both. Two figures, the slowest rank's of each round, both over what a loop takes: the time between a live training's
steps, in which ranks answer and hear what is next; and all that it costs, which is that and longer steps, where the
kernel works on the ranks' cores (the median step against the loop's, so that a stall of the machine weighs on neither).
Each is the median over the rounds, with its 95 % interval over the rounds drawn anew (bootstrap).
"""

from __future__ import annotations

import random
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

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


def train_live(cluster: LiveRunner, config: Config) -> None:
    run = live.start(config, cluster)
    heard: list[int] = []
    run.subscribe(lambda: heard.append(run.history.done))
    assert run.wait() == "finished", run.trouble
    assert run.history.done == config.recipe.steps and len(run.history.steps) == config.recipe.steps


def between(times: Times) -> float:
    """The time between steps, against that in them."""
    inside = sum(end - begin for begin, end in times)
    return (times[-1][1] - times[0][0]) / inside - 1


def step(times: Times) -> float:
    """The median one, in seconds."""
    return statistics.median(end - begin for begin, end in times)


def interval(found: Sequence[float]) -> tuple[float, float]:
    """Of the median, 95 %."""
    draw = random.Random(0)
    medians = sorted(statistics.median(draw.choices(found, k=len(found))) for _ in range(DRAWS))
    return medians[DRAWS // 40], medians[-DRAWS // 40]


def measured(ranks: int, rounds: int, steps: int) -> list[Figure]:
    live.SAMPLE_EVERY = 0
    costs, gaps, steps_took = [], [], []
    with tempfile.TemporaryDirectory() as folder, LiveRunner(checked(ranks, "cpu")) as cluster:
        text = Path(folder) / "text.txt"
        text.write_text("to be, or not to be: that is the question. " * 2000)
        recipe = Recipe(steps=steps, batch=12, warm_up=1, validate_every=0)
        config = Config(str(text), strategy="ddp" if ranks > 1 else "single", model={"name": "cpu"}, recipe=recipe)
        for turn in range(rounds):
            found: dict[str, list[Times]] = {}
            for name in ("live", "alone") if turn % 2 else ("alone", "live"):
                cluster.reset()  # both on ranks that have done nothing yet
                on_all(cluster, note_steps)
                if name == "live":
                    train_live(cluster, config)
                else:
                    on_all(cluster, train_alone, config)
                found[name] = on_all(cluster, noted)
                assert all(len(times) == steps for times in found[name])
            both = list(zip(found["live"], found["alone"], strict=True))
            gaps.append(max(between(heard) - between(alone) for heard, alone in both))
            longer = max(step(heard) for heard, _ in both) / max(step(alone) for _, alone in both) - 1
            costs.append(longer + gaps[-1])
            steps_took.append(step(found["alone"][0]))
    beside = f"{ranks} ranks, steps of {statistics.median(steps_took) * 1e3:.0f} ms; 95 % interval of {rounds} rounds"
    told = {"between the steps of a live training, over its loop alone": gaps, "all that a live training costs": costs}
    return [
        Figure(what, statistics.median(found), "×", GATE, spread=interval(found), beside=beside)
        for what, found in told.items()
    ]


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--ranks", type=int, default=2)
    chosen = parser.parse_args()
    tell(measured(chosen.ranks, chosen.rounds, chosen.steps), chosen.json)


if __name__ == "__main__":
    main()
