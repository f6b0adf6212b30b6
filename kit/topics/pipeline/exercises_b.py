"""Lab 06b: a backward pass in two parts, a row of ZB-H1, the norm of all stages, a step without a barrier."""

from __future__ import annotations

from kit.grade.exercise import Exercise
from kit.grade.traffic import calls, only, silent
from kit.topics.pipeline import mistakes_b as mistakes
from kit.topics.pipeline.cases import row_cases, row_gradients
from kit.topics.pipeline.cases_b import (
    norm_cases,
    norm_right,
    parts_cases,
    parts_right,
    step_cases,
    steps_right,
)
from kit.topics.pipeline.diagnoses import cannot_run, no_rows
from kit.topics.pipeline.diagnoses_b import (
    gradients_changed,
    holds_more_than_1f1b,
    holds_on,
    no_pair,
    no_parts,
    not_by_autograd,
    not_the_norm,
    one_message_each_way,
    one_number,
    own_norm,
    slower_than_zb_h1,
    weight_in_input,
    weight_never,
    whole_backward,
    wrong_early,
    wrong_final,
)

LAB = "06b_pipeline"
MISSED = r"[Dd]eadlock|waits in|never|finished without|must call|did not"

PARTED_STAGE = Exercise(
    id="zb-parts",
    lab=LAB,
    function="parted_stage",
    size="m",
    cases=parts_cases,
    oracle=parts_right,
    hints=(
        "Which of the two products needs x, and which needs A? What must be kept from forward to I, and from I to W?",
        (
            "Keep by micro-batch: x and y in forward; x and dz = dy (1 - y^2) from I on. I returns dz A. W adds dz^T x"
            " to weight.grad and forgets both."
        ),
        (
            "`kept = {}`; forward: `y = torch.tanh(x @ weight.T)`, `kept[j] = x, y`. I: `x, y = kept[j]`, `dz = dy * (1"
            " - y * y)`, `kept[j] = x, dz`, `return dz @ weight`. W: `x, dz = kept.pop(j)`, `weight.grad += dz.T @ x`."
        ),
    ),
    before=(no_parts, weight_in_input),
    diagnoses=(weight_never, not_by_autograd),
    traffic=(silent,),
    cost=(holds_on,),
    errors=(
        (
            r"second time",
            "I has used up the graph, and W comes later: `retain_graph=True` in I keeps it; by hand there is none.",
        ),
        (
            r"positional argument|missing \d+ required",
            "Three functions are called, in this order: forward, input_gradient, weight_gradient, as forward(j, x),"
            " input_gradient(j, dy), weight_gradient(j).",
        ),
        (
            r"cannot be multiplied",
            "dx = dz A has the shapes (B, D) (D, C); y = tanh(x A^T) those of (B, C) (C, D).",
        ),
        (
            r"must match the size|doesn't match the broadcast|not broadcastable|output with shape",
            "weight.grad is (D, C), as the weights are: dz^T x, `dz.T @ x`.",
        ),
        (r"KeyError", "W of a micro-batch comes after its I, and other I between: keep what W needs by the number j."),
        (r"requires grad", "Nothing here is watched by autograd: weight is a plain tensor, both products are yours."),
    ),
    mistakes=mistakes.PARTED_STAGE,
    praise="dx at once, the gradient of the weights whenever there is time, and what autograd gives",
)

ZB_H1_ROW = Exercise(
    id="zb-h1-row",
    lab=LAB,
    function="zb_h1_row",
    size="m",
    cases=row_cases,
    oracle=row_gradients,
    hints=(
        "Begin with 1F1B's row and put I in the place of B. Where on rank r has 1F1B a gap that a W would fill?",
        (
            "The last rank's W would hold up everybody's I, so it saves most of them for the end. Rank r lets r I go"
            " by; then after each I comes a W, the oldest first; the last r W stand at the end."
        ),
        (
            "As in 1F1B `ahead = min(m, p - 1 - r)`. For j in range(m) come F(ahead + j) if there is one, I(j), and if"
            " j >= r, W(j - r). At last W(m - r) to W(m - 1), counted from 0 where m < r."
        ),
    ),
    before=(no_rows, cannot_run),
    cost=(whole_backward, holds_more_than_1f1b, slower_than_zb_h1),
    mistakes=mistakes.ZB_H1_ROW,
    praise="a third of 1F1B's bubble, p activations a rank, and the gradients of a run without a pipeline",
)

GLOBAL_NORM = Exercise(
    id="zb-norm",
    lab=LAB,
    function="global_norm",
    size="K",
    cases=norm_cases,
    oracle=norm_right,
    hints=(
        "The norm of a long vector is known from its pieces: which number of each piece adds up?",
        "Add the squares of all of this stage's gradients, sum that over the ranks, then take the root.",
        "`total += gradient.square().sum()` for each; `dist.all_reduce(total, group=group)`; `total.sqrt()[0]`.",
    ),
    before=(gradients_changed,),
    diagnoses=(not_the_norm, own_norm),
    traffic=(
        calls(("all_reduce",), "one sum of one number, over all stages"),
        one_number,
    ),
    advice=(
        (
            MISSED,
            "stages hold different numbers of gradients: each adds up its own first, then all of them call all_reduce"
            " once.",
        ),
    ),
    errors=((r"float|tensor_list", "all_reduce takes a tensor: begin with `total = torch.zeros(1)`."),),
    mistakes=mistakes.GLOBAL_NORM,
    praise="4 bytes a rank. All stages have to be through with all W before any of them may step",
)

VALIDATED_STEP = Exercise(
    id="zb-post-validation",
    lab=LAB,
    function="validated_step",
    size="P",
    cases=step_cases,
    oracle=steps_right,
    hints=(
        "A sum over stages can be passed on like an activation, and the verdict back like a gradient. What does a stage"
        " know in between?",
        (
            "Receive the squares so far from r - 1, add yours, send them to r + 1. Within limit^2: step at once,"
            " else wait. Then the total comes from r + 1 and goes on to r - 1: beyond limit^2 go back to weight, and"
            " step with limit / norm."
        ),
        (
            "`total = torch.zeros(1)`, `dist.recv(total, group_src=r - 1, group=group)`, `total +="
            " gradient.square().sum()`, `dist.send(total, group_dst=r + 1, group=group)`, `early = weight - lr *"
            " gradient if total <= limit**2 else weight`; then recv from r + 1, send to r - 1, and `final`."
        ),
    ),
    diagnoses=(no_pair, wrong_early, wrong_final),
    traffic=(
        only(("send", "recv", "isend", "irecv"), "numbers passed on from stage to stage"),
        one_message_each_way,
    ),
    advice=(
        (
            MISSED,
            "a number goes on from stage to stage first, r - 1 to r to r + 1; only the last stage turns it round. The"
            " ends have one neighbour each.",
        ),
    ),
    mistakes=mistakes.VALIDATED_STEP,
    peers_in_group=True,
    praise="no stage waits for all others before it steps, and where the norm was too large the step is put right",
)

ZERO_BUBBLE = (PARTED_STAGE, ZB_H1_ROW, GLOBAL_NORM, VALIDATED_STEP)
