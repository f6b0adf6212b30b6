"""`lockstep shards`: writes a text as shards of tokens, which `lockstep train` maps into memory in place of reading."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from kit.cli.numbers import whole

if TYPE_CHECKING:
    import argparse


def add_to(commands: Any) -> None:
    parser = commands.add_parser(
        "shards",
        help="write a text as shards of tokens to train on",
        description="Write a text as flat files of 16-bit tokens.",
        epilog="For example: lockstep shards book.txt book --tokens gpt2; then text = 'book' in a configuration.",
    )
    parser.add_argument("text", help="python, shakespeare, or the path of a UTF-8 text")
    parser.add_argument("folder", help="where the shards go")
    parser.add_argument(
        "--tokens",
        default="characters",
        help="characters, gpt2 (by tiktoken), or a folder with GPT-2's vocab.json and merges.txt (default: characters)",
    )
    parser.add_argument("--size", type=whole(1, "the size of a shard"), metavar="N", default=10_000_000, help="tokens")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from kit.topics.gpt.text import write

    try:
        print(write(options.text, options.folder, options.tokens, options.size))
    except OSError as trouble:
        print(f"lockstep shards: {trouble}", file=sys.stderr)
        return 1
    return 0
