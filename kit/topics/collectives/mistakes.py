"""How people usually get the exercises of labs 01a and 01b wrong."""

from kit.grade.exercise import Mistake

BY_HAND = ("send and receive only",)
WHOLE, PIECE = "whole.numel() * whole.element_size()", "piece.numel() * piece.element_size()"
SENDS_FIRST = {"sending = dist.isend(": "dist.send(", "sending.wait()": "pass"}
BUILT_IN_ALL_REDUCE = """
    y = x.clone()
    dist.all_reduce(y)
    return y
"""
BUILT_IN_BROADCAST = Mistake(
    "built-in broadcast",
    "traffic",
    ("built-in broadcast", *BY_HAND),
    body="""
        y = x.clone()
        dist.broadcast(y, source)
        return y
    """,
)

GROUP_IGNORED = Mistake(
    "group ignored",
    "values",
    ("right on 2 to 4", "in a group of ranks 0, 1 and 2 of 4", "pass group=group on"),
    {", group=group": "", "(group)": "()"},
)
WORLD_NUMBERS = Mistake(  # right in a group of the first ranks, which counts them as the world does
    "the world's numbers in a group",
    "values",
    ("in a group of ranks 1, 2 and 3 of 4", "group_dst= and group_src= count within the group"),
    {"group_dst=": "", "group_src=": ""},
)
NEVER_WAITED = {"sending.wait()": "pass"}

REDUCE_SCATTER_BANDWIDTH = (
    Mistake(
        "left as it was",
        "values",
        ("2 times too low", "the output was counted", "2**30"),
        {WHOLE: PIECE, "1e9": "2**30"},
    ),
    Mistake(
        "output only", "values", ("2 times too low", "S of a reduce-scatter is the whole that goes in"), {WHOLE: PIECE}
    ),
    Mistake("still GiB", "values", ("7 % too low", "10**9"), {"1e9": "2**30"}),
    Mistake(
        "output over time",
        "values",
        ("right on 2 ranks only", "S is the whole that goes in", "2/3"),
        {WHOLE: PIECE, " * (n - 1) / n": ""},
    ),
    Mistake("factor of an all-reduce", "values", ("twice too high", "all-reduce"), {"(n - 1)": "2 * (n - 1)"}),
    Mistake("algorithm bandwidth", "values", ("twice too high", "algbw"), {" * (n - 1) / n": ""}),
    Mistake("elements", "values", ("elements were counted", "4 bytes"), {" * whole.element_size()": ""}),
    Mistake("bytes per second", "values", ("GB/s are asked for",), {" / 1e9": ""}),
    Mistake("printed only", "values", ("returned nothing",), {"return size": "rate = size"}),
    Mistake(
        "asks the others how long",
        "traffic",
        ("all_reduce", "no communication is needed"),
        body="""
            n, longest = dist.get_world_size(), torch.tensor(seconds, dtype=torch.float64)
            dist.all_reduce(longest, dist.ReduceOp.MAX)
            return whole.numel() * whole.element_size() * (n - 1) / n / longest.item() / 1e9
        """,
    ),
    Mistake("four bytes always", "values", ("4 bytes were counted", "which has 8 here"), {"whole.element_size()": "4"}),
    Mistake(
        "the notebook's number of ranks",
        "values",
        ("taken for 4 ranks, and here are 2", "`ranks` is a variable of the notebook"),
        {"def bus": "ranks = 4\n\n\ndef bus", "dist.get_world_size()": "ranks"},
    ),
    Mistake("megabytes", "values", ("MB/s, and GB/s are asked for",), {"1e9": "1e6"}),
    Mistake("ten too many", "values", ("10 times too low", "10e9 is 10**10"), {"1e9": "10e9"}),
    Mistake(
        "share turned round", "values", ("(n - 1)/n of S crosses each link, here 1/2",), {"(n - 1) / n": "n / (n - 1)"}
    ),
    Mistake(
        "whole and piece",
        "values",
        ("1.5 times too high", "the piece were counted besides"),
        {WHOLE: f"{WHOLE} + {PIECE}"},
    ),
    Mistake("times the seconds", "values", ("bytes over seconds",), {"size / seconds": "size * seconds"}),
    Mistake(
        "rounded",
        "values",
        ("rounded", "all its digits"),
        {"return size / seconds * (n - 1) / n / 1e9": "return round(size / seconds * (n - 1) / n / 1e9, 1)"},
    ),
    Mistake(
        "as text",
        "values",
        ("a number is asked for", "not text"),
        {"return size / seconds * (n - 1) / n / 1e9": "return f'{size / seconds * (n - 1) / n / 1e9:.2f} GB/s'"},
    ),
    Mistake("bits", "values", ("bits were counted",), {"/ 1e9": "* 8 / 1e9"}),
)

