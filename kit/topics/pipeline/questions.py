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
}
