"""What is right in the questions of lab 05, and what is said to usual wrong guesses."""

from kit.grade.question import Answer

TERMS = "Each rank has a term as large as the whole: terms are added up, not put side by side."
OWN = "dY's columns and all of X lie on the rank, and give the dW of its own columns of W."
ALIKE = "Equal shards give equal features and get equal gradients, in every step."
TERM_OF_DX = "Without the sum each rank steps its gain with its own term of the gradient."

ANSWERS = {
    "rows-forward": Answer(
        "an all-reduce",
        {
            "nothing": "No rank has Y: each has one term of it.",
            "an all-gather": TERMS,
            "a reduce-scatter": "It adds up as well, but leaves each rank with a part of the sum.",
        },
    ),
    "columns-dx": Answer(
        "an all-reduce",
        {
            "nothing": "X went into every column of Y; each rank knows only what came back from its own.",
            "an all-gather": TERMS,
            "a reduce-scatter": "It adds up as well, but leaves each rank with a part of dX.",
        },
    ),
    "columns-dw": Answer("nothing", {"an all-gather": OWN, "an all-reduce": OWN, "a reduce-scatter": OWN}),
    "mlp-bytes": Answer(
        why=lambda wide: {
            ("forward", wide): "Between the layers nothing is sent: each feature stays on its rank.",
            ("backward", wide): "Between the layers nothing is sent: each feature stays on its rank.",
            "forward": "One all-reduce of tokens x channels x 4 bytes: 2S(n-1)/n of them.",
            "backward": "One all-reduce for dX, as large as the one forward.",
        }
    ),
    "two-stages": Answer(
        why=lambda layers: {
            ("stages", layers): "Only the cut between the nodes is crossed, not each layer.",
            "stages": "tokens x channels x 4 bytes, once each way.",
        }
    ),
    "copy-forgotten": Answer(
        "the ranks' gains drift apart",
        {
            "nothing: forward is right": TERM_OF_DX,
            "it hangs": "Every rank calls the same collectives: the forward ones.",
            "gains are wrong, but alike": TERM_OF_DX + " The terms differ by rank.",
        },
    ),
    "shared-seed": Answer(
        "the same shard n times, for ever",
        {
            "as good as any other": ALIKE,
            "the same shard n times, until training parts them": ALIKE + " Nothing ever parts them.",
        },
    ),
}