BROADCAST = (
    Mistake(
        "always from rank zero",
        "values",
        ("wrong source", "rank 0"),
        {"    if r != source": "    source = 0\n    if r != source"},
    ),
    Mistake(
        "into the input",
        "values",
        ("changed its input in place",),
        {"torch.empty_like(x)": "x", "return inbox": "return x.clone()"},
    ),
    Mistake("source returns its own", "values", ("returned its input itself",), {"return x.clone()": "return x"}),
    Mistake("source returns nothing", "values", ("returned nothing",), {"return x.clone()": "return"}),
    Mistake(
        "nobody sends",
        "values",
        ("received nothing", "without a message"),
        body="return torch.zeros_like(x) if dist.get_rank() != source else x.clone()",
    ),
    Mistake("inbox forgotten", "values", ("returned what went in",), {"return inbox": "return x.clone()"}),
    BUILT_IN_BROADCAST,
    Mistake(
        "sent twice",
        "traffic",
        ("received 2 times", "after the first"),
        {
            "        return inbox": "        dist.recv(inbox, source)\n        return inbox",
            "dist.send(x, group_dst=other, group=group)": "dist.send(x, other)\n            dist.send(x, other)",
        },
    ),
    GROUP_IGNORED,
    WORLD_NUMBERS,
    Mistake(
        "everyone receives",
        "values",
        ("that is this rank itself", "The source has x already"),
        body="""
            inbox = torch.empty_like(x)
            if dist.get_rank() == source:
                for other in range(dist.get_world_size()):
                    if other != source:
                        dist.send(x, other)
            dist.recv(inbox, source)
            return inbox
        """,
    ),
    Mistake("sends to itself too", "values", ("The source has x already",), {"if other != source": "if True"}),
    Mistake("never waits", "values", ("never waited for the send", "may not have left"), {"dist.send(": "dist.isend("}),
    Mistake(
        "returns what recv returns",
        "values",
        ("uses what dist.recv returns", "the number of the rank that sent"),
        {"dist.recv(inbox, group_src=source, group=group)\n        return inbox": "return dist.recv(inbox, source)"},
    ),
)

