"""What is right in the questions of lab 00, and what is said to usual wrong guesses."""

from kit.grade.question import Answer

ANSWERS = {
    "my-topic-mean-guess": Answer(
        why=lambda total: {("x", total): "That is the sum.", ("x", 0): "That was rank 0's own."}
    ),
    "my-topic-alone": Answer("it waits", {"it goes on": "A sum over all ranks needs all ranks."}),
    "my-topic-bytes": Answer(why=lambda elements: {("rank_0", elements): "Each number has four bytes."}),
}
