"""What is right in the questions of lab 10, and what is said to usual wrong guesses."""

from kit.grade.question import Answer

ANSWERS = {
    "gpt-chance": Answer(why={"loss": "A model that knows nothing finds every character alike: ln V nats."}),
    "gpt-shared-cores": Answer(
        why={
            "speed": "Each rank computes on one processor, and they share those of this machine: more ranks than those"
            " bring nothing, and there are gradients to average besides. On GPUs of their own it would be nearly their"
            " number.",
            "mfu": "The device's own speed is measured with all ranks at work. What lowers the MFU is the rest of a"
            " step: gradients are averaged, and a rank waits for the slowest.",
        }
    ),
    "gpt-fits": Answer(
        why={
            "ddp": "Weights, gradients and both moments, 4 bytes each, are whole on every rank: 16 for a parameter.",
            "zero1": "Only the moments are cut: 8 bytes a parameter are whole, 8 are shared out.",
            "zero3": "A shard of all 16, and the layer that is at work. The model was whole once, when it was made.",
        }
    ),
    "gpt-killed": Answer(
        "the steps since the last checkpoint",
        {
            "nothing": "Weights and moments were in the ranks' memory. What is on the disk is left.",
            "everything": "A checkpoint has its name when it is whole, so the last one is there.",
        },
    ),
    "gpt-museum": Answer(
        "none of them",
        {
            "A": "Its loss falls. Hashes of shards say more than the loss.",
            "B": "Its loss falls: an average over different replicas is a number, too.",
            "C": "Its loss falls, quicker even: the step is as many times too long as there are micro-batches.",
        },
    ),
}
