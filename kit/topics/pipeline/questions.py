"""What is right in the questions of labs 06, and what is said to usual wrong guesses."""

from kit.grade.question import Answer

ANSWERS = {
    "bubble-share": Answer(
        why={
            "one": "One rank works at a time, so all but one of p stand idle: (p - 1)/p.",
            "many": "Filling and draining take p - 1 of m + p - 1 turns. Idle over working time, (p - 1)/m, is the"
            " overhead, another measure.",
        }
    ),
    "slow-stage": Answer(
        "every rank but stage 1's",
        "Each micro-batch has to go through stage 1: those before it cannot go on sooner, and those behind it get"
        " nothing sooner.",
        "Stage 1 itself has hardly any bubble left. The pipeline goes at its pace.",
    ),
    "held-activations": Answer(
        why={
            "first": "It goes p - 1 forwards ahead, does one more, and then frees one for each it takes.",
            "last": "It goes back with each micro-batch at once.",
        }
    ),
    "fastest-on-a-slow-link": Answer(
        "GPipe",
        "In its steady part 1F1B waits for an answer from the next rank at every turn, there and back, and interleaved"
        " rows cross twice as many borders. In GPipe messages follow each other without waiting for an answer: the"
        " latency is paid while it fills and drains.",
    ),
    "crossed-rows": Answer(
        "the ranks wait for ever",
        "Rank 0 waits for a gradient that rank 1 gives only after it has had an activation that rank 0 has not sent.",
    ),
    "zb-awaited": Answer(
        "I alone",
        {
            "I and W": "dx needs A and dz, and no dA. W lies behind I only because autograd computes both at once.",
            "W alone": "The weights' gradient stays where the weights are: the optimizer of this rank takes it.",
        },
        "The last rank stood before its W, and every other rank was through with all it had to do.",
    ),
    "zb-idle": Answer(
        why="Rank 0 loses (p - 1)(F + I - W) of a step in place of (p - 1)(F + I + W): a third, where all three take"
        " equally long. The last rank still has to be reached: p - 1 forward passes stay."
    ),
    "zb-held": Answer(
        why={
            "ZB_H1": "Every rank has room for as many as 1F1B's first: what W keeps is made up for by fewer forwards"
            " ahead.",
            "ZB_H2": "Rank 0 goes 2(p - 1) forwards ahead, and does one more before its first I.",
            "V_Half": "Towards half of 1F1B's as p grows, on every rank alike: of its two chunks one is held long, the"
            " other briefly.",
            "V_Min": "Towards a third of 1F1B's as p grows: micro-batches follow each other down and up without delay.",
            "two_ways": "p + 1 in DualPipe, half a stage more in its half DualPipeV: each rank serves both ways.",
        },
        then="DualPipe pays a second time: each rank has the weights of two stages.",
    ),
    "zb-one-step": Answer(
        "as much as ZB-H1",
        {
            "nothing": "Between its own first action and its last no rank stands still. But the last rank cannot begin"
            " before p - 1 forward passes are done, and counted over all ranks that is idle time.",
            "half of ZB-H1's": "The last rank begins after p - 1 forward passes in both, and is busy from then on.",
        },
        "What ZB-H2 gains shows only when the next step begins before all are through with this one.",
    ),
    "zb-lost-w": Answer(
        "it runs; a gradient is wrong",
        {
            "the ranks wait for ever": "Nobody waits for a W: no message depends on it.",
            "an exception": "Nothing is asked for that is not there. The weights' gradient lacks a micro-batch, and no"
            " line of code looks for it.",
            "it runs; the loss is wrong": "The losses of this step were computed before. Those of later steps suffer.",
        },
    ),
    "zb-skips": Answer(
        "they wait for ever",
        {
            "they step, without that stage": "An all-reduce ends for nobody before all have called it.",
            "they get an infinite norm, too": "So it would be, and so it should be: had that stage put its"
            " infinity in, everybody would know, and skip the step together.",
        },
    ),
}
