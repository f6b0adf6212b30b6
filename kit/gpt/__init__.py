"""The readable GPT that the labs train, and the text it is trained on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kit import lazy

if TYPE_CHECKING:
    from kit.gpt.checkpoint import Checkpoints as Checkpoints
    from kit.gpt.data import Characters as Characters
    from kit.gpt.data import batches as batches
    from kit.gpt.data import corpus as corpus
    from kit.gpt.data import random_batches as random_batches
    from kit.gpt.feed import Feed as Feed
    from kit.gpt.gpt2 import load_gpt2 as load_gpt2
    from kit.gpt.hashing import first_difference as first_difference
    from kit.gpt.hashing import hashes as hashes
    from kit.gpt.loop import training as training
    from kit.gpt.model import GPT as GPT
    from kit.gpt.model import GPTConfig as GPTConfig
    from kit.gpt.recipe import Recipe as Recipe
    from kit.gpt.shards import open_shards as open_shards
    from kit.gpt.shards import write_shards as write_shards
    from kit.gpt.trainer import Trainer as Trainer

if not TYPE_CHECKING:
    __getattr__ = lazy.names(__name__)
