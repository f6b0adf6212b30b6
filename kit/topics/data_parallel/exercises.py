"""Labs 03a and 03b: one state for all ranks, gradients averaged by hand, by hooks, and in buckets."""

from __future__ import annotations

from typing import Any

from kit.grade.diagnose import not_divided, only_rank_zero
from kit.grade.exercise import Advice, Case, Exercise
from kit.grade.traffic import collectives_at_most, only, payload_at_most, payload_in_all
from kit.topics.data_parallel import mistakes
from kit.topics.data_parallel.cases import FLOAT, STEPS, average_cases, bucket_cases, buckets, hook_cases, start_cases
from kit.topics.data_parallel.diagnoses import (
    averaged_state,
    earlier_left_out,
    first_step_only,
    forgotten,
    lacking_one,
    miscounted,
    mixed_up,
    overlapped,
    part_differs,
    partly_divided,
    returns_nothing,
    state_changed,
    still_own,
    tail_dropped,
    wrong_divisor,
    wrong_state,
)

ONE_MEAN, WHILE_BACKWARD = "03a_data_parallel", "03b_data_parallel"
SUMS = only(("all_reduce",), "all_reduce, which sums")

# ---------------------------------------------------------------------------------------------------- equal start


def _parts(case: Case) -> int:
    return len(case.facts["parts"])


def _state_bytes(case: Case) -> int:
    return case.size * FLOAT


def _all_steps_bytes(case: Case) -> int:
    return STEPS * _state_bytes(case)


EQUAL_START = Exercise(
    id="equal-start",
    lab=ONE_MEAN,
    function="broadcast_state",
    size="P",
    cases=start_cases,
    oracle=lambda case: [case.facts["own"][case.facts["source"]]] * case.world,
    hints=(
        "Which of a model's tensors make up what it computes? Not only those that are trained.",
        "`model.parameters()` has the frozen ones too, a shared one once; `model.buffers()` has the rest.",
        (
            "`for x in [*model.parameters(), *model.buffers()]: dist.broadcast(x.detach(), group_src=source,"
            " group=group)`: `detach()` shares the memory, so what arrives is in the model."
        ),
    ),
    before=(returns_nothing,),
    diagnoses=(wrong_state, averaged_state, forgotten, part_differs("value")),
    traffic=(
        only(("broadcast",), "broadcast: one rank speaks, all others listen"),
        collectives_at_most(_parts, "a tensor that two modules share is sent once"),
        payload_in_all(_state_bytes, "every parameter and every buffer once"),
    ),
    advice=(
        (
            r"[Dd]eadlock|waits in|never|finished without",
            "Every rank calls dist.broadcast, for the same tensors in the same order, and all name the same source.",
        ),
    ),
    errors=(
        (r"'NoneType'", "dist.broadcast fills its tensor in place, and returns None."),
        (r"parameter `tensor`", "dist.broadcast takes one tensor at a time, and behind it the rank that sends."),
        (r"shapes must be equal", "Every rank calls dist.broadcast for the same tensors in the same order."),
        (
            r"'generator'",
            "model.parameters() and model.buffers() are generators: `[*model.parameters(), *model.buffers()]` is one"
            " list of what is in both.",
        ),
    ),
    mistakes=mistakes.EQUAL_START,
    peers_in_group=True,
    praise="every parameter and every buffer sent once",
)

# ---------------------------------------------------------------------------------------------- averaging by hand


def _mean(case: Case) -> list[Any]:
    return [sum(case.facts["own"]) / case.world] * case.world


NO_GRADIENT: Advice = (
    r"waits in|never|finished without|mismatch|must call|must be equal|shapes",
    lambda case, trace: (
        "A rank on which a parameter has no gradient still has to call: it adds zeros, and the others wait for it."
        if case.facts["lacking"] is not None
        else "Every rank has to call all_reduce for the same gradients in the same order: each waits for all others."
    ),
)

ERRORS = (
    (r" /: 'NoneType'", "dist.all_reduce changes its tensor in place, and returns None."),
    (r"Boolean value of Tensor", "`p.grad is None` asks whether there is a gradient; `if p.grad` asks for its values."),
    (
        r"'NoneType'|parameter `tensor`",
        "A frozen parameter's p.grad is None, and so is one that a rank's pass had no use for: pass over the first,"
        " and put zeros into the second.",
    ),
)

AVERAGE_GRADIENTS = Exercise(
    id="average-gradients",
    lab=ONE_MEAN,
    function="average_gradients",
    size="P",
    cases=average_cases,
    oracle=_mean,
    hints=(
        "After backward each rank's `p.grad` is the gradient of its own part of the batch. What is that of the whole?",
        (
            "One all_reduce for each parameter that is trained, then a division by the number of ranks. What does a"
            " rank do whose `p.grad` is None, while others wait for it?"
        ),
        (
            "For each p with requires_grad: `p.grad = torch.zeros_like(p)` if it is None, `dist.all_reduce(p.grad,"
            " group=group)`, `p.grad /= dist.get_world_size(group)`."
        ),
    ),
    before=(state_changed, returns_nothing),
    diagnoses=(
        not_divided,
        wrong_divisor,
        lacking_one,
        partly_divided,
        only_rank_zero,
        still_own,
        part_differs("gradient"),
    ),
    traffic=(
        SUMS,
        collectives_at_most(_parts, "one for each trained parameter; a shared one counts once"),
        payload_in_all(_state_bytes, "every gradient goes once, frozen parameters have none"),
    ),
    advice=(NO_GRADIENT,),
    errors=(*ERRORS, (r"shapes must be equal", NO_GRADIENT[1])),
    mistakes=mistakes.AVERAGE_GRADIENTS,
    praise="every gradient sent once, also where a rank has none",
)

