"""Labs 06: pipeline schedules: a step by hand, rows of actions, a matrix that two stages share."""

from __future__ import annotations

from kit.grade.diagnose import input_changed, nothing_returned
from kit.grade.exercise import Exercise
from kit.grade.traffic import only, silent
from kit.topics.pipeline import mistakes
from kit.topics.pipeline.cases import (
    cut_cases,
    cut_layers,
    row_cases,
    row_gradients,
    step_cases,
    step_gradients,
    tied_cases,
    tied_gradients,
)
from kit.topics.pipeline.diagnoses import (
    all_forward_first,
    cannot_run,
    ends_alone,
    holds_too_much,
    no_cut,
    no_gradient,
    no_rows,
    not_added,
    not_the_mean,
    of_another_micro_batch,
    of_one_micro_batch,
    slow_stage,
    too_many_messages,
    too_slow,
)
from kit.topics.pipeline.exercises_b import ZERO_BUBBLE

LAB = "06a_pipeline"
MISSED = r"[Dd]eadlock|waits in|never|finished without|must call"
NEIGHBOURS = (
    "Follow micro-batch 0: rank r receives its activation from r - 1 and sends one on to r + 1, then a gradient comes"
    " from r + 1 and one goes back to r - 1. The first rank and the last leave out what they have no neighbour for."
)

PIPELINE_STEP = Exercise(
    id="pipeline-step",
    lab=LAB,
    function="pipeline_step",
    size="m",
    cases=step_cases,
    oracle=step_gradients,
    hints=(
        "Two loops over the micro-batches: forward, and back. What does a rank need in each, and from which neighbour?",
        (
            "Forward: x comes from rank r - 1 (on rank 0 it is inputs[j]), y = stage(x) goes to r + 1; keep both. Back:"
            " dy comes from r + 1, y.backward(dy), and x.grad goes to r - 1. The last rank has a loss in the place of"
            " dy."
        ),
        (
            "`x = torch.empty_like(like)`, `dist.recv(x, group_src=r - 1, group=group)`, `x.requires_grad_()`, `y ="
            " stage(x)`, `dist.send(y.detach(), group_dst=r + 1, group=group)`, `kept.append((x, y))`. Back, in the"
            " same order: on the last rank `(loss_of(y, targets[j]) / m).backward()`."
        ),
    ),
    diagnoses=(no_gradient, not_the_mean, of_one_micro_batch, of_another_micro_batch),
    traffic=(
        only(("send", "recv", "isend", "irecv"), "messages between neighbours"),
        too_many_messages,
    ),
    advice=((MISSED, NEIGHBOURS),),
    errors=(
        (
            r"NoneType|Expected parameter `tensor`",
            "`x.grad` is None where nobody asked for it: what was received needs `x.requires_grad_()` before the stage"
            " computes with it.",
        ),
        (
            r"does not require grad",
            "A backward pass begins at what a stage computed with its weights: keep `y = stage(x)` itself, and send"
            " `y.detach()`.",
        ),
        (
            r"implicitly created only for scalar",
            "Only the last rank has a loss. The others go back with what came: `y.backward(dy)`.",
        ),
        (r"second time", "Each micro-batch goes back once, through its own y: keep all of them, by number."),
        (
            r"index out of range|list index",
            "There are len(inputs) micro-batches, counted from 0: that is m, not the ranks.",
        ),
        (
            r"leaf [Vv]ariable",
            "Receive first, then `x.requires_grad_()`: what autograd watches is not to be written to.",
        ),
    ),
    mistakes=mistakes.PIPELINE_STEP,
    peers_in_group=True,
    praise="an activation on and a gradient back for each micro-batch, and the gradients of the whole model",
)

GPIPE_ROW = Exercise(
    id="gpipe-row",
    lab=LAB,
    function="gpipe_row",
    size="m",
    cases=row_cases,
    oracle=row_gradients,
    hints=(
        "All ranks do the same m + m actions. In which order?",
        "First F for each micro-batch, then B for each: a list of 2m strings, 'F0' the first of them.",
        "`[f'F{j}' for j in range(m)]`, and the same with B behind it.",
    ),
    before=(no_rows, cannot_run),
    after=(all_forward_first,),
    mistakes=mistakes.GPIPE_ROW,
    praise="it ran on the ranks, with the losses and gradients of a run without a pipeline",
)

ONE_F_ONE_B_ROW = Exercise(
    id="one-f-one-b-row",
    lab=LAB,
    function="one_f_one_b_row",
    size="m",
    cases=row_cases,
    oracle=row_gradients,
    hints=(
        "The last rank never waits: F0 B0 F1 B1 and so on. How many forwards must the rank before it be ahead, so that"
        " the last one always has something to do?",
        "min(m, p - 1 - r) forwards; then F and B by turns as long as there is an F; then the backwards that are left.",
        (
            "`ahead = min(m, p - 1 - r)`, the row begins with F0 to F(ahead - 1). For j in range(m - ahead) come"
            " F(ahead + j) and B(j). At last B(m - ahead) to B(m - 1)."
        ),
    ),
    before=(no_rows, cannot_run),
    cost=(holds_too_much, too_slow),
    mistakes=mistakes.ONE_F_ONE_B_ROW,
    praise="as fast as GPipe, and rank r holds p - r activations however many micro-batches there are",
)

SUM_TIED = Exercise(
    id="tied-sum",
    lab=LAB,
    function="sum_tied",
    size="P",
    cases=tied_cases,
    oracle=tied_gradients,
    hints=(
        "Two ranks have a gradient of the same matrix. What must both step with, and who else needs to know?",
        "The first rank and the last exchange theirs and add. The others return None at once.",
        (
            "`other = p - 1 - r`. Rank 0 sends `group_dst=other`, then receives `group_src=other`; the last rank first"
            " receives, then sends. Return gradient + its."
        ),
    ),
    before=(input_changed,),
    diagnoses=(not_added, nothing_returned),
    traffic=(
        only(("send", "recv", "isend", "irecv"), "messages between the first rank and the last"),
        ends_alone,
    ),
    advice=((MISSED, "The first rank and the last exchange a message each: both send once and receive once."),),
    errors=((r"NoneType", "Between the ends `gradient` is None: those ranks return before they touch it."),),
    mistakes=mistakes.SUM_TIED,
    peers_in_group=True,
    praise="one message each way, and both copies of the matrix go on equal",
)

BALANCED_CUT = Exercise(
    id="balanced-cut",
    lab=LAB,
    function="balanced_cut",
    size="K",
    cases=cut_cases,
    oracle=cut_layers,
    hints=(
        "If you knew how long the slowest stage may take, how would you fill stage after stage?",
        (
            "For a limit: give each stage layers as long as it stays within it and one is left for every stage behind."
            " That works or it does not. The smallest limit that works is the time of some layers in a row."
        ),
        (
            "`limits = sorted({sum(layers[a:b]) for b in range(len(layers) + 1) for a in range(b)})`. For each limit,"
            " for each stage: `end = at + 1`, and while `end < len(layers) - (p - 1 - stage)` and `sum(layers[at : end"
            " + 1]) <= limit`: `end += 1`. Return the first cut that has all layers and no stage beyond the limit."
        ),
    ),
    before=(no_cut,),
    traffic=(silent,),
    cost=(slow_stage,),
    mistakes=mistakes.BALANCED_CUT,
    praise="no cut has a faster slowest stage",
)

EXERCISES = (PIPELINE_STEP, GPIPE_ROW, ONE_F_ONE_B_ROW, SUM_TIED, BALANCED_CUT, *ZERO_BUBBLE)
