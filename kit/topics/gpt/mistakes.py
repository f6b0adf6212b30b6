"""How people usually get the exercises of lab 10 wrong."""

from dataclasses import replace

from kit.grade.exercise import Mistake

GROUP_IGNORED = Mistake(
    "group ignored",
    "values",
    ("in a group of ranks 0, 1 and 2 of 4", "pass group=group on"),
    {", group=group": "", "get_world_size(group)": "get_world_size()"},
)
LOSS, MEAN = "(loss / len(batches)).backward()", "weight.grad /= dist.get_world_size(group)"
SUM = "dist.all_reduce(weight.grad, group=group)"

ACCUMULATED_GRADIENT = (
    Mistake("loss not divided", "values", ("backward()` adds up", "was not divided by"), {LOSS: "loss.backward()"}),
    Mistake("sum over ranks", "values", ("2 times the right", "was not divided"), {MEAN: "pass"}),
    Mistake(
        "divides nothing",
        "values",
        ("divided neither by",),
        {LOSS: "loss.backward()", MEAN: "pass"},
    ),
    Mistake("divides twice", "values", ("micro-batches twice",), {MEAN: f"{MEAN} * len(batches)"}),
    Mistake("never averages", "values", ("replicas would part",), {SUM: "pass", MEAN: "pass"}),
    Mistake(
        "zeroes in the loop",
        "values",
        ("of the last micro-batch", "set the gradient to nothing"),
        {LOSS: f"weight.grad = None\n        {LOSS}"},
    ),
    Mistake(
        "sums after each micro-batch",
        "traffic",
        ("once is enough", "no_sync"),
        body="""
            total = torch.zeros_like(weight)
            for x, y in batches:
                weight.grad = None
                ((x @ weight - y).square().mean() / len(batches)).backward()
                dist.all_reduce(weight.grad, group=group)
                total += weight.grad
            weight.grad = total / dist.get_world_size(group)
        """,
    ),
    GROUP_IGNORED,
)

TOTAL = "torch.stack([(losses * tokens).sum(), tokens.sum().float()])"
RATIO = "total[0] / total[1]"
VALIDATION_LOSS = (
    Mistake(
        "mean of the ranks' means",
        "values",
        ("the ranks' means were averaged", "sums and counts travel"),
        {TOTAL: "(losses * tokens).sum() / tokens.sum()", RATIO: "total / dist.get_world_size(group)"},
    ),
    Mistake(
        "every batch alike",
        "values",
        ("weigh each loss by its tokens",),
        {"(losses * tokens).sum()": "losses.sum()", "tokens.sum().float()": "torch.tensor(float(len(losses)))"},
    ),
    Mistake(
        "own tokens alone", "values", ("the mean of its own tokens",), {"dist.all_reduce(total, group=group)": "pass"}
    ),
    Mistake("sum, not mean", "values", ("still to be divided",), {RATIO: "total[0]"}),
    Mistake(
        "divided by the ranks as well",
        "values",
        ("the number of all tokens is enough",),
        {RATIO: f"{RATIO} / dist.get_world_size(group)"},
    ),
    Mistake(
        "sends every loss",
        "traffic",
        ("two numbers", "8 bytes are enough"),
        body="""
            n, r = dist.get_world_size(group), dist.get_rank(group)
            table = torch.zeros(n, 2, 64)
            table[r, 0, : len(losses)], table[r, 1, : len(tokens)] = losses, tokens.float()
            dist.all_reduce(table, group=group)
            return (table[:, 0] * table[:, 1]).sum() / table[:, 1].sum()
        """,
    ),
    replace(GROUP_IGNORED, edits={", group=group": ""}),
)

HASHES = "int(one, 16) for one in hashes(tensors).values()"
FIRST = 'return next((name for name, alike in zip(tensors, same, strict=True) if not alike), "")'
FIRST_PARTED = (
    Mistake(
        "compares sums",
        "values",
        ("do not know of order",),
        {HASHES: "x.double().sum() for x in tensors.values()"},
    ),
    Mistake(
        "names the last",
        "values",
        ("stop at the first",),
        {FIRST: 'return ([name for name, alike in zip(tensors, same, strict=True) if not alike] or [""])[-1]'},
    ),
    Mistake(
        "compares itself with rank 0",
        "values",
        ("the ranks do not agree", "the hashes of all"),
        {"(table == table[0]).all(0)": "(table[dist.get_rank(group)] == table[0])"},
    ),
    Mistake(
        "sends the tensors",
        "traffic",
        ("a hash",),
        body="""
            for name, x in tensors.items():
                every = [torch.empty_like(x) for _ in range(dist.get_world_size(group))]
                dist.all_gather(every, x, group=group)
                if not all(torch.equal(every[0], one) for one in every):
                    return name
            return ""
        """,
    ),
    Mistake(
        "a collective for each tensor",
        "traffic",
        ("one collective", "latency"),
        body="""
            for name, x in tensors.items():
                own = torch.tensor([int(hashes({name: x})[name], 16)])
                every = [torch.empty_like(own) for _ in range(dist.get_world_size(group))]
                dist.all_gather(every, own, group=group)
                if len({int(one) for one in every}) > 1:
                    return name
            return ""
        """,
    ),
    Mistake(
        "looks at nobody",
        "values",
        ("it was not seen", "from every rank"),
        {"dist.all_gather(every, own, group=group)": "every = [own for _ in every]"},
    ),
    GROUP_IGNORED,
)

NEW_SHARD = (
    Mistake(
        "keeps the old shard",
        "values",
        ("of the 4 that were saved", "cut the same"),
        body="return read(r)",
    ),
    Mistake(
        "no padding",
        "values",
        ("zeros behind the last element",),
        {"torch.zeros(now)": "torch.zeros(end - first)"},
    ),
    Mistake(
        "reads everything",
        "cost",
        ("nothing of its own is in there", "do not fit"),
        body="""
            now = -(-P // n)
            whole = torch.cat([read(k) for k in range(old)])[:P]
            return torch.cat([whole, torch.zeros(n * now - P)])[r * now : (r + 1) * now]
        """,
    ),
    Mistake(
        "forgets the last part",
        "values",
        ("another number at place",),
        {"-(-end // was)": "end // was"},
    ),
    Mistake(
        "whole old shards",
        "values",
        ("only what lies between the new one's ends",),
        body="""
            was, now = -(-P // old), -(-P // n)
            first, end = min(r * now, P), min((r + 1) * now, P)
            if first == end:
                return torch.zeros(now)
            return torch.cat([read(k) for k in range(first // was, -(-end // was))])
        """,
    ),
)
