"""ZeRO's formulas: against the paper's figures, tensors that are cut and counted, torch's optimizer, and by hand."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from kit.topics.zero.cost import (
    FP32,
    MODELS,
    fewest_nodes,
    fitting,
    fitting_table,
    layer_in_hand,
    model_state,
    shard_size,
)

GB = 1e9


# R's own example (figure 1): 7.5 billion parameters, 64 ranks: 120, 31.4, 16.6 and 1.9 GB.
@pytest.mark.parametrize(("stage", "gigabytes"), [(0, 120.0), (1, 31.4), (2, 16.6), (3, 1.9)])
def test_the_figure_of_the_zero_paper(stage: int, gigabytes: float) -> None:
    total = model_state(7_500_000_000, ranks=64, stage=stage).total
    assert round(total / GB, 1) == gigabytes


@pytest.mark.parametrize(
    ("stage", "mixed", "fp32"),  # bytes for each parameter on 4 ranks, worked out by hand
    [(0, 16.0, 16.0), (1, 4 + 3.0, 8 + 2.0), (2, 2 + 3.5, 4 + 3.0), (3, 4.0, 4.0)],
)
def test_bytes_for_each_parameter_on_four_ranks(stage: int, mixed: float, fp32: float) -> None:
    assert model_state(1000, ranks=4, stage=stage).total == 1000 * mixed
    assert model_state(1000, ranks=4, stage=stage, precision=FP32).total == 1000 * fp32


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
@pytest.mark.parametrize("ranks", [1, 3, 7, 11])
def test_state_is_that_of_tensors_that_are_cut_and_counted(stage: int, ranks: int) -> None:
    """For P = 100, which none of these divides: real tensors of each kind, each as it is held in that stage."""

    def held(dtype: torch.dtype, sharded: bool, rank: int) -> int:
        whole = torch.zeros(100, dtype=dtype)
        part = whole.tensor_split(ranks)[rank] if sharded else whole
        return part.numel() * part.element_size()

    for rank in range(ranks):
        state = model_state(100, ranks=ranks, stage=stage, rank=rank)
        assert state.weights == held(torch.bfloat16, stage >= 3, rank)
        assert state.gradients == held(torch.bfloat16, stage >= 2, rank)
        assert state.optimizer == 3 * held(torch.float32, stage >= 1, rank)
    whole = sum(model_state(100, ranks=ranks, stage=3, rank=rank).total for rank in range(ranks))
    assert whole == 16 * 100, "together the shards are the whole, no more"


def test_padding_makes_all_shards_as_large_as_the_largest() -> None:
    assert [shard_size(10, 4, rank=r) for r in range(4)] == [3, 3, 2, 2]
    assert [shard_size(10, 4, rank=r, padded=True) for r in range(4)] == [3, 3, 3, 3]
    assert [shard_size(2, 4, rank=r) for r in range(4)] == [1, 1, 0, 0]
    assert model_state(10, ranks=4, stage=3, rank=3, padded=True).total == 16 * 3
    assert model_state(12, ranks=4, stage=3, rank=3, padded=True) == model_state(12, ranks=4, stage=3, rank=3)


def test_fp32_is_what_adamw_really_holds() -> None:
    model = nn.Linear(30, 20)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 30)).sum().backward()
    optimizer.step()

    def held(tensors: list[torch.Tensor]) -> int:
        return sum(t.numel() * t.element_size() for t in tensors)

    moments = [t for state in optimizer.state.values() for name, t in state.items() if name != "step"]
    state = model_state(620, precision=FP32)
    assert state.weights == held(list(model.parameters()))
    assert state.gradients == held([p.grad for p in model.parameters() if p.grad is not None])
    assert state.optimizer == held(moments)


def test_the_layer_in_hand_has_its_weights_and_gradients() -> None:
    assert layer_in_hand(1000, 10) == 4 * 100 and layer_in_hand(1001, 10, FP32) == 8 * 101


# By hand, in GB with 42.95 GB an accelerator. 7B: stage 1 needs 28 + 84/N, so N >= 5.6, 2 nodes; stage 2 14 + 98/N,
# N >= 3.4; 13B: stage 2 26 + 182/N, N >= 10.7; stage 3 208/N + 1.3, N >= 5.0; 70B: stage 3 1120/N + 3.5, N >= 28.4;
# 405B: 6480/N + 12.86, N >= 215.4. Weights or gradients alone, 2 bytes each, rule out the rest.
NEVER = None
FEWEST = {
    "7B": (NEVER, 2, 1, 1),
    "13B": (NEVER, NEVER, 3, 2),
    "70B": (NEVER, NEVER, NEVER, 8),
    "405B": (NEVER, NEVER, NEVER, 54),
}


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_fewest_nodes_of_polaris(model: object) -> None:
    found = [fewest_nodes(model, stage) for stage in range(4)]
    assert tuple(found) == FEWEST[model.name]
    for stage, nodes in enumerate(found):
        if nodes is not None:
            assert fitting(model, nodes, stage).fits
            assert nodes == 1 or not fitting(model, nodes - 1, stage).fits


def test_a_layer_fetched_early_needs_more_nodes() -> None:
    """405B: 6480/N + 2 x 12.86 of 42.95 GB, N >= 375.9."""
    assert fewest_nodes(MODELS[-1], 3, in_hand=2) == 94
    more = fitting(MODELS[-1], 94, 3, in_hand=2).needed - fitting(MODELS[-1], 94, 3).needed
    assert more == layer_in_hand(MODELS[-1].parameters, MODELS[-1].layers)


def test_a_fitting_says_what_is_left_or_missing() -> None:
    tight = fitting(MODELS[0], 1, 2)
    assert (tight.ranks, tight.needed) == (4, 38_500_000_000) and tight.left == 40 * 2**30 - tight.needed
    assert "7B, ZeRO stage 2, 1 node (4 ranks): 38.5 GB of 42.9 GB: fits, 4.45 GB left" in str(tight)
    assert "plain data parallel, 2 nodes (8 ranks): 112 GB of 42.9 GB: 69.1 GB too many" in str(
        fitting(MODELS[0], 2, 0)
    )
    with pytest.raises(ValueError, match="Polaris has 1 to 560 nodes, not 561"):
        fitting(MODELS[0], 561, 0)


def test_the_table_of_fittings_has_a_row_for_each_model() -> None:
    table = fitting_table()
    lines = str(table).splitlines()
    assert "Polaris (4 x A100 40 GB, 40 GiB each)" in lines[0]
    assert [line.split()[0] for line in lines[2:]] == ["7B", "13B", "70B", "405B"]
    assert lines[5].split()[1:] == ["never", "never", "never", "54", "nodes"]
    markup = table._repr_html_()
    assert markup.count("<tr>") == 5 and "54\u00a0nodes" in markup


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(ValueError, match="stage is 0 .*not 4"):
        model_state(10, stage=4)
    with pytest.raises(ValueError, match="rank 2 is none of 2 ranks"):
        model_state(10, ranks=2, stage=1, rank=2)
    with pytest.raises(ValueError, match="1 rank or more, not 10 parameters on 0 ranks"):
        shard_size(10, 0)
    with pytest.raises(ValueError, match="at least one layer, not 0"):
        layer_in_hand(10, 0)
    with pytest.raises(ValueError, match="not nan parameters"):
        model_state(float("nan"))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="precision is MIXED or FP32 .*, not 'fp32'"):
        model_state(10, precision="fp32")  # type: ignore[arg-type]