RING_ALL_REDUCE = (
    Mistake(
        "whole tensor goes round",
        "traffic",
        ("bytes where", "the whole tensor goes round, not one chunk of it", "line"),
        body="""
            n, r = dist.get_world_size(), dist.get_rank()
            total, passing = x.clone(), x.clone()
            for _ in range(n - 1):
                inbox = torch.empty_like(x)
                sending = dist.isend(passing, (r + 1) % n)
                dist.recv(inbox, (r - 1) % n)
                sending.wait()
                total += inbox
                passing = inbox
            return total
        """,
    ),
    Mistake("one step each", "values", ("right on 2 ranks only", "lacks what"), {"range(n - 1)": "range(1)"}),
    Mistake(
        "one step too few", "values", ("lacks what",), {"range(n - 1):  # all-gather": "range(n - 2):  # all-gather"}
    ),
    Mistake(
        "hands on the wrong chunk",
        "values",
        ("lacks what",),
        {"(r + 1 - step) % n, (r - step) % n": "(r - step) % n, (r - step - 1) % n"},
    ),
    Mistake(
        "chunks turned",
        "values",
        ("wrong order of chunks",),
        {"torch.cat(chunks)": "torch.cat(chunks[1:] + chunks[:1])"},
    ),
    Mistake(
        "adds into the input", "values", ("changed its input in place",), {"x.clone().tensor_split": "x.tensor_split"}
    ),
    Mistake("averages", "values", ("not the mean",), {"torch.cat(chunks)": "torch.cat(chunks) / n"}),
    Mistake("own part twice", "values", ("counts rank", "twice"), {"torch.cat(chunks)": "torch.cat(chunks) + x"}),
    Mistake(
        "built-in all-reduce",
        "traffic",
        ("built-in all_reduce", *BY_HAND),
        body=BUILT_IN_ALL_REDUCE,
    ),
    Mistake(
        "everyone to everyone",
        "traffic",
        ("right neighbour only",),
        {
            "out, acc = (r - step) % n, (r - step - 1) % n": (
                "out, acc, right, left = (r + step + 1) % n, r, (r + step + 1) % n, (r - step - 1) % n"
            ),
            "out, new = (r + 1 - step) % n, (r - step) % n": (
                "out, new, right, left = r, (r - step - 1) % n, (r + step + 1) % n, (r - step - 1) % n"
            ),
        },
    ),
    Mistake(
        "everyone sends first",
        "values",
        ("start the send with dist.isend",),
        SENDS_FIRST,
    ),
    GROUP_IGNORED,
    WORLD_NUMBERS,
    Mistake(
        "left of rank zero",
        "values",
        ("recv from rank -1: there is no such rank", "(r - 1) % n"),
        {"(r + 1) % n, (r - 1) % n": "(r + 1) % n, r - 1"},
    ),
    Mistake(
        "right of the last",
        "values",
        ("send to rank 2: there is no such rank", "(r + 1) % n"),
        {"(r + 1) % n, (r - 1) % n": "r + 1, (r - 1) % n"},
    ),
    Mistake(
        "a line, not a ring",
        "values",
        ("there is no such rank", "counted round a ring"),
        {"(r + 1) % n, (r - 1) % n": "r + 1, r - 1"},
    ),
    Mistake("never waits", "values", ("never waited for the send", "must stay as it is"), NEVER_WAITED),
    Mistake(
        "cut with chunk",
        "values",
        ("IndexError", "x.tensor_split(n) makes n, some empty"),
        {"tensor_split(n)": "chunk(n)"},
    ),
    Mistake(
        "chunks of one size",
        "values",
        ("has the last 1 element of", "leave a remainder"),
        {"tensor_split(n)": "split(max(1, len(x) // n))"},
    ),
    Mistake(
        "remainder cut off",
        "values",
        ("lacks the last 1 element of", "leave a remainder"),
        {"x.clone().tensor_split(n)": "x.clone()[: len(x) // n * n].split(max(1, len(x) // n))"},
    ),
    Mistake(
        "one inbox for all chunks",
        "values",
        ("a message and its buffer must have the same size", "each inbox is made like the chunk that comes"),
        {
            "        inbox = torch.empty_like(chunks[acc])\n": "",
            "    for step in range(n - 1):  # reduce": "    inbox = torch.empty_like(chunks[0])\n"
            "    for step in range(n - 1):  # reduce",
        },
    ),
    Mistake(
        "added to another chunk",
        "values",
        ("right on 2 ranks only", "chunk 0 of 3 has rank", "to the chunk of the same number"),
        {"(r - step - 1) % n\n": "(r - step + 1) % n\n"},
    ),
    Mistake(
        "round to the left",
        "values",
        ("right on 2 ranks only", "in this ring it sends to its right neighbour only"),
        {"right, left = (r + 1) % n, (r - 1) % n": "left, right = (r + 1) % n, (r - 1) % n"},
    ),
    Mistake(
        "both to and from the right",
        "values",
        ("right on 2 ranks only", "rank 0 receives from rank 1, which sends to rank 2", "receive from the left"),
        {"(r - 1) % n": "(r + 1) % n"},
    ),
    Mistake(
        "waits for its send, receives from the right",
        "values",
        ("right on 2 ranks only", "rank 0 receives from rank 1, which sends to rank 2", "receive from the left"),
        {
            "(r - 1) % n": "(r + 1) % n",
            "dist.recv(inbox, group_src=left, group=group)": "coming = dist.irecv(inbox, group_src=left, group=group)",
            "        sending.wait()\n        chunks": "        sending.wait()\n        coming.wait()\n        chunks",
        },
    ),
    Mistake("the input itself", "values", ("returned what went in",), {"torch.cat(chunks)": "x"}),
    Mistake("a list of chunks", "values", ("a list of 2 tensors", "torch.cat joins"), {"torch.cat(chunks)": "chunks"}),
)

