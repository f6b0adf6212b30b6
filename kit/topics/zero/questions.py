"""What is right in the questions of lab 04, and what is said to usual wrong guesses."""

from kit.grade.question import Answer

HALVES = "An all-reduce is a reduce-scatter and an all-gather. Stage 1 runs one, steps, runs the other."
OVERWRITTEN = "Every rank's own shard was stepped with the whole sum; gathering overwrites the rest."
SUMMED = "A sum with a NaN in it is NaN, and the sum of every layer below is shared out to all ranks."

ANSWERS = {
    "zero-holds": Answer(
        why={
            "stage_1": "Weights and gradients are whole, 4 + 4. Only the 8 bytes of moments are cut.",
            "stage_2": "The weights are still whole: 4 bytes, and a shard of 12.",
            "stage_3": "A shard of all 16.",
        }
    ),
    "zero-sends": Answer(
        why={
            "stage_1": HALVES,
            "stage_3": "Weights are gathered for forward and again for backward, gradients summed: three halves, not"
            " two.",
        }
    ),
    "mixed-holds": Answer(
        why="Weights and gradients are halved, 4 bytes saved. The master weights take the 4 bytes back."
    ),
    "polaris-405b": Answer(
        why=lambda bare: {
            "fewest": "16 bytes x 405e9 over 160 GiB a node, and every rank needs room for one whole layer.",
            ("fewest", bare): "That is the state alone. Each rank also needs room for one whole layer in hand.",
        }
    ),
    "steps-everything": Answer(
        "only memory is wasted",
        {
            "weights differ by rank": OVERWRITTEN,
            "weights are wrong, the same everywhere": OVERWRITTEN,
            "it hangs": "Same collectives, same order.",
        },
    ),
    "nan-spreads": Answer("every rank", SUMMED),
}
