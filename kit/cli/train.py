"""`lockstep train`: trains a GPT by any strategy without a notebook; under torchrun it takes the ranks it finds."""

from __future__ import annotations

import signal
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kit.cli.numbers import whole

if TYPE_CHECKING:
    import argparse

TERMINATED = 128 + signal.SIGTERM  # as a shell says it


def add_to(commands: Any) -> None:
    parser = commands.add_parser(
        "train",
        help="train a GPT on one rank or many, by any strategy of the labs",
        description="Train a GPT and write a line for each step. Ranks are processes on this machine; started by "
        "torchrun (torchrun --nproc-per-node 4 -m kit.cli train ...), the same trainer takes torchrun's.",
        epilog="For example: lockstep train --strategy zero2 --ranks 2 --config run.toml",
    )
    parser.add_argument(
        "--strategy",
        metavar="WORDS",
        help="single, ddp, zero1, zero2, zero3, tp, tp+sp, pp, pp:SCHEDULE, or a product as 'ddp=2 x tp=2' "
        "(default: as the configuration says, or single)",
    )
    parser.add_argument(
        "--modern",
        action="store_true",
        help="today's recipe: rotary positions, QK norm, squared ReLU, and Muon for matrices",
    )
    ladder = parser.add_argument_group("the speed ladder, a rung at a time (default: as the configuration says)")
    ladder.add_argument("--precision", metavar="FORMAT", help="fp32, tf32, fp16 (with loss scaling) or bf16")
    ladder.add_argument("--attention", metavar="HOW", help="fused, or plain: with a matrix of T x T for each head")
    ladder.add_argument("--adamw", metavar="HOW", help="fused, or plain: one tensor after the other")
    ladder.add_argument("--compile", metavar="BACKEND", help="torch.compile: inductor, for example")
    ladder.add_argument(
        "--recompute", action="store_true", default=None, help="activations again in place of keeping them"
    )
    ladder.add_argument("--built-in", action="store_true", default=None, help="torch's own in the place of ours")
    ladder.add_argument("--pad", type=whole(1, "pad"), metavar="N", help="the vocabulary to a multiple of N")
    ladder.add_argument(
        "--total-batch", type=whole(1, "the tokens of a step"), metavar="TOKENS", help="of a step, by accumulation"
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="text, model and recipe, in TOML")
    parser.add_argument(
        "--ranks", type=whole(1, "the number of ranks"), metavar="N", help="default: one for each GPU, or one"
    )
    parser.add_argument("--steps", type=whole(1, "the number of steps"), metavar="N", help="in place of the recipe's")
    parser.add_argument("--checkpoints", metavar="FOLDER", help="save checkpoints there; SIGTERM saves a last one")
    parser.add_argument("--log", metavar="FILE", help="keep the history there, for a notebook to follow or to compare")
    parser.add_argument("--hashes", metavar="FOLDER", help="keep hashes of all tensors there, to compare trainings by")
    parser.add_argument("--resume", action="store_true", help="go on from the newest checkpoint")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto", help="default: auto")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from kit.topics.gpt.launch import RankFailed, start
    from kit.topics.gpt.run import Config

    config = Config.read(options.config) if options.config else Config()
    if options.strategy:
        config = replace(config, strategy=options.strategy)
    if options.modern:
        config = replace(config, modern=True)
    if options.checkpoints:
        config = replace(config, checkpoints=options.checkpoints)
    if options.log:
        config = replace(config, log=options.log)
    if options.hashes:
        config = replace(config, hashes=options.hashes)
    if options.resume and not config.checkpoints:
        raise ValueError("--resume goes on from a checkpoint: say --checkpoints FOLDER too")
    config = replace(config, resume=config.resume or options.resume)
    turned = {each.name: getattr(options, each.name) for each in fields(config.extras)}
    turned = {name: value for name, value in turned.items() if value is not None}
    config = replace(config, extras=replace(config.extras, **turned), pad=options.pad or config.pad)
    if options.total_batch:
        config = replace(config, recipe=replace(config.recipe, total_batch=options.total_batch))
    if options.steps:
        recipe = config.recipe
        config = replace(
            config, recipe=replace(recipe, steps=options.steps, warm_up=min(recipe.warm_up, options.steps - 1))
        )
    try:
        through = start(config, options.ranks, options.device)
    except (OSError, FloatingPointError, RankFailed) as trouble:
        print(f"lockstep train: {trouble}", file=sys.stderr)
        return 1
    return 0 if through else TERMINATED