ALL_REDUCE_FROM_HALVES = (
    Mistake(
        "one all-reduce",
        "traffic",
        ("all_reduce", "reduce_scatter and all_gather are asked for"),
        body=BUILT_IN_ALL_REDUCE,
    ),
    Mistake("padding left", "values", ("padding was not cut off",), {"return padded[: len(x)]": "return padded"}),
    Mistake("averaged", "values", ("not the mean",), {"return padded[: len(x)]": "return padded[: len(x)] / n"}),
    Mistake(
        "gathered backwards",
        "values",
        ("wrong order of chunks",),
        {"return padded[: len(x)]": "return torch.cat(chunks[::-1])[: len(x)]"},
    ),
    Mistake(
        "gathers its input",
        "values",
        ("lacks what",),
        {
            "torch.empty_like(chunks[0])": "torch.empty_like(chunks[0])\n    own = chunks[dist.get_rank()].clone()",
            "dist.all_gather(chunks, mine": "dist.all_gather(chunks, own",
        },
    ),
    Mistake("padded too far", "traffic", ("pad to the next multiple of n",), {"-(-len(x) // n)": "len(x)"}),
    GROUP_IGNORED,
    Mistake(
        "no padding",
        "values",
        ("both must be equal", "Copy x into zeros of ceil(C/n) n elements"),
        {"n * size": "len(x)"},
    ),
    Mistake(
        "cut down, not padded",
        "values",
        ("lacks the last 1 element of", "add zeros to x"),
        {"-(-len(x) // n)": "len(x) // n", "padded[: len(x)] = x": "padded[:] = x[: n * size]"},
    ),
    Mistake(
        "one tensor n times",
        "values",
        ("has chunk 1 in all 2 places", "a list of one tensor"),
        {
            "    dist.all_gather(chunks, mine": (
                "    chunks = [torch.empty_like(mine)] * n\n    dist.all_gather(chunks, mine"
            ),
            "return padded[: len(x)]": "return torch.cat(chunks)[: len(x)]",
        },
    ),
    Mistake(
        "list and tensor changed about",
        "values",
        ("takes one tensor and fills a list",),
        {"all_gather(chunks, mine": "all_gather(mine, chunks"},
    ),
    Mistake(
        "uses what reduce_scatter returns",
        "values",
        ("uses what dist.reduce_scatter returns, which is None",),
        {"dist.reduce_scatter(mine": "mine = dist.reduce_scatter(mine"},
    ),
    Mistake(
        "never waits",
        "values",
        ("never waited for the reduce_scatter",),
        {"reduce_scatter(mine, chunks, group=group)": "reduce_scatter(mine, chunks, async_op=True)"},
    ),
)

TREE_BROADCAST = (
    Mistake(
        "source tells everyone",
        "cost",
        ("3 rounds where 2 are enough", "doubles"),
        {
            "place < distance and place + distance < n": "place == 0",
            "distance <= place < 2 * distance": "place == distance",
            "distance *= 2": "distance += 1",
        },
    ),
    Mistake(
        "hand to hand",
        "cost",
        ("3 rounds where 2 are enough", "doubles"),
        {
            "place < distance and place + distance < n": "place == distance - 1",
            "(r + distance) % n": "(r + 1) % n",
            "distance <= place < 2 * distance": "place == distance",
            "(r - distance) % n": "(r - 1) % n",
            "distance *= 2": "distance += 1",
        },
    ),
    Mistake("tree from rank zero", "values", ("wrong source", "rank 0"), {"(r - source) % n": "r"}),
    Mistake(
        "powers of two only", "values", ("right on 2 ranks only", "no power of two"), {" and place + distance < n": ""}
    ),
    Mistake(
        "one round only",
        "values",
        ("right on 2 ranks only", "rank 1 received nothing"),
        {"while distance < n": "if distance < n"},
    ),
    BUILT_IN_BROADCAST,
    GROUP_IGNORED,
    WORLD_NUMBERS,
    Mistake(  # as a heap counts its children; up to six ranks that is quick enough
        "a heap",
        "cost",
        ("4 rounds where 3 are enough", "7 ranks"),
        body="""
            n, r = dist.get_world_size(), dist.get_rank()
            place, have = (r - source) % n, x.clone()
            if place > 0:
                dist.recv(have, ((place - 1) // 2 + source) % n)
            for child in (2 * place + 1, 2 * place + 2):
                if child < n:
                    dist.send(have, (child + source) % n)
            return have
        """,
    ),
    Mistake(
        "places taken for ranks",
        "values",
        ("that is this rank itself", "place p is rank (p + source) % n"),
        {"(r + distance) % n": "(place + distance) % n", "(r - distance) % n": "(place - distance) % n"},
    ),
    Mistake(
        "everyone else receives at once",
        "values",
        ("waits in recv", "whoever is further away waits for a later round"),
        {"elif distance <= place < 2 * distance:": "else:"},
    ),
    Mistake(
        "past the last rank",
        "values",
        ("send to rank 2: there is no such rank", "modulo n"),
        {"(r + distance) % n": "r + distance"},
    ),
    Mistake(
        "before the first rank",
        "values",
        ("recv from rank -1: there is no such rank", "modulo n"),
        {"(r - distance) % n": "r - distance"},
    ),
    Mistake("never waits", "values", ("never waited for the send",), {"dist.send(": "dist.isend("}),
)

