"""The same small training by any strategy: what a rank runs, and what one process does."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import replace
from functools import partial, reduce
from pathlib import Path
from typing import Any, Literal

import torch
import torch.distributed as dist

from kit.gpt.checkpoint import Checkpoints
from kit.gpt.data import Characters
from kit.gpt.feed import Feed
from kit.gpt.model import GPT, GPTConfig
from kit.gpt.modern import made
from kit.gpt.prints import Prints, prints
from kit.gpt.questions import Question, Score
from kit.gpt.recipe import Recipe
from kit.gpt.trainer import Trainer
from kit.topics.gpt.reference import Layout
from kit.topics.gpt.reference.parallelize import PLAIN, Extras
from kit.topics.gpt.reference.pipelined import Alone
from kit.topics.gpt.run import Training, lay_out

SIZES = GPTConfig(n_layer=4, n_head=4, n_embd=16, block_size=8, vocab_size=12)
RECIPE = Recipe(steps=5, batch=2, total_batch=64, rate=1e-2, warm_up=2, validation=1, clip=0.2)
UNTIED = ("tp", "pp")
TIGHT = 1e-3  # a norm that every gradient here is above

Found = dict[str, Any]


def text() -> torch.Tensor:
    """Tokens (400,) in which some follow others more often than not."""
    draw = torch.Generator().manual_seed(0)
    steps = torch.randint(1, 3, (400,), generator=draw)
    return steps.cumsum(0) % SIZES.vocab_size


def trainer(
    strategy: str, ranks: int, recipe: Recipe = RECIPE, sizes: GPTConfig = SIZES, extras: Extras = PLAIN
) -> Trainer:
    torch.manual_seed(recipe.seed)
    laid_out = lay_out(made(sizes), Layout.parse(strategy, ranks), recipe, extras)
    tokens = text()
    return Trainer(laid_out, recipe, Feed(tokens[:300], sizes.block_size), Feed(tokens[300:], sizes.block_size))


def curve(strategy: str, ranks: int, recipe: Recipe = RECIPE, sizes: GPTConfig = SIZES) -> Found:
    """Losses and norms of some steps, a validation, and what norm is left after clipping."""
    return measured(trainer(strategy, ranks, recipe, sizes))


def measured(training: Trainer) -> Found:
    before = training.validate()
    steps = list(training)
    found: Found = {
        "loss": [step.loss for step in steps],
        "norm": [step.norm for step in steps],
        "validation": [before, training.validate()],
    }
    laid_out = training.strategy
    laid_out.gradients(training._windows(training.train, training.seen), lambda name: None)
    found["clipped"] = [laid_out.clip(TIGHT), laid_out.clip(TIGHT)]
    return found


def curves(strategies: list[str]) -> dict[str, Found]:
    """One after the other on the ranks there are; with a head of its own too, where that is laid out otherwise."""
    ranks = dist.get_world_size()
    return {
        f"{strategy}, {'tied' if tied else 'untied'}": curve(strategy, ranks, sizes=replace(SIZES, tied=tied))
        for strategy in strategies
        for tied in ((True, False) if strategy in UNTIED else (True,))
    }


def curves_of(strategies: list[str], recipe: Recipe) -> dict[str, Found]:
    """One after the other, by another recipe."""
    return {strategy: curve(strategy, dist.get_world_size(), recipe) for strategy in strategies}


def curves_with_extras(by_torch: list[str]) -> dict[str, Found]:
    """By torch's own, and with what may stand beside any of them."""
    found = {f"{name} by torch": measured(trainer(name, 2, extras=Extras(built_in=True))) for name in by_torch}
    found["recomputed"] = measured(trainer("zero3", 2, extras=Extras(recompute=True)))
    found["recomputed in stages"] = measured(trainer("pp:ZBH1", 2, extras=Extras(recompute=True)))
    found["compiled"] = measured(trainer("ddp", 2, extras=Extras(compile="eager")))
    slow = Extras(attention="plain", adamw="plain", recompute=True)
    for name in ("ddp", "tp+sp", "pp"):
        found[f"the ladder's lowest rungs, {name}"] = measured(trainer(name, 2, extras=slow))
    for name in ("tp", "pp"):
        plain = Extras(attention="plain", built_in=True)
        found[f"plain attention, {name} by torch"] = measured(trainer(name, 2, extras=plain))
    return found


