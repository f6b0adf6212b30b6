"""On a rank: a training that stands there between two calls of the kernel, and goes on for some steps with each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import nn

from kit.gpt.sample import sample
from kit.probe import accelerator
from kit.topics.gpt.peak import peak_of
from kit.topics.gpt.reference.replicas import Replica
from kit.topics.gpt.run import Config, Training, check_asked, held, prepare, taken

if TYPE_CHECKING:
    from kit.gpt.checkpoint import Checkpoints
    from kit.gpt.data import Tokenizer
    from kit.gpt.trainer import Trainer
    from kit.topics.gpt.history import About, Taken

LENGTH = 200  # tokens of a sample

T = TypeVar("T")


@dataclass(frozen=True)
class Begun:
    """The training stands. done: steps that a checkpoint brought; silent: why it is not sampled from, or ''."""

    about: About
    tokenizer: Tokenizer | None
    done: int
    silent: str


@dataclass(frozen=True)
class Orders:
    """What all ranks are told alike, between the same two steps. rate: a factor on the recipe's; ahead: while those
    before are under way, and so void where these come to trouble.
    """

    steps: int
    rate: float = 1.0
    prompt: str = ""
    sample_every: int = 0  # steps; 0: never
    save: bool = False
    ahead: bool = False


@dataclass(frozen=True)
class Went:
    """What came of them. trouble: of saving: the training itself can go on."""

    steps: Sequence[Taken]
    done: int
    saved: str = ""
    trouble: str = ""


@dataclass(frozen=True)
class Trouble:
    """It cannot go on, and why."""

    sentence: str


@dataclass
class Standing:
    training: Training
    config: Config
    checkpoints: Checkpoints | None
    at: int = -1  # the step before which `random` was read
    random: list[torch.Tensor] = field(default_factory=list)
    precision: str = "highest"
    trouble: str = ""  # of the orders before
    over: bool = False  # it cannot go on

    def note(self) -> None:
        trainer = self.training.trainer
        self.at, self.random = trainer.done, trainer.strategy.random_states()
        self.precision = torch.get_float32_matmul_precision()

    def take_up(self) -> Trainer:
        """What a run on this rank has changed meanwhile is as it was."""
        trainer = self.training.trainer
        if self.at == trainer.done:
            trainer.strategy.set_random_states(self.random)
            torch.set_float32_matmul_precision(self.precision)
        return trainer


_standing: Standing | None = None


class Here:
    """Stands for the trainer of the rank that opens it."""

    def __reduce__(self) -> tuple[Callable[[], Trainer], tuple[()]]:
        return _trainer_here, ()


def _trainer_here() -> Trainer:
    assert _standing is not None, "the kernel knows of it"
    return _standing.take_up()


def _in_a_sentence(work: Callable[[], T]) -> T | Trouble:
    """What a rank raises comes back as a value: the kernel decides what is said of it."""
    try:
        return work()
    except (ValueError, OSError, FloatingPointError) as error:
        return Trouble(str(error))
    except Exception as error:
        return Trouble(f"{type(error).__name__}: {error}")


def begin(config: Config, device: str) -> Begun | Trouble:
    """Every rank calls; the training that stood here before goes."""
    return _in_a_sentence(lambda: _begun(config, torch.device(device)))


def go(orders: Orders) -> Went | Trouble:
    """Every rank calls, with the same orders."""
    here = _standing
    assert here is not None, "the kernel knows of it"
    if orders.ahead and here.trouble:
        return Trouble(here.trouble) if here.over else Went((), here.training.trainer.done)
    went = _in_a_sentence(lambda: _went(here, orders))
    here.over = isinstance(went, Trouble)
    here.trouble = went.sentence if isinstance(went, Trouble) else went.trouble
    return went


def leave() -> None:
    """The memory is free again."""
    global _standing
    _standing = None


def _begun(config: Config, device: torch.device) -> Begun:
    global _standing
    _standing = None
    mine = accelerator.of(device)
    mine.take()
    training = prepare(config, mine.device)
    checkpoints = training.checkpoints(config.checkpoints) if config.checkpoints else None
    if checkpoints is not None:
        checkpoints.make_room()
    if checkpoints is not None and config.resume:
        checkpoints.resume(training.trainer)
    about = training.about(*peak_of(mine.device, config.extras.precision))
    _standing = Standing(training, config, checkpoints)
    _standing.note()
    return Begun(about, training.tokenizer, training.trainer.done, _silent(training))


def _silent(training: Training) -> str:
    try:
        check_asked(training.layout, training.tokenizer)
    except ValueError:
        return f"a sample needs ranks with all layers and known tokens, which {training.layout} has not here"
    return ""


def _went(here: Standing, orders: Orders) -> Went:
    config, checkpoints = here.config, here.checkpoints
    trainer = here.take_up()
    trainer.recipe = replace(config.recipe, rate=config.recipe.rate * orders.rate)
    memory, done, saved, trouble = (held(trainer.strategy.device),), [], "", ""
    for _ in range(min(orders.steps, trainer.recipe.steps - trainer.done)):
        report = trainer.step()
        last = trainer.done == trainer.recipe.steps
        validated = trainer.validate() if trainer.validates else None
        due = orders.sample_every and (trainer.done % orders.sample_every == 0 or last)
        done.append(taken(report, memory, validated, text(here.training, orders.prompt) if due else ""))
        if checkpoints is not None and (trainer.done % config.save_every == 0 or last):
            saved, trouble = _saved(checkpoints, trainer)
            if trouble:
                break
    if orders.save and checkpoints is not None:
        saved, trouble = _saved(checkpoints, trainer)
    here.note()
    return Went(done, trainer.done, saved, trouble)


def _saved(checkpoints: Checkpoints, trainer: Trainer) -> tuple[str, str]:
    try:
        return str(checkpoints.save(trainer)), ""
    except OSError as error:
        return "", str(error)


class _Called(nn.Module):
    """What every rank calls, as the module to sample from."""

    def __init__(self, strategy: Replica) -> None:
        super().__init__()
        self.module, self._called = strategy.module, (strategy.called,)

    def forward(self, tokens: torch.Tensor) -> Any:
        return self._called[0](tokens)


def text(training: Training, prompt: str) -> str:
    """The prompt ('': the first token of the held-out text) and what the model adds, the same on every rank."""
    strategy, tokenizer = training.trainer.strategy, training.tokenizer
    assert isinstance(strategy, Replica) and tokenizer is not None, "asked for before"
    device = strategy.device
    feed = training.trainer.validation or training.trainer.train
    begins = tokenizer.encode(prompt) if prompt else torch.tensor([int(token) for token in feed.tokens[:1]])
    own = torch.Generator(device).manual_seed(training.trainer.recipe.seed)
    row = sample(
        _Called(strategy),
        begins[None].to(device),
        LENGTH,
        block=training.model.block_size,
        generator=own,
        vocabulary=tokenizer.size,
    )
    return tokenizer.decode(row[0].cpu())
