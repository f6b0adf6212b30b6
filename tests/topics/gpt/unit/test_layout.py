"""A strategy in words, and how it shares out the ranks."""

from __future__ import annotations

import pytest
import torch

from kit.gpt.model import GPT, GPTConfig
from kit.topics.gpt.reference import Adam, Layout, parallelize
from kit.topics.gpt.reference.parallelize import Extras


@pytest.mark.parametrize(
    ("words", "ranks", "layout"),
    [
        ("single", 1, Layout()),
        ("zero2", 4, Layout("zero2", dp=4)),
        ("tp+sp", 2, Layout(tp=2, sequence=True)),
        ("pp:ZBH1", 3, Layout(pp=3, schedule="ZBH1")),
        ("ddp=2 x tp", 8, Layout("ddp", dp=2, tp=4)),
        ("ddp x tp+sp=2 x pp=2", 8, Layout("ddp", dp=2, tp=2, sequence=True, pp=2)),
        ("ddp", 1, Layout("ddp")),
    ],
)
def test_words_become_a_mesh(words: str, ranks: int, layout: Layout) -> None:
    assert Layout.parse(words, ranks) == layout and layout.ranks == ranks
    assert Layout.parse(str(layout), ranks).ranks == ranks


@pytest.mark.parametrize(
    ("words", "ranks", "message"),
    [
        ("fsdp", 2, "'fsdp' is no strategy: choose single, ddp"),
        ("ddp:ZBH1", 2, "'ddp:ZBH1' is no strategy"),
        ("ddp x zero1", 2, "one of each kind at most"),
        ("", 2, "one of each kind at most"),
        ("single", 2, "does not say how 2 ranks are shared out"),
        ("ddp x tp", 4, "does not say how 4 ranks are shared out"),
        ("ddp=3 x tp", 4, "does not say how 4 ranks"),
        ("ddp=2", 4, "does not say how 4 ranks"),
        ("tp=0", 1, "does not say how 1 rank is"),
    ],
)
def test_words_that_make_no_sense_are_refused(words: str, ranks: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Layout.parse(words, ranks)


@pytest.mark.parametrize("recompute", [False, True])
def test_a_block_is_computed_twice_where_it_is_recomputed(recompute: bool) -> None:
    model = GPT(GPTConfig.named("tiny"))
    computed = []
    model.blocks[0].attention.register_forward_hook(lambda *_: computed.append(1))  # type: ignore[union-attr]
    alone = parallelize(model, Layout(), Adam(), extras=Extras(recompute=recompute))
    tokens = torch.zeros(2, 8, dtype=torch.int64)
    alone.gradients([(tokens, tokens)], lambda name: None)
    assert len(computed) == 1 + recompute


@pytest.mark.parametrize(
    ("layout", "extras"),
    [
        (Layout("zero1"), Extras()),
        (Layout("ddp", dp=2, pp=2), Extras()),
        (Layout(tp=2), Extras(built_in=True)),
        (Layout("zero3", dp=2), Extras(compile="inductor")),
        (Layout(pp=2), Extras(recompute=True)),
    ],
)
def test_what_cannot_be_had_together_is_said_before_ranks_begin(layout: Layout, extras: Extras) -> None:
    with pytest.raises(ValueError, match="leave|add ranks"):
        parallelize(GPT(GPTConfig.named("tiny")), layout, Adam(), extras=extras)