REPAIR_DEADLOCK = (
    Mistake(
        "still dead-locked",
        "values",
        ("All ranks send first", "dist.isend"),
        SENDS_FIRST,
    ),
    Mistake(
        "shifts left", "values", ("wrong direction",), {"(r + 1) % n": "(r - 1) % n", "(r - 1) % n": "(r + 1) % n"}
    ),
    Mistake(
        "swaps in pairs",
        "values",
        ("right on 2 ranks only",),
        {
            "    inbox = ": "    if r ^ 1 >= n:\n        return x.clone()\n    inbox = ",
            "(r + 1) % n": "r ^ 1",
            "(r - 1) % n": "r ^ 1",
        },
    ),
    Mistake("sends and forgets", "values", ("returned what went in",), {"return inbox": "return x.clone()"}),
    Mistake(
        "gathers everything",
        "traffic",
        ("built-in all_gather", *BY_HAND),
        body="""
            everything = [torch.empty_like(x) for _ in range(dist.get_world_size())]
            dist.all_gather(everything, x)
            return everything[dist.get_rank() - 1].clone()
        """,
    ),
    Mistake(
        "sends twice",
        "traffic",
        ("sent 2 messages where 1 is enough",),
        {
            "    sending = ": "    again = dist.isend(x, (r + 1) % n)\n    sending = ",
            "    sending.wait()": "    again.wait()\n    dist.recv(inbox, (r - 1) % n)\n    sending.wait()",
        },
    ),
    GROUP_IGNORED,
    WORLD_NUMBERS,
    Mistake(
        "all receive first",
        "values",
        ("All ranks receive first", "before the recv"),
        {
            "sending = dist.isend(x, group_dst=(r + 1) % n, group=group)": "pass",
            "sending.wait()": "dist.send(x, (r + 1) % n)",
        },
    ),
    Mistake(
        "the last has no right",
        "values",
        ("rank 0 received nothing",),
        body="""
            n, r = dist.get_world_size(), dist.get_rank()
            inbox = torch.zeros_like(x)
            if r < n - 1:
                dist.send(x, r + 1)
            if r > 0:
                dist.recv(inbox, r - 1)
            return inbox
        """,
    ),
    Mistake("rolls its elements", "values", ("received nothing",), body="return x.roll(1)"),
    Mistake("the input itself", "values", ("returned what went in",), {"return inbox": "return x"}),
    Mistake("hands on its inbox", "values", ("sent its inbox", "x is to go"), {"isend(x, ": "isend(inbox, "}),
    Mistake(
        "left of rank zero",
        "values",
        ("recv from rank -1: there is no such rank", "(r - 1) % n"),
        {"(r - 1) % n": "r - 1"},
    ),
    Mistake(
        "a line, not a ring",
        "values",
        ("there is no such rank", "counted round a ring"),
        {"(r + 1) % n": "r + 1", "(r - 1) % n": "r - 1"},
    ),
    Mistake("never waits", "values", ("never waited for the send", "must stay as it is"), NEVER_WAITED),
)