def exchanged_with_torchs() -> dict[str, list[float]]:
    """Validations of two trainings by torch's own, and of ours that went on from their states; then the other way."""
    found = {}
    for begins in (True, False):
        going = trainer("tp+sp", 2, extras=Extras(built_in=begins))
        for _ in range(2):
            going.step()
        other = trainer("tp+sp", 2, replace(RECIPE, seed=7), extras=Extras(built_in=not begins))
        other.strategy.restore(going.strategy.state(), going.done)
        other.done, other.seen = going.done, going.seen
        found["torch's first" if begins else "ours first"] = [
            number for one in (going, other) for number in (one.validate(), one.step().loss, one.step().norm)
        ]
    return found


def answers(strategies: list[str]) -> dict[str, Score]:
    """After a training, to questions that do not come out even."""
    questions = [Question(f"{k}", (f"{k + 1}{k + 2}", f"{k + 3}", "0", f"{k + 1}{k + 3}"), k % 4) for k in range(7)]
    found = {}
    for strategy in strategies:
        going = trainer(strategy, dist.get_world_size() if dist.is_initialized() else 1)
        layout = Layout.parse(strategy, going.strategy.parts)
        for _ in going:
            pass
        read_as = Characters("0123456789 |")
        found[strategy] = Training(going, SIZES, layout, read_as, flops=0.0, parameters=0).ask(questions)
    return found


def modern(strategy: str, ranks: int, optimizer: Literal["adamw", "muon"] = "muon") -> Found:
    """Today's model, by the second recipe or by the first."""
    return curve(strategy, ranks, replace(RECIPE, optimizer=optimizer), replace(SIZES, modern=True))


def killed_while_saving(folder: Path) -> None:
    """The second checkpoint: rank 1 has written its file, and is gone before anybody hears of it."""
    going = trainer("ddp", 2)
    kept = Checkpoints(folder, SIZES, "", "ddp=2")
    going.step()
    kept.save(going)
    going.step()
    if dist.get_rank() == 1:
        os.fsync = lambda stream: os.kill(os.getpid(), signal.SIGKILL)
    kept.save(going)


def curves_in_16_bits(strategies: list[str], by_torch: list[str]) -> dict[str, Found]:
    """By both formats; and in fp16 from a scale at which gradients are infinite, on some ranks before others."""
    ranks, found = dist.get_world_size(), dict[str, Found]()
    for precision in ("bf16", "fp16"):
        for built_in, names in ((False, strategies), (True, by_torch)):
            for name in names:
                going = trainer(name, ranks, extras=Extras(precision=precision, built_in=built_in))
                found[f"{precision} {name}{' by torch' if built_in else ''}"] = measured(going)
    for name in strategies:
        going = trainer(name, ranks, extras=Extras(precision="fp16"))
        numbers: Any = going.strategy.numbers  # type: ignore[attr-defined]
        numbers.scale = 2.0**24
        found[f"fp16 {name}, scaled down"] = measured(going)
        assert 1 < numbers.scale < 2.0**24, "steps were given up"
    return found


def mistaken() -> dict[str, Found]:
    """What would be found of trainers that make one mistake each, on two ranks."""

    def all_held(stepper: Any) -> Any:
        return stepper.held_here

    return {
        "the same windows on every rank": with_mistake("ddp", "part", lambda strategy: 0),
        "the norm of one shard": with_mistake("zero2", "stepper.groups", lambda stepper: []),
        "copies counted on every rank": with_mistake("tp", "stepper.counted", all_held),
        "a shared matrix whose gradients are not added": with_mistake("pp", "shared", lambda strategy: []),
        "a shared matrix counted twice": with_mistake("pp", "stepper.counted", all_held),
        "the norm of one stage": with_mistake("pp", "stepper.groups", lambda stepper: []),
        "two copies of a stage that go apart": with_mistake("pp:DualPipe", "shared", lambda strategy: []),
    }


