"""What is right in the questions of labs 01a and 01b, and what is said to usual wrong guesses."""

from kit.grade.question import Answer

ANSWERS = {
    "one-to-all": Answer(
        why=lambda own: {
            ("broadcast", own): "That was its own, which broadcast overwrites.",
            ("scatter", 1): "That part is for rank 0: each rank gets its own.",
        }
    ),
    "all-to-one": Answer(
        why=lambda ranks: {
            ("gather", ranks): "So many tensors arrive, with two numbers each.",
            ("gather", 2): "Those are its own: everybody else's stand beside them.",
            ("reduce", 1): "That was its own. The others' are added to it, so each has a digit.",
        }
    ),
    "all-the-same": Answer(
        why=lambda own: {
            ("all_gather", own): "Pieces lie in the order of ranks, everywhere: rank 0's comes first.",
            ("all_reduce", own): "That was its own. It works in place: now it is everybody's sum.",
            ("all_reduce", 1): "That is rank 0's alone; everyone gets the sum.",
        }
    ),
    "a-piece-each": Answer(
        why=lambda ranks: {
            ("reduce_scatter", (10**ranks - 1) / 9): "That is the sum of the first pieces, and rank 0 keeps it.",
            ("all_to_all", 10 + ranks - 1): "That is the last number that rank 1 wrote; it is for the last rank.",
        }
    ),
    "at-the-barrier": Answer(
        "all the others, 200 ms",
        {
            "rank 0, 200 ms": "It slept before the barrier. When it came, all were there, and it went on.",
            "everybody, 200 ms": "Rank 0 comes last: nobody is left to wait for.",
            "nobody": "Then nothing would have kept the others from going on without rank 0.",
        },
    ),
    "root-traffic": Answer(
        why=lambda mb, ranks: {
            ("rank_0", (ranks - 1) * mb): "That is what it takes in. Everyone also wants the sum back: as many sends.",
            ("rank_0", ranks * mb): "Its own tensor stays where it is, and the sum goes back to each of the others.",
            ("last", mb): "Its tensor goes out; the sum also comes in.",
        },
        then="Rank 0 is everybody's bottleneck, and each new rank makes it worse.",
    ),
    "ring-hold": Answer(
        why="Its neighbours stop first. Then theirs have nobody to talk to, and so on round the ring.",
        then="One late rank stops everybody; such a rank is called a straggler. On a thousand devices the slowest one"
        " sets the pace, every step.",
    ),
    "all-send-first": Answer(
        "all wait for ever",
        {
            "it works": "A send ends when somebody has taken the message, and everybody is still handing over.",
            "it works for an even number of ranks": "It would, if every second rank received first. Here all of them do"
            " the same.",
        },
        then="A circle of ranks, each waiting for the next, is a deadlock. Some libraries keep small messages in a"
        " buffer and let this code pass, until the day the tensors grow.",
    ),
    "messages-of-16": Answer(
        why={
            "ring": "In each of 2 x 15 rounds every one of the 16 ranks sends one message.",
            "halving_doubling": "4 rounds of halving and 4 of doubling, and all 16 ranks send in each.",
            "tree": "15 messages climb, one from every rank but the root; then 15 climb down.",
        },
        then="Few messages are not few bytes: what the root of the tree sends is four times the whole tensor.",
    ),
    "fastest-4-bytes": Answer(
        why=lambda behind: (
            "With 4 bytes only rounds count: 126 rounds in the ring, 12 in halving and doubling, 12 in the tree."
        )
    ),
    "fastest-100-mb": Answer(
        why=lambda behind: {
            "by way of root": "All 63 tensors cross one door, in and out.",
            "ring": f"{behind:.0f} % behind: it pays α 126 times, the winner 12 times. Where α is small they are close,"
            " and a ring needs good links between neighbours only.",
            "halving and doubling": "The ring pays α more often, but its bytes are as few.",
            "tree": "The tree sends all 100 MB in each of 12 rounds, the winner not quite twice in all.",
        }
    ),
    "fastest-on-1024": Answer(
        why={
            "ring": "A chunk goes once round all 1,024 ranks, and then again: 2,046 times α before anyone is done.",
            "tree": "As few rounds as halving and doubling, but each of the 20 carries the whole tensor.",
        },
        then="These times are predictions from two measured numbers, for links that are all alike.",
    ),
    "async-stands": Answer(
        "work.wait()",
        {
            "dist.all_reduce(x, async_op=True)": "It only starts the collective, and returns at once.",
            "y = 2.0 + 2.0": "That needs nobody else.",
            "in none of them": "It needs the sum in the end, and the others have not even started.",
        },
    ),
}
