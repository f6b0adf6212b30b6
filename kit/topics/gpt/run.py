"""A training from a description: text, model, recipe and strategy, the same on one rank and under torchrun."""

from __future__ import annotations

import os
import resource
import signal
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
import torch.distributed as dist

from kit.cost.training import flops_per_token
from kit.gpt.checkpoint import About as Saved
from kit.gpt.checkpoint import Checkpoints
from kit.gpt.feed import Feed
from kit.gpt.gpt2 import load_gpt2
from kit.gpt.model import GPT, GPTConfig, loss_of
from kit.gpt.modern import made
from kit.gpt.prints import Noting
from kit.gpt.questions import Question, Score, ask, read_questions
from kit.gpt.recipe import Recipe
from kit.gpt.trainer import StepReport, Trainer
from kit.plan.families import schedule
from kit.topics.gpt.history import About, History, Taken
from kit.topics.gpt.log import LEGEND, Log
from kit.topics.gpt.peak import peak_of
from kit.topics.gpt.reference import Adam, Layout, parallelize
from kit.topics.gpt.reference.ladder import PLAIN, Extras, remarks
from kit.topics.gpt.reference.parallelize import Line
from kit.topics.gpt.reference.replicas import Replica
from kit.topics.gpt.settings import settings
from kit.topics.gpt.sinks import sink
from kit.topics.gpt.text import read

if TYPE_CHECKING:
    from kit.gpt.data import Tokenizer

T = TypeVar("T")
MEMORY_EVERY = 10  # steps
RUNS = "runs"  # TensorBoard's usual folder


@dataclass(frozen=True)
class Config:
    """What is trained. As a TOML file:

        text = "python"          # or "shakespeare", the path of a text, or of a folder of token shards
        tokens = "characters"    # or "gpt2" by tiktoken, or a folder with GPT-2's vocab.json and merges.txt
        strategy = "ddp"
        modern = false           # or true: today's model, and Muon for its matrices
        [model]
        name = "cpu"             # of kit.gpt.GPTConfig.named; its sizes can be changed: n_layer = 6
        [recipe]
        steps = 500              # the fields of kit.gpt.Recipe
        [extras]
        precision = "bf16"       # or fp32, tf32, fp16; the fields of kit.topics.gpt.Extras
        recompute = false        # and compile = "inductor", built_in = true: torch's own in the place of ours

    pad: the vocabulary's size is rounded up to a multiple of this, by tokens that never occur. checkpoints: a folder to
    save them in ('': none), save_every: after so many steps, and at the end; resume: go on from the newest there.
    weights: a local Hugging Face folder of a GPT-2 to begin with, in place of [model]. questions: a file as HellaSwag
    has them, to be asked at the end. send_to: 'tensorboard' or 'wandb', where it is installed; its files go to `runs`.
    log: a file for its history, which `History.load` reads, also while it grows. hashes: a folder for what its tensors
    are like after each step, for `gpt.compare` to find where two trainings part; steps cost several times as much.
    """

    text: str = "python"
    tokens: str = "characters"
    strategy: str = "single"
    modern: bool = False
    pad: int = 1
    extras: Extras = PLAIN
    checkpoints: str = ""
    save_every: int = 100
    resume: bool = False
    weights: str = ""
    questions: str = ""
    send_to: str = ""
    log: str = ""
    hashes: str = ""
    model: Mapping[str, Any] = field(default_factory=lambda: {"name": "cpu"})
    recipe: Recipe = field(default_factory=Recipe)

    @staticmethod
    def read(path: Path) -> Config:
        """Raises ValueError for a file that is not there or says what no Config has."""
        try:
            found = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise ValueError(f"{path} cannot be read as a configuration in TOML: {error}") from error
        tables = {"recipe": Recipe, "extras": Extras}
        for name in [name for name in tables if isinstance(found.get(name), dict)]:
            found[name] = tables[name](**settings(tables[name], found[name], f"[{name}] of {path}"))
        return Config(**settings(Config, found, str(path)))

    def __post_init__(self) -> None:
        for name in ("pad", "save_every"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}: it must be at least 1")


