"""What is right in the questions of labs 03a and 03b, and what is said to usual wrong guesses."""

from kit.grade.question import Answer

OWN = "That is rank 0's own. Averaging replaces it, on rank 0 as on all others."
SUM = "That is the sum. It still has to be divided by the number of ranks."
ADAM = "AdamW divides each gradient by its own usual size: a factor cancels."
SMALL = "They start early, but pay the latency every time: too many small messages for this link."
NEAR = "Near it. Look at the numbers in the picture; on a busy machine neighbours change places."

ANSWERS = {
    "average": Answer(
        why=lambda total: {("first", 4): OWN, ("second", 8): OWN, ("first", total): SUM, ("second", 2 * total): SUM}
    ),
    "batch-traffic": Answer(
        "the same", "Windows stay at home. One number for each parameter travels, however much was read for it."
    ),
    "same-seed": Answer(
        "like one rank alone",
        {
            "worse than one rank alone": "The mean of equal gradients is that gradient: nothing gets worse. Nothing is"
            " gained either.",
            "like ranks with data of their own": "A mean of equal gradients is as noisy as one of them: the others"
            " worked for nothing.",
        },
    ),
    "undivided": Answer(
        "hardly any difference",
        lambda ranks: (
            f"{ADAM} SGD, which does not, took steps {ranks} times as long: another loss, or none at all (nan)."
        ),
    ),
    "first-gradient": Answer(
        "norm.weight, the last before the predictions",
        {
            "tokens.weight": "It is used at the end and at the start, so it is complete when backward is at the start.",
            "all at once, at the end": "Each is complete as soon as backward has passed the last place that uses it.",
        },
    ),
    "no-sync": Answer(
        "the same gradient for a quarter of the traffic",
        "Gradients add up in p.grad on every rank, so the last pass averages all four: the sum of means is the mean of"
        " sums.",
    ),
    "other-order": Answer(
        why="First call meets first call: rank 0 sent its a, 1, while the others sent their b. No error, and no hang."
    ),
    "bucket-size": Answer(
        why=lambda hooks, between: {
            hooks: SMALL,
            "one bucket for all": "Nothing leaves before the last gradient is there, and then nothing is left to hide"
            " behind.",
            **dict.fromkeys(between, NEAR),
        }
    ),
    "weak-efficiency": Answer(why=lambda machine: machine),
    "rate-low": Answer(why="There are fewer steps, so short ones do not come as far."),
    "rate-high": Answer(
        why="This rate was near the longest step the model bears. Beyond it averaging helps little.",
        then="A rule begins the search for a rate, it does not end it: each added rank brings you nearer to what the"
        " model bears. Large runs walk up slowly (warm-up).",
    ),
}