def mistaken_in_products() -> dict[str, Found]:
    """The same on four ranks, of two pipelines side by side."""
    both, shards = "ddp=2 x pp", "zero1=2 x pp"
    return {
        "replicas that are not averaged": with_mistake(both, "average", lambda strategy: Alone()),
        "one pipeline's loss": with_mistake(both, "_mean", lambda strategy: partial(of_one_pipeline, strategy)),
        "norms of replicas added": with_mistake(both, "stepper.groups", lambda stepper: [*stepper.groups, replicas()]),
        "the norm of one stage's shards": with_mistake(shards, "stepper.groups", lambda stepper: stepper.groups[:1]),
    }


def with_mistake(strategy: str, where: str, wrong: Callable[[Any], Any]) -> Found:
    """wrong: of whoever has the attribute `where`, which takes its place."""
    training = trainer(strategy, dist.get_world_size())
    *path, name = where.split(".")
    owner: Any = reduce(getattr, path, training.strategy)
    setattr(owner, name, wrong(owner))
    return measured(training)


def of_one_pipeline(laid_out: Any, losses: list[torch.Tensor], m: int) -> torch.Tensor:
    """The mean that is not taken over replicas."""
    mean = torch.stack(losses).sum() / m if losses else torch.zeros(())  # ()
    dist.all_reduce(mean, group=laid_out.groups.pp)
    return mean