# ------------------------------------------------------------------------------------------------ hooks, and buckets


NONLOCAL = (
    r"UnboundLocalError",
    "A hook that binds a name anew has to say `nonlocal` first; a list, a set or a dict can be changed without.",
)


def _too_often(case: Case, times: float) -> str:
    """Why there are so many more sums than parameters."""
    if times == case.facts["each"]:
        return "gradients of the micro-batches before the last stay local, and add up in p.grad"
    return "every gradient was averaged twice: attach one hook to each parameter, once" if times == 2 else ""


AVERAGING_HOOKS = Exercise(
    id="averaging-hooks",
    lab=WHILE_BACKWARD,
    function="attach_averaging_hooks",
    size="P",
    cases=hook_cases,
    oracle=_mean,
    hints=(
        "Who knows first that a gradient is complete? Not the line after backward.",
        (
            "`p.register_post_accumulate_grad_hook(hook)` calls `hook(p)` when p.grad has been filled. The hook counts:"
            " only every `micro_batches`-th call is complete. It sends with async_op=True, and in one order on every"
            " rank, whatever order autograd has: a complete gradient waits for its turn. The last hook of the pass"
            " waits for all."
        ),
        (
            "`order`: the trained parameters, the last one first. In the hook: note p as complete, then `while"
            " len(works) < len(order) and order[len(works)] in complete:` divide that one's gradient and"
            " `works.append(dist.all_reduce(q.grad, group=group, async_op=True))`. With all under way: wait for each,"
            " and empty `works` and `complete` for the next pass."
        ),
    ),
    before=(state_changed, returns_nothing),
    diagnoses=(
        not_divided,
        mixed_up,
        earlier_left_out,
        wrong_divisor,
        only_rank_zero,
        first_step_only,
        still_own,
        miscounted,
        part_differs("gradient"),
    ),
    traffic=(
        SUMS,
        collectives_at_most(
            _parts,
            "one for each trained parameter and step; a parameter that two modules share has one hook",
            _too_often,
        ),
        payload_in_all(_all_steps_bytes, "every gradient goes once in a step"),
    ),
    cost=(overlapped(),),
    advice=(
        (
            r"waits in|never|finished without",
            "Every rank has to average in the same backward pass, the same gradients in the same order.",
        ),
    ),
    errors=(
        ERRORS[0],
        NONLOCAL,
        (
            r"parameter `tensor`",
            "Before backward p.grad is None: all_reduce belongs into a function that autograd calls, registered by its"
            " name, without brackets.",
        ),
        (
            r"/=: 'NoneType'",
            "A gradient was to be sent before this pass had brought it: one hook for each parameter, and what hooks"
            " note begins anew with every pass.",
        ),
    ),
    mistakes=mistakes.AVERAGING_HOOKS,
    praise="gradients travel while backward goes on, in one order on every rank, once for all micro-batches",
)


AVERAGE_IN_BUCKETS = Exercise(
    id="average-in-buckets",
    lab=WHILE_BACKWARD,
    function="average_in_buckets",
    size="P",
    cases=bucket_cases,
    oracle=_mean,
    hints=(
        "Three questions: which gradients share a bucket, when is a bucket full, and when is the sum there?",
        (
            "Fill buckets from the last parameter to the first. A hook copies its gradient into the bucket; the bucket"
            " that has all of its own, and whose turn it is, is sent with async_op=True. The end of backward waits."
        ),
        (
            "In the hook: `torch.div(p.grad, n, out=view)`, `p.grad = view`, count down, then `while` the next bucket"
            " in turn has all: `works.append(dist.all_reduce(flat, group=group, async_op=True))`. The first hook of a"
            " pass calls `queue_callback(finish)`, and `finish` waits for all works."
        ),
    ),
    before=(state_changed, returns_nothing),
    diagnoses=(
        not_divided,
        mixed_up,
        wrong_divisor,
        only_rank_zero,
        first_step_only,
        tail_dropped,
        still_own,
        part_differs("gradient"),
    ),
    traffic=(
        SUMS,
        payload_at_most(
            lambda case: max(case.facts["given"], FLOAT * max(size for _, size in case.facts["parts"])),
            "no bucket is larger than bucket_bytes, unless one gradient alone is",
        ),
        collectives_at_most(lambda case: STEPS * buckets(case), "one for each bucket, from the last parameter on"),
        payload_in_all(_all_steps_bytes, "every gradient goes once in a step, without padding"),
    ),
    cost=(overlapped(which=", and fill buckets from the last parameter, whose gradient comes first"),),
    advice=(
        (
            r"must be equal|mismatch|shapes|waits in|never|finished without",
            "Every rank has to send the same buckets in the same order, whatever order its gradients arrive in.",
        ),
    ),
    errors=(NONLOCAL,),
    mistakes=mistakes.AVERAGE_IN_BUCKETS,
    praise="few messages, sent while backward goes on, in one order on every rank",
)

EXERCISES = (EQUAL_START, AVERAGE_GRADIENTS, AVERAGING_HOOKS, AVERAGE_IN_BUCKETS)