@dataclass(frozen=True)
class Training:
    """All of a training on this rank: `trainer` takes its steps, `tokenizer` reads its tokens."""

    trainer: Trainer
    model: GPTConfig
    layout: Layout
    tokenizer: Tokenizer | None  # None: tokens came as shards, and what they stand for is not known
    flops: float  # of one token, forward and backward
    parameters: int  # of the whole model, without positions

    def about(self, peak: float, source: str) -> About:
        """What a history says first; every rank calls."""
        trainer = self.trainer
        return About(
            strategy=str(self.layout),
            devices=_of_all(str(trainer.strategy.device)),
            model=self.model,
            parameters=self.parameters,
            recipe=trainer.recipe,
            tokens=trainer.windows * trainer.train.block,
            flops=self.flops,
            peak=peak,
            source=source,
            started=datetime.now(UTC).isoformat(timespec="seconds"),
        )

    def checkpoints(self, folder: str | Path) -> Checkpoints:
        """Those of this training in a folder."""
        vocabulary = "" if self.tokenizer is None else self.tokenizer.vocabulary
        return Checkpoints(Path(folder), self.model, vocabulary, str(self.layout))

    @torch.no_grad()
    def ask(self, questions: Sequence[Question]) -> Score:
        """How many of them the model answers rightly; ranks with different data share them out.

        Every rank calls, between two steps. Raises ValueError as `check_asked`.
        """
        check_asked(self.layout, self.tokenizer)
        laid_out = self.trainer.strategy
        assert isinstance(laid_out, Replica) and self.tokenizer is not None, "checked"
        laid_out.module.eval()
        return ask(
            lambda tokens: laid_out.called(tokens)[0],
            self.tokenizer.encode,
            questions,
            self.model.block_size,
            part=laid_out.part,
            parts=laid_out.parts,
            group=laid_out.group,
            device=laid_out.device,
        )


def prepare(config: Config, device: torch.device | str = "cpu") -> Training:
    """A training as a Config describes it, on the ranks there are; every rank calls.

    Weights depend on the seed alone, and each step's windows too: so does the loss curve, but for rounding, whichever
    the strategy and however many the ranks, where `total_batch` says how many tokens a step has. Raises ValueError
    for what cannot be.
    """
    device, recipe = torch.device(device), config.recipe
    if config.modern:
        recipe = replace(recipe, optimizer="muon")
    layout = Layout.parse(config.strategy, dist.get_world_size() if dist.is_initialized() else 1)
    tokenizer, tokens, held_out = read(config.text, config.tokens)
    torch.manual_seed(recipe.seed)
    model = load_gpt2(config.weights, device) if config.weights else made(_shape(config, tokenizer), device)
    shape = model.config
    if tokenizer is not None and tokenizer.size > shape.vocab_size:
        raise ValueError(
            f"{config.text} has tokens up to {tokenizer.size - 1}, and the model {shape.vocab_size} of them: give it"
            " the vocabulary of this text, or this text's tokens the model's (tokens = ...)"
        )
    feeds = [Feed(part, shape.block_size, recipe.seed) for part in (tokens, held_out)]
    parameters = model.count(positions=False)
    flops = flops_per_token(
        parameters=parameters,
        layers=shape.n_layer,
        channels=shape.n_embd,
        sequence=shape.block_size,
    )
    strategy = lay_out(model, layout, recipe, config.extras)
    rank = dist.get_rank() if dist.is_initialized() else 0
    torch.manual_seed(recipe.seed + 1 + layout.stream(rank))  # of dropout
    kind = partial(Noting, config.hashes) if config.hashes else Trainer
    return Training(kind(strategy, recipe, *feeds), shape, layout, tokenizer, flops, parameters)


def check_asked(layout: Layout, tokenizer: Tokenizer | None) -> None:
    """Raises ValueError where no questions can be asked: no rank has all layers, or nobody knows the tokens."""
    if layout.tp * layout.pp > 1:
        raise ValueError(
            f"questions are asked of a rank that has all layers, and in {layout} none has: save a checkpoint, and"
            " resume it with --strategy single"
        )
    if tokenizer is None:
        raise ValueError("these shards do not say what their tokens are: `lockstep shards` writes some that do")


