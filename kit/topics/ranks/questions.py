"""What is right in the questions of lab 00, and what is said to usual wrong guesses."""

from kit.grade.question import Answer

ANSWERS = {
    "own-memory": Answer(
        why=lambda everyone: {
            ("x", everyone): "That would be one x for all of them. Each process has its own memory, so its own x.",
            ("x", 0): "The line ran on every rank, on the last one too.",
        }
    ),
    "first-wait": Answer(
        "it waits",
        {
            "it goes on with its own 1": "A sum over all ranks needs all ranks. It does not have one yet.",
            "it goes on with the whole sum": "The others have not handed in their tensors, and nobody can read them"
            " from outside.",
        },
        then="Rank 0 is neither broken nor slow. It stands in its line until the others come. In a training run you"
        " would see a GPU at work and no progress.",
    ),
    "message-cost": Answer(
        why=lambda factor: (
            f"It took {factor:.0f} times as long. Most of a short message's time is not spent on its bytes."
        )
    ),
    "first-hang": Answer(
        "wait for ever",
        {
            "sum without rank 1": "The sum is over the whole group, and nothing tells it that one of them has left.",
            "fail at once": "Nothing has failed. For all they know the missing tensor may still come.",
        },
        then="Without help you would now see nothing: no error and no output, until after ten minutes (nccl) or half an"
        " hour (gloo) a time-out names perhaps the wrong rank. The sentence above is possible because every rank says"
        " what it is about to do.",
    ),
}
