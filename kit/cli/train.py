"""`lockstep train`: trains a GPT by any strategy without a notebook; under torchrun it takes the ranks it finds."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kit.cli.numbers import whole

if TYPE_CHECKING:
    import argparse


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
    parser.add_argument("--config", type=Path, metavar="FILE", help="text, model and recipe, in TOML")
    parser.add_argument(
        "--ranks", type=whole(1, "the number of ranks"), metavar="N", help="default: one for each GPU, or one"
    )
    parser.add_argument("--steps", type=whole(1, "the number of steps"), metavar="N", help="in place of the recipe's")
    parser.add_argument("--checkpoints", metavar="FOLDER", help="save checkpoints there")
    parser.add_argument("--resume", action="store_true", help="go on from the newest checkpoint")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto", help="default: auto")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from kit.topics.gpt.launch import RankFailed, start
    from kit.topics.gpt.run import Config

    config = Config.read(options.config) if options.config else Config()
    if options.strategy:
        config = replace(config, strategy=options.strategy)
    if options.checkpoints:
        config = replace(config, checkpoints=options.checkpoints)
    if options.resume and not config.checkpoints:
        raise ValueError("--resume goes on from a checkpoint: say --checkpoints FOLDER too")
    config = replace(config, resume=config.resume or options.resume)
    if options.steps:
        recipe = config.recipe
        config = replace(
            config, recipe=replace(recipe, steps=options.steps, warm_up=min(recipe.warm_up, options.steps - 1))
        )
    try:
        start(config, options.ranks, options.device)
    except (OSError, FloatingPointError, RankFailed) as trouble:
        print(f"lockstep train: {trouble}", file=sys.stderr)
        return 1
    return 0
