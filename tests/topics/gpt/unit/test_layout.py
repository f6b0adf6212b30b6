"""A strategy in words, and how it shares out the ranks."""

from __future__ import annotations

import pytest
import torch

from kit.gpt.model import GPT, GPTConfig
from kit.gpt.recipe import Recipe
from kit.topics.gpt.reference import Adam, Layout, parallelize
from kit.topics.gpt.reference.parallelize import Extras
from kit.topics.gpt.run import lay_out


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


def test_ranks_draw_alike_in_a_tensor_parallel_group_alone() -> None:
    """Replicas and stages that drop the same elements would be a mistake that no loss shows."""
    layout = Layout("ddp", dp=3, tp=2, pp=2)
    assert [layout.place(rank) for rank in (0, 1, 2, 6, 11)] == [(0, 0, 0), (0, 1, 0), (1, 0, 0), (0, 0, 1), (2, 1, 1)]
    drawn: dict[int, set[tuple[int, int]]] = {}
    for rank in range(layout.ranks):
        place = layout.place(rank)
        drawn.setdefault(layout.stream(rank), set()).add((place.dp, place.pp))
    assert sorted(drawn) == list(range(6)) and all(len(places) == 1 for places in drawn.values())
    with pytest.raises(ValueError, match="has the ranks 0 to 11, and no rank 12"):
        layout.place(12)


@pytest.mark.parametrize(
    ("strategy", "ranks", "reason"),
    [
        ("pp:Interleaved1F1B", 4, "cuts a model into 8 stages, and this one has 4 blocks"),
        ("pp:DualPipe", 3, "an even number of ranks"),
        ("pp:DualPipeV", 4, "wants a micro-batch for each of its 8 stages at least, not 4"),
        ("pp:Interleaved", 2, "no schedule is called 'Interleaved': choose from naive, GPipe"),
    ],
)
def test_a_schedule_that_a_model_or_a_batch_has_no_room_for_is_refused(strategy: str, ranks: int, reason: str) -> None:
    model = GPT(GPTConfig.named("tiny", n_layer=4))
    with pytest.raises(ValueError, match=reason):
        lay_out(model, Layout.parse(strategy, ranks), Recipe(batch=2, total_batch=64))


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
        (Layout("zero2", dp=2, pp=2), Extras()),
        (Layout("zero3", dp=2, pp=2), Extras()),
        (Layout(tp=2, pp=2), Extras(built_in=True)),
        (Layout("ddp", dp=2, tp=2), Extras(built_in=True)),
        (Layout(), Extras(built_in=True)),
        (Layout("zero3", dp=2), Extras(compile="inductor")),
        (Layout("zero1", dp=2), Extras(adamw="plain")),
    ],
)
def test_what_cannot_be_had_together_is_said_before_ranks_begin(layout: Layout, extras: Extras) -> None:
    with pytest.raises(ValueError, match="leave|add ranks"):
        parallelize(GPT(GPTConfig.named("tiny")), layout, Adam(), extras=extras)