def replicas() -> dist.ProcessGroup:
    """The other ranks that have this rank's stage, where there are two pipelines of two stages."""
    halves = [dist.new_group(ranks) for ranks in ([0, 1], [2, 3])]
    return halves[dist.get_rank() // 2]


def whole_gradients() -> dict[str, int]:
    """For each strategy the weights that have a gradient of their own size between two micro-batches."""
    found: dict[str, int] = {}
    for strategy in ("ddp", "zero1", "zero2", "zero3"):
        training = trainer(strategy, 2)
        laid_out: Any = training.strategy
        seen: list[int] = []

        def look(name: str, laid_out: Any = laid_out, seen: list[int] = seen) -> None:
            if name == "backward":
                seen.append(sum(p.grad is not None for p in laid_out.module.parameters()))

        batches = training._windows(training.train, 0)
        assert len(batches) == 2
        laid_out.gradients(batches, look)
        found[strategy] = seen[0]
    return found


def noted(going: Trainer, steps: int = 2) -> dict[int, Prints]:
    """What a trainer's tensors are like before its first step and after each."""
    found: dict[int, Prints] = {0: prints(going)}
    for _ in range(steps):
        report = going.step()
        found[going.done] = prints(going, report)
    return found


def all_noted(strategies: list[str]) -> dict[str, dict[int, Prints]]:
    """Of trainings as they should be."""
    return {strategy: noted(trainer(strategy, dist.get_world_size())) for strategy in strategies}


def museum() -> dict[str, dict[int, Prints]]:
    """Of trainings that go wrong, each from a moment of its own."""
    return {name: noted(wrong()) for name, wrong in EXHIBITS.items()}


def started_apart() -> Trainer:
    going = trainer("ddp", 2)
    drawn = torch.Generator().manual_seed(dist.get_rank())
    module: Any = going.strategy.module  # type: ignore[attr-defined]
    module.blocks[1].mlp.up.weight.data.normal_(generator=drawn)
    return going


def with_equal_seeds() -> Trainer:
    """What each rank of a tensor-parallel group would draw for itself comes out the same on all."""
    going = trainer("tp", 2)
    for p in going.strategy.module.parameters():  # type: ignore[attr-defined]
        if hasattr(p, "cut"):
            dist.broadcast(p.data, 0)
    return going


def not_divided() -> Trainer:
    going = trainer("ddp", 2)
    strategy: Any = going.strategy
    right = strategy.gradients

    def gradients(micro_batches: list[Any], mark: Any) -> Any:
        loss = right(micro_batches, mark)
        for p in strategy.module.parameters():
            p.grad *= len(micro_batches)
        return loss

    strategy.gradients = gradients
    return going


def touched() -> Trainer:
    """Rank 1 changes one weight in its last bits after the first step, which no loss shows."""
    going = trainer("ddp", 2)
    strategy: Any = going.strategy
    right = strategy.update

    def update(rate: float) -> None:
        right(rate)
        if going.done == 0 and dist.get_rank() == 1:
            strategy.module.norm.weight.data[3] += 1e-7

    strategy.update = update
    return going


EXHIBITS: dict[str, Callable[[], Trainer]] = {
    "started apart": started_apart,
    "equal seeds": with_equal_seeds,
    "not divided": not_divided,
    "touched": touched,
}


def saved_and_resumed(strategies: list[str], folder: Path) -> dict[str, Found]:
    """For each strategy: five steps at a stretch, and the last three of them from the checkpoint after two; then from
    the checkpoint of one rank.
    """
    ranks, found = dist.get_world_size(), dict[str, Found]()
    for strategy in strategies:
        sizes = replace(SIZES, dropout=0.2)
        going = trainer(strategy, ranks, sizes=sizes)
        kept = Checkpoints(folder / f"{strategy} {ranks}", sizes, "", f"{strategy} {ranks}")
        begun = [going.step().loss for _ in range(2)]
        kept.save(going)
        validation = going.validate()
        rest = [step.loss for step in going]
        torch.manual_seed(99)
        again = trainer(strategy, ranks, sizes=sizes, recipe=replace(RECIPE, seed=7))
        kept.resume(again)
        found[strategy] = {"begun": begun, "rest": rest, "resumed": [step.loss for step in again]}
        found[strategy]["validation"] = validation
        other = trainer(strategy, ranks, recipe=replace(RECIPE, seed=7))
        Checkpoints(folder / "single 1", SIZES, "", f"{strategy} {ranks}").resume(other)
        found[strategy]["elsewhere"] = [step.loss for step in other]
    return found


def saved_by_one(folder: Path) -> None:
    """A checkpoint after two steps of one rank."""
    going = trainer("single", 1)
    going.step()
    going.step()
    Checkpoints(folder / "single 1", SIZES, "", "single 1").save(going)


def validated_by_one(folder: Path) -> float:
    """One rank's validation with the weights that others have saved."""
    sizes = replace(SIZES, dropout=0.2)
    other = trainer("single", 1, recipe=replace(RECIPE, seed=7), sizes=sizes)
    Checkpoints(folder, sizes, "", "single 1").resume(other)
    return other.validate()


def serial(tied: bool) -> Found:
    """A plain loop over one model: no trainer, no strategy, one large batch a step."""
    torch.manual_seed(RECIPE.seed)
    model = GPT(replace(SIZES, tied=tied))
    decay = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() == 1]
    groups = [{"params": decay, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    adam = torch.optim.AdamW(groups, betas=(0.9, 0.95), eps=1e-8)
    tokens, found = text(), Found(loss=[], norm=[], validation=[], clipped=[])
    train, held_out = Feed(tokens[:300], 8), Feed(tokens[300:], 8)
    (validation,) = held_out.micro_batches(0, 8, 8)
    found["validation"].append(model(*validation)[1].item())
    for step in range(RECIPE.steps + 1):
        ((x, y),) = train.micro_batches(8 * step, 8, 8)
        adam.zero_grad()
        _, loss = model(x, y)
        loss.backward()
        norm = torch.cat([p.grad.flatten() for p in model.parameters()]).norm()
        if step == RECIPE.steps:
            found["clipped"] = [norm.item(), TIGHT]
            break
        found["loss"].append(loss.item())
        found["norm"].append(norm.item())
        for p in model.parameters():
            p.grad *= min(1.0, RECIPE.clip / (norm.item() + 1e-6))
        for group in adam.param_groups:
            group["lr"] = RECIPE.rate_of(step)
        adam.step()
    found["validation"].append(model(*validation)[1].item())
    return found