def _shape(config: Config, tokenizer: Tokenizer | None) -> GPTConfig:
    known = {} if tokenizer is None else {"vocab_size": -(-tokenizer.size // config.pad) * config.pad}
    sizes = {**known, "modern": config.modern, **settings(GPTConfig, config.model, "[model]", also=("name",))}
    return GPTConfig.named(**sizes) if "name" in sizes else GPTConfig(**sizes)


def lay_out(model: GPT, layout: Layout, recipe: Recipe, extras: Extras = PLAIN) -> Any:
    """A model by a layout, with a recipe's optimizer, and its schedule where there is a pipeline."""
    adam = Adam(recipe.betas, recipe.eps, recipe.weight_decay, muon=recipe.optimizer == "muon")
    line = _line(model, layout, recipe) if layout.pp > 1 else None
    return parallelize(model, layout, adam, line=line, extras=extras, seed=recipe.seed)


def _line(model: GPT, layout: Layout, recipe: Recipe) -> Line:
    c = model.config
    plan = schedule(layout.schedule, layout.pp, recipe.micro_batches(c.block_size, layout.dp))
    if plan.stages > c.n_layer:
        raise ValueError(
            f"{plan.name} on {layout.pp} ranks cuts a model into {plan.stages} stages, and this one has {c.n_layer}"
            " blocks: choose fewer ranks for pp, a schedule with one stage a rank, or a deeper model"
        )
    like = torch.empty(recipe.batch, c.block_size, c.n_embd, device=model.tokens.weight.device)  # (B, T, C)
    return Line(plan.rows, plan.stages, like, loss_of)


def train(config: Config, device: torch.device | str = "cpu", say: Callable[[str], None] = print) -> Trainer:
    """Takes all steps and tells of each; the rank that is not the first says nothing.

    Where checkpoints are kept, SIGTERM, with which the time of a batch job ends, is answered by a last one after the
    step under way.
    """
    training = prepare(config, device)
    trainer, strategy = training.trainer, training.trainer.strategy
    tell = say if not dist.is_initialized() or dist.get_rank() == 0 else _silent
    questions = read_questions(config.questions) if config.questions else []
    if questions:
        check_asked(training.layout, training.tokenizer)
    peak, source = peak_of(strategy.device, config.extras.precision)
    tell(LEGEND)
    for remark in remarks(config.extras, strategy.device):
        tell(remark)
    tell(f"{training.layout} on {training.layout.ranks} x {strategy.device}; peak {peak:.3g} flops/s, {source}")
    log = Log(training.layout.ranks, peak, training.flops)
    checkpoints = training.checkpoints(config.checkpoints) if config.checkpoints else None
    if checkpoints:
        checkpoints.make_room()
    if checkpoints and config.resume:
        tell(_resumed(checkpoints.resume(trainer)))
    with (
        closing(sink(config.send_to if tell is say else "", RUNS)) as numbers,
        _kept(config.log, training, peak, source) as keep,
        _asked_to_end(strategy.device) if checkpoints else nullcontext(lambda: False) as ends,
    ):
        for step in trainer:
            tell(log.line(step))
            numbers.write(trainer.done, log.numbers(step))
            validated = trainer.validate() if trainer.validates else None
            keep(step, validated)
            if validated is not None:
                tell(log.validation(step, validated))
                numbers.write(trainer.done, {"val_loss": validated})
            last = ends() or trainer.done == config.recipe.steps
            if checkpoints and (trainer.done % config.save_every == 0 or last):
                tell(f"saved {checkpoints.save(trainer)}")
            if last and trainer.done < config.recipe.steps:
                tell(f"SIGTERM: ended after step {trainer.done} of {config.recipe.steps}; --resume goes on from there")
                return trainer
    if questions:
        tell(f"questions: {training.ask(questions)}")
    return trainer


def _resumed(about: Saved | None) -> str:
    if about is None:
        return "no checkpoint to go on from: beginning anew"
    return f"going on after step {about.done}, {about.seen} windows into the text, saved by {about.layout}"


@contextmanager
def _asked_to_end(device: torch.device) -> Iterator[Callable[[], bool]]:
    """Inside, SIGTERM ends no rank. What it yields is called by all ranks between two steps, and says on all of them
    whether one has been sent it.
    """
    asked = False

    def hear(number: int, frame: object) -> None:
        nonlocal asked
        asked = True

    def agreed() -> bool:
        if not dist.is_initialized():
            return asked
        told = torch.tensor(float(asked), device=device)  # ()
        dist.all_reduce(told, dist.ReduceOp.MAX)
        return bool(told)

    before = signal.signal(signal.SIGTERM, hear)
    try:
        yield agreed
    finally:
        signal.signal(signal.SIGTERM, before)


Keep = Callable[[StepReport, "float | None"], None]


@contextmanager
def _kept(path: str, training: Training, peak: float, source: str) -> Iterator[Keep]:
    """Takes steps with the validations after them into a history's file, which the first rank writes; '': into none.

    What ranks hold is asked of all of them, and so only every few steps.
    """
    if not path:
        yield lambda step, validated: None
        return
    memory: tuple[int, ...] = ()
    about, device = training.about(peak, source), training.trainer.strategy.device
    first = not dist.is_initialized() or dist.get_rank() == 0

    def keep(step: StepReport, validated: float | None) -> None:
        nonlocal memory
        if step.number % MEMORY_EVERY == 0 or not memory:
            memory = _of_all(held(device))
        if first:
            writer.append(taken(step, memory, validated))

    with History.writer(path if first else os.devnull) as writer:
        writer.begin(about)
        yield keep


def taken(step: StepReport, memory: tuple[int, ...], validated: float | None = None, sample: str = "") -> Taken:
    """A step for a history."""
    s = step
    return Taken(s.number, s.loss, s.norm, s.rate, s.windows, s.tokens, dict(s.spent), memory, validated, sample)


def held(device: torch.device) -> int:
    """Bytes that this rank has held at most: on its GPU, or where it computes on the CPU, of the host's memory."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _of_all(own: T) -> tuple[T, ...]:
    """What each rank has, by rank; every rank calls."""
    if not dist.is_initialized():
        return (own,)
    told: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(told, own)
    return tuple(told)


def _silent(line: str) -> None:
    """What other ranks than the first have to say is the same."""
