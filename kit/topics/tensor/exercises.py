"""Lab 05: linear layers in shards, forward and backward; an MLP and attention made of them; regions cut by position."""

from __future__ import annotations

from kit.grade.diagnose import nothing_returned
from kit.grade.exercise import Case, Exercise
from kit.grade.traffic import calls, collectives_at_most, only, payload_at_most, silent
from kit.topics.tensor import mistakes
from kit.topics.tensor.cases import (
    FLOAT,
    attention_cases,
    column_cases,
    dropout_cases,
    mlp_cases,
    right,
    row_cases,
    sequence_cases,
)
from kit.topics.tensor.diagnoses import (
    column,
    heads,
    mlp,
    no_large_sum,
    norms,
    row,
    scaled,
    seeds,
    sequence,
    shapes,
)

LAB = "05_tensor"
MISSED = r"[Dd]eadlock|waits in|never|finished without|must call"
ALL_CALL = (MISSED, "Every rank of the group calls the same collectives in the same order, forward and backward.")
PRODUCTS = (
    r"shapes cannot be multiplied|size mismatch|inconsistent tensor size",
    "y = F.linear(x, w) wants x (B, in) and w (out, in): dx = dy @ w, dw = dy.T @ x.",
)
SHARDS = (
    r"shapes cannot be multiplied|size mismatch",
    "What is cut by outputs has its rows here, dimension 0 of torch's (out, in); what reads them is cut by inputs, its"
    " columns, dimension 1.",
)


def _activation(case: Case) -> int:
    """Bytes of (B, C), or (B, T, C)."""
    tokens: int = case.facts["B"] * case.facts.get("T", 1)
    channels: int = case.facts["whole"]["x"].shape[-1] if "whole" in case.facts else case.facts["C"]
    return tokens * channels * FLOAT


COLUMN = Exercise(
    id="column-linear",
    lab=LAB,
    function="column_linear",
    size="F",
    cases=column_cases,
    oracle=right,
    hints=(
        "y needs nobody: each rank has all of x. Whose gradients does x get, if every rank used it?",
        (
            "dw and db are those of your shard alone. dx is a sum with a term from each rank's outputs: compute yours,"
            " dy @ w, and all-reduce it."
        ),
        (
            "`y = F.linear(x, w, b)`, `dx = dy @ w`, `dist.all_reduce(dx, group=group)`, `dw = dy.T @ x`,"
            " `db = dy.sum(0)`."
        ),
    ),
    before=(shapes,),
    diagnoses=(nothing_returned, column),
    traffic=(
        calls(("all_reduce",), "nothing in forward, one sum in backward"),
        payload_at_most(_activation, "dx has B x C elements"),
    ),
    advice=(ALL_CALL,),
    errors=(PRODUCTS,),
    mistakes=mistakes.COLUMN,
    praise="nothing is sent in forward, dx alone in backward",
)

ROW = Exercise(
    id="row-linear",
    lab=LAB,
    function="row_linear",
    size="F",
    cases=row_cases,
    oracle=right,
    hints=(
        "Each rank has an n-th of the inputs, so an n-th of the sum that y is. And how often is b in that sum?",
        "All-reduce x @ w.T, then add b. In backward every rank has all of dy, and that is all it needs.",
        (
            "`y = F.linear(x, w)`, `dist.all_reduce(y, group=group)`, `y = y + b`, `dx = dy @ w`, `dw = dy.T @ x`,"
            " `db = dy.sum(0)`."
        ),
    ),
    before=(shapes,),
    diagnoses=(nothing_returned, row),
    traffic=(
        calls(("all_reduce",), "one sum in forward, nothing in backward"),
        payload_at_most(_activation, "y has B x C elements"),
    ),
    advice=(ALL_CALL,),
    errors=(PRODUCTS,),
    mistakes=mistakes.ROW,
    praise="y alone is summed in forward, nothing is sent in backward",
)

PARALLEL_MLP = Exercise(
    id="parallel-mlp",
    lab=LAB,
    function="parallel_mlp",
    size="F",
    cases=mlp_cases,
    oracle=right,
    hints=(
        "Column, then row: what does the second layer want to have of the features in between?",
        "copy_in before the first layer, sum_out behind the second, and the second bias once, behind that.",
        (
            "`x = copy_in(x, group)`, `h = F.gelu(F.linear(x, up, up_bias))`, `y = sum_out(F.linear(h, down), group)`,"
            " and `y + down_bias`."
        ),
    ),
    before=(shapes,),
    diagnoses=(nothing_returned, mlp),
    traffic=(
        calls(
            ("all_reduce", "all_reduce"), "one in forward, behind the second layer; one in backward, before the first"
        ),
        payload_at_most(_activation, "the narrow side travels, B x C: the features stay where they are"),
    ),
    advice=(ALL_CALL,),
    errors=(SHARDS,),
    mistakes=mistakes.PARALLEL_MLP,
    praise="one all-reduce each way, and the features never travel",
)

