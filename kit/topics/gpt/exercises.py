"""Lab 10: what a training on many ranks stands on: gradients, a validation, hashes, shards on other ranks."""

from __future__ import annotations

from kit.grade.diagnose import not_divided, nothing_returned
from kit.grade.exercise import Case, Exercise
from kit.grade.traffic import calls, collectives_at_most, payload_at_most, silent
from kit.topics.gpt import mistakes
from kit.topics.gpt.cases import (
    FLOAT,
    HASH,
    gradient_cases,
    gradients_right,
    parted_cases,
    parted_right,
    shard_cases,
    shards_right,
    validation_cases,
    validation_right,
)
from kit.topics.gpt.diagnoses import reads_too_much, wrong_gradient, wrong_mean, wrong_name, wrong_shard

LAB = "10_gpt"
MISSED = r"[Dd]eadlock|waits in|never|finished without|must call"


def _hashes(case: Case) -> int:
    return HASH * case.size * case.world


ACCUMULATED_GRADIENT = Exercise(
    id="gpt-accumulate",
    lab=LAB,
    function="accumulated_gradient",
    size="m",
    cases=gradient_cases,
    oracle=gradients_right,
    hints=(
        "`backward()` adds to what is in `weight.grad`. What is the sum of m gradients, beside their mean?",
        "Divide each loss by m before its backward pass. After the last one: one all-reduce, divided by n.",
        (
            "`(loss / len(batches)).backward()` in the loop; behind it `dist.all_reduce(weight.grad, group=group)` and"
            " `weight.grad /= dist.get_world_size(group)`."
        ),
    ),
    diagnoses=(nothing_returned, wrong_gradient, not_divided),
    traffic=(calls(("all_reduce",), "once is enough, after the last micro-batch, which is what DDP's no_sync is for"),),
    advice=((MISSED, "Every rank sums once, behind the loop."),),
    errors=(
        (r"does not require grad|no grad", "x @ weight has to be computed with `weight` itself, not with its data."),
    ),
    mistakes=mistakes.ACCUMULATED_GRADIENT,
    praise="one all-reduce, however many micro-batches",
)

VALIDATION_LOSS = Exercise(
    id="gpt-validation",
    lab=LAB,
    function="validation_loss",
    size="K",
    cases=validation_cases,
    oracle=validation_right,
    hints=(
        "A rank that looked at twice as many tokens counts twice. What has to travel for that?",
        "The sum of losses times tokens, and the sum of tokens: both in one tensor, summed over the ranks.",
        (
            "`total = torch.stack([(losses * tokens).sum(), tokens.sum().float()])`, `dist.all_reduce(total,"
            " group=group)`, and the first by the second."
        ),
    ),
    diagnoses=(nothing_returned, wrong_mean),
    traffic=(
        collectives_at_most(1, "both sums fit into one tensor"),
        payload_at_most(lambda case: 2 * FLOAT, "two numbers say it all: a sum and a count"),
    ),
    advice=((MISSED, "Every rank calls the all-reduce once, however many batches it has."),),
    errors=((r"expected .*same dtype|same dtype|Long", "Counts are int64: `.float()` before they join a loss."),),
    mistakes=mistakes.VALIDATION_LOSS,
    praise="two numbers in one all-reduce",
)

FIRST_PARTED = Exercise(
    id="gpt-parted",
    lab=LAB,
    function="first_parted",
    size="K",
    cases=parted_cases,
    oracle=parted_right,
    hints=(
        "Weights are gigabytes, their hashes are not. Who has to see whose?",
        "All hashes of a rank in one tensor of int64, all-gathered; each rank then looks for the first that differs.",
        (
            "`own = torch.tensor([int(one, 16) for one in hashes(tensors).values()])`, `dist.all_gather(every, own,"
            " group=group)`, `same = (torch.stack(every) == every[0]).all(0)`."
        ),
    ),
    diagnoses=(nothing_returned, wrong_name),
    traffic=(
        payload_at_most(_hashes, "a hash of each tensor is enough, 8 bytes"),
        collectives_at_most(1, "all hashes fit into one collective: each call costs its latency"),
    ),
    advice=((MISSED, "Every rank gathers, also one whose own tensors look right: no rank can know alone."),),
    errors=(
        (
            r"Overflow|too large|invalid literal",
            "A hash is eight hexadecimal digits: `int(one, 16)` fits into an int64.",
        ),
    ),
    mistakes=mistakes.FIRST_PARTED,
    praise="8 bytes a tensor, whatever its size",
)

NEW_SHARD = Exercise(
    id="gpt-fewer-ranks",
    lab=LAB,
    function="new_shard",
    size="P",
    cases=shard_cases,
    oracle=shards_right,
    hints=(
        "Both cuts are of the same vector. Between which two elements of it does the new shard lie?",
        (
            "Old shards have ceil(P / old) elements, new ones ceil(P / n); the last of either ends in zeros. Shard k"
            " holds elements k * was to (k + 1) * was: read those that overlap, and copy where they do."
        ),
        (
            "`first, end = min(r * now, P), min((r + 1) * now, P)`; for k from first // was up to ceil(end / was):"
            " elements a = max(first, k * was) to b = min(end, (k + 1) * was), from"
            " `read(k)[a - k * was : b - k * was]` to `shard[a - first : b - first]`. Where first == end nothing is"
            " read."
        ),
    ),
    diagnoses=(nothing_returned, wrong_shard),
    traffic=(silent,),
    cost=(reads_too_much,),
    errors=(
        (r"there is no shard", "Elements end at P: `min(..., P)`, and a rank that has padding alone reads nothing."),
    ),
    mistakes=mistakes.NEW_SHARD,
    praise="every rank reads what it needs, and nothing else",
)

EXERCISES = (ACCUMULATED_GRADIENT, VALIDATION_LOSS, FIRST_PARTED, NEW_SHARD)
