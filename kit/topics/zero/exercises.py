"""Lab 04: ZeRO by hand: an optimizer in shards, gradients in shards, weights that are lent."""

from __future__ import annotations

from kit.grade.diagnose import not_divided, nothing_returned
from kit.grade.exercise import Case, Exercise
from kit.grade.traffic import calls, collectives_at_most, only, payload_at_most
from kit.topics.zero import mistakes
from kit.topics.zero.cases import (
    FLOAT,
    MICRO_BATCHES,
    STEPS,
    gradient_cases,
    layer_cases,
    padded_shard,
    passed,
    step_cases,
    stepped,
    summed,
)
from kit.topics.zero.diagnoses import (
    frees,
    hidden_sum,
    not_a_shard,
    not_gathered,
    not_whole,
    other_weights,
    out_of_order,
    remembers_its_shard,
    wrong_place,
    wrong_step,
    wrong_sum,
)

LAB = "04_zero"
MISSED = r"[Dd]eadlock|waits in|never|finished without|must call"
UNEQUAL = r"must hold the part|both must be equal|must be equal|size|shape"
EQUAL_SHARDS = "Built-in collectives want equal shards: pad with zeros to a multiple of n first, -len(x) % n of them."
UNPADDED = (
    r"invalid tensor size|makes room for|must have the same size|out of range|is invalid for input of size",
    EQUAL_SHARDS,
)
WROTE_TO_NOTHING = (
    r"SIGSEGV|SIGBUS",
    "Most likely something was written to a tensor whose memory is gone: gather() begins with"
    " `untyped_storage().resize_(nbytes)` of the very tensor that it fills.",
)


def _padded_bytes(case: Case) -> int:
    return padded_shard(case) * case.world * FLOAT


SHARDED_STEP = Exercise(
    id="sharded-step",
    lab=LAB,
    function="shard_optimizer_step",
    size="P",
    cases=step_cases,
    oracle=stepped,
    hints=(
        "Every rank steps one n-th of the weights. What does it need for that of the gradients, and who has the rest?",
        (
            "Pad both to n equal rows. A reduce-scatter gives this rank its row of the summed gradients; AdamW steps"
            " its row of the weights; an all-gather puts the rows together. m, v and the step stay in `state`."
        ),
        (
            "`padded = torch.cat([x, x.new_zeros(-len(x) % n)]).view(n, -1)` for both;"
            " `dist.reduce_scatter(mine, list(gradients), group=group)`, `mine /= n`; with `state.setdefault('m',"
            " torch.zeros_like(mine))` and so on `adamw_(w[r], mine, m, v, step, lr)`; `dist.all_gather(list(new),"
            " w[r], group=group)`, and the first P elements of it."
        ),
    ),
    before=(hidden_sum,),
    diagnoses=(nothing_returned, not_whole, not_gathered, other_weights, wrong_place, wrong_step),
    traffic=(
        calls(("reduce_scatter", "all_gather") * STEPS, "an all-reduce in two halves, with the step between them"),
        payload_at_most(_padded_bytes, "pad to the next multiple of n, no further"),
    ),
    cost=(remembers_its_shard,),
    advice=(
        (UNEQUAL, EQUAL_SHARDS),
        (MISSED, "Every rank calls both collectives, also one whose shard is nothing but padding."),
    ),
    errors=(
        UNPADDED,
        (r"ZeroDivisionError", "`step` counts from 1: count before you call adamw_."),
        (r"must match the size", "adamw_ takes four tensors of one length, that of a shard: m and v are shards too."),
        (r"parameter `(input|tensor)_list`", "A collective of shards wants them as a list: list(x) has the rows of x."),
    ),
    mistakes=mistakes.SHARDED_STEP,
    praise="two collectives in a step, one n-th of the optimizer on each rank",
)

SHARDED_GRADIENTS = Exercise(
    id="sharded-gradients",
    lab=LAB,
    function="keep_shard",
    size="P",
    cases=gradient_cases,
    oracle=summed,
    hints=(
        "After each micro-batch the whole gradient is to go. What has to be kept of it, on this rank?",
        "Pad it to n equal rows, reduce-scatter it, divide by n, and add that to the shard that was kept before.",
        (
            "`rows = torch.cat([gradient, gradient.new_zeros(-len(gradient) % n)]).view(n, -1)`, `mine ="
            " torch.empty_like(rows[0])`, `dist.reduce_scatter(mine, list(rows), group=group)`, then `mine / n` plus"
            " `kept`, if that is not None."
        ),
    ),
    diagnoses=(nothing_returned, not_a_shard, not_divided, wrong_sum),
    traffic=(
        calls(("reduce_scatter",) * MICRO_BATCHES, "one for each micro-batch: whole sums are of no use to a rank"),
        payload_at_most(_padded_bytes, "pad to the next multiple of n, no further"),
    ),
    advice=(
        (UNEQUAL, EQUAL_SHARDS),
        (MISSED, "Every rank takes part in every sum, also with a shard that is nothing but padding."),
    ),
    errors=(
        UNPADDED,
        (r"Boolean value of Tensor", "`kept is None` asks whether there was a call before; `if kept` for its values."),
        (r"must match the size", "`kept` is what the call before returned: one shard, as long as the new one."),
    ),
    mistakes=mistakes.SHARDED_GRADIENTS,
    praise="one reduce-scatter for each micro-batch, and nothing whole is kept",
)

LENT_LAYER = Exercise(
    id="lent-layer",
    lab=LAB,
    function="lend_layer",
    size="C",
    cases=layer_cases,
    oracle=passed,
    hints=(
        "A layer is whole twice: in forward and in backward. Where does autograd look for its weights the second time?",
        (
            "Make one tensor for good, padded to n shards, and the weight as a view of it; then take its memory away:"
            " `whole.untyped_storage().resize_(0)`. gather() gives the memory back and fills it; free() takes it away."
        ),
        (
            "`whole = shard.new_empty(n * len(shard))`, `weight = whole[: shape.numel()].view(shape)`, `storage ="
            " whole.untyped_storage()`, `nbytes = storage.nbytes()`, `storage.resize_(0)`. gather():"
            " `storage.resize_(nbytes)`, then `dist.all_gather(list(whole.view(n, -1)), shard, group=group)`."
        ),
    ),
    diagnoses=(nothing_returned, out_of_order),
    traffic=(
        only(("all_gather",), "all-gather only: shards of weights are put together, nothing is summed"),
        collectives_at_most(6, "each of three layers is gathered for forward, and again for backward"),
        payload_at_most(
            lambda case: padded_shard(case, case.facts["largest"]) * case.world * FLOAT,
            "one layer at a time, with less than n elements of padding",
        ),
    ),
    cost=(frees,),
    advice=(
        (r"makes room for 0", "`x.resize_(0)` makes a tensor short; `x.untyped_storage().resize_(0)` keeps its shape."),
        (MISSED, "Every rank gathers every layer, in the same order: each waits for the others' shards."),
    ),
    errors=(
        WROTE_TO_NOTHING,
        (r"cannot unpack|values to unpack", "lend_layer returns (weight, gather, free)."),
        (r"is not callable", "lend_layer returns gather and free without brackets: others call them, later."),
    ),
    mistakes=mistakes.LENT_LAYER,
    praise="each layer gathered twice, and none keeps its memory after it",
)

EXERCISES = (SHARDED_STEP, SHARDED_GRADIENTS, LENT_LAYER)