SPLIT_HEADS = Exercise(
    id="split-heads",
    lab=LAB,
    function="split_attention",
    size="C",
    cases=attention_cases,
    oracle=right,
    hints=(
        "A head never looks at another one. Which rows of qkv make a head, and which columns of out read it?",
        (
            "qkv.chunk(3) is q, k and v; of each take the r-th of n chunks. out is cut by inputs: out.chunk(n, 1)."
            " copy_in before, sum_out behind."
        ),
        (
            "`q, k, v = (F.linear(x, third.chunk(n)[r]) for third in qkv.chunk(3))`, each `.unflatten(-1, (heads // n,"
            " -1)).transpose(1, 2)`, `F.scaled_dot_product_attention(q, k, v, is_causal=True)`, `.transpose(1,"
            " 2).flatten(2)`, and `sum_out(F.linear(y, out.chunk(n, 1)[r]), group)`."
        ),
    ),
    before=(shapes,),
    diagnoses=(nothing_returned, heads),
    traffic=(
        calls(("all_reduce", "all_reduce"), "one in forward, behind out; one in backward, for x"),
        payload_at_most(_activation, "x and y travel, B x T x C: heads stay where they are"),
    ),
    advice=(ALL_CALL,),
    errors=(
        (
            r"shapes cannot be multiplied|size mismatch",
            "out reads this rank's heads, C/n channels: it is cut by inputs, its columns, out.chunk(n, 1).",
        ),
        (
            r"unflatten|[Pp]rovided sizes|is invalid for input",
            "A rank has heads // n heads, of C // heads channels each.",
        ),
    ),
    mistakes=mistakes.SPLIT_HEADS,
    praise="whole heads on each rank, one all-reduce each way",
)

DROPOUT_SEEDS = Exercise(
    id="dropout-seeds",
    lab=LAB,
    function="dropout",
    size="elements",
    cases=dropout_cases,
    oracle=right,
    hints=(
        "Who holds the same x must drop the same. Who holds a part must not. What of this rank goes into the seed?",
        "A torch.Generator of its own in each call; cut=True adds something that no other rank has to its seed.",
        (
            "`generator = torch.Generator(x.device).manual_seed(seed + 1000 * (1 + dist.get_rank(group)) if cut else"
            " seed)`, `kept = torch.rand(x.shape, generator=generator, device=x.device) >= p`, `x * kept / (1 - p)`."
        ),
    ),
    before=(seeds,),
    diagnoses=(nothing_returned, scaled),
    traffic=(silent,),
    errors=(
        (r"generator.*(device|type)|device type", "The generator lives on x's device: torch.Generator(x.device)."),
    ),
    mistakes=mistakes.DROPOUT_SEEDS,
    praise="equal where ranks hold the same, different where each has its own, and nothing was sent for it",
)

SEQUENCE_MLP = Exercise(
    id="sequence-mlp",
    lab=LAB,
    function="sequence_mlp",
    size="T",
    cases=sequence_cases,
    oracle=right,
    hints=(
        "The MLP wants all positions, the norm only its own. Which tensor did every rank use, on other positions?",
        "norm, gather_in along 0, up, GELU, down, scatter_out along 0. And gain goes through copy_in first.",
        (
            "`gain = copy_in(gain, group)`, `x = gather_in(F.layer_norm(x, gain.shape, gain), 0, group)`, `h ="
            " F.gelu(F.linear(x, up))`, `scatter_out(F.linear(h, down), 0, group)`."
        ),
    ),
    before=(shapes, norms),
    diagnoses=(nothing_returned, sequence),
    traffic=(
        no_large_sum,
        only(("all_gather", "reduce_scatter", "all_reduce"), "all-gather, reduce-scatter, and a sum for the gain"),
        collectives_at_most(5, "an all-gather and a reduce-scatter each way, and one all-reduce for the gain"),
        payload_at_most(
            lambda case: case.facts["T"] * case.facts["C"] * FLOAT, "the narrow side travels, T x C: features stay"
        ),
    ),
    advice=(ALL_CALL,),
    errors=(
        (
            r"normalized_shape|dimension 1 of a tensor",
            "Positions are dimension 0 here: gather_in(x, 0, group), scatter_out(..., 0, group).",
        ),
        SHARDS,
    ),
    mistakes=mistakes.SEQUENCE_MLP,
    praise="no activation is whole outside the MLP, and no more bytes than two all-reduces",
)

EXERCISES = (COLUMN, ROW, PARALLEL_MLP, SPLIT_HEADS, DROPOUT_SEEDS, SEQUENCE_MLP)
