"""How people usually get the exercises of lab 04 wrong."""

from kit.grade.exercise import Mistake

SUM, GATHER = "dist.reduce_scatter(mine, list(g), group=group)", "dist.all_gather(list(new), w[r], group=group)"
PADDED = "torch.cat([{0}, {0}.new_zeros(-len({0}) % n)]).view(n, -1)"
MOMENTS, COUNT = 'state["m"], state["v"]', 'state["step"], lr'

GROUP_IGNORED = Mistake(
    "group ignored",
    "values",
    ("in a group of ranks 0, 1 and 2 of 4", "pass group=group on"),
    {", group=group": ""},
)

SHARDED_STEP = (
    Mistake(
        "sum instead of mean",
        "values",
        ("2 times the right one", "was not divided", "these weights do not show it"),
        {"mine /= n": "pass"},
    ),
    Mistake(
        "whole step after an all-reduce",
        "traffic",
        ("called all_reduce", "reduce_scatter", "in two halves"),
        {
            "torch.empty_like(g[r])": "gradients",
            SUM: "dist.all_reduce(mine)",
            "adamw_(w[r]": "adamw_(weights",
            GATHER: "return weights",
        },
    ),
    Mistake(
        "all-reduce where a shard is enough",
        "traffic",
        ("all_reduce and all_gather", "in two halves"),
        {SUM: "dist.all_reduce(g)\n    mine = g[r].clone()"},
    ),
    Mistake(
        "gathers gradients and steps everything",
        "cost",
        ("remembers", "Where every rank steps the whole vector", "line"),
        {
            "    if not state:": "    dist.all_gather(list(g), mine)\n"
            "    mine = g.flatten()[: len(weights)]\n"
            "    if not state:",
            "adamw_(w[r]": "adamw_(weights",
            GATHER: "return weights",
        },
    ),
    Mistake(
        "steps the next rank's weights",
        "values",
        ("wrong shard", "weights of rank 1's", "row r of n"),
        {"adamw_(w[r]": "adamw_(w[(r + 1) % n]", "w[r], group": "w[(r + 1) % n], group"},
    ),
    Mistake(
        "reduces to the neighbour",
        "values",
        ("wrong shard", "gradient of rank 1's shard"),
        {"list(g)": "list(g.roll(-1, 0))"},
    ),
    Mistake(
        "forgets its moments",
        "values",
        ("began without moments", "stays in `state`"),
        {"    if not state:": "    state = {}\n    if not state:"},
    ),
    Mistake(
        "keeps the count only",
        "values",
        ("began with new moments", "m and v stay"),
        {MOMENTS: "torch.zeros_like(mine), torch.zeros_like(mine)"},
    ),
    Mistake("never counts", "values", ("bias correction was that of step 1 again",), {COUNT: "1, lr"}),
    Mistake("counts from two", "values", ("steps count from 1",), {COUNT: 'state["step"] + 1, lr'}),
    Mistake(
        "never sums",
        "values",
        ("own gradient", "sum over the ranks is missing"),
        {SUM: "mine = g[r]", "mine /= n": "pass"},
    ),
    Mistake("padding left", "values", ("padding was not cut off", "leak into the weights"), {"[: len(weights)]": ""}),
    Mistake("never gathers", "values", ("its own shard", "have to be gathered"), {GATHER: "return w[r]"}),
    Mistake("steps a copy", "values", ("the weights never change",), {"adamw_(w[r]": "adamw_(w[r].clone()"}),
    Mistake(  # a whole vector for each rank
        "padded too far",
        "traffic",
        ("pad to the next multiple of n",),
        {
            "-len(weights) % n": "(n - 1) * len(weights)",
            "-len(gradients) % n": "(n - 1) * len(gradients)",
        },
    ),
    Mistake(
        "ranks without weights stay away",
        "values",
        ("nothing but padding",),
        {"    mine = ": "    if r * w.shape[1] >= len(weights):\n        return weights\n    mine = "},
    ),
    Mistake(
        "cuts without padding",
        "values",
        ("want equal shards", "pad with zeros to a multiple of n first"),
        {
            PADDED.format("weights"): "weights.chunk(n)",
            PADDED.format("gradients"): "gradients.chunk(n)",
            "torch.empty_like(w)": "torch.empty_like(weights)",
            "list(new)": "list(new.chunk(n))",
        },
    ),
    Mistake(
        "counts too late",
        "values",
        ("ZeroDivisionError", "count before you call adamw_"),
        {COUNT: 'state["step"] - 1, lr'},
    ),
    Mistake(
        "keeps an optimizer of old weights",
        "values",
        ("step 1 is right, step 2 is not", "goes on with the tensors"),
        body="""
            n, r = dist.get_world_size(), dist.get_rank()
            w = torch.cat([weights, weights.new_zeros(-len(weights) % n)]).view(n, -1)
            g = torch.cat([gradients, gradients.new_zeros(-len(gradients) % n)]).view(n, -1)
            mine = torch.nn.Parameter(w[r].clone())
            mine.grad = torch.empty_like(g[r])
            dist.reduce_scatter(mine.grad, list(g))
            mine.grad /= n
            state.setdefault("adam", torch.optim.AdamW([mine], lr=lr)).step()
            dist.all_gather(list(w), mine.detach())
            return w.flatten()[: len(weights)]
        """,
    ),
    GROUP_IGNORED,
    Mistake(  # the likeliest of all
        "no all-gather",
        "values",
        ("own shard is right, those of the others are not", "by an all-gather after the step"),
        {f"    {GATHER}\n": "", "new.flatten()": "w.flatten()"},
    ),
    Mistake(  # in a world of four it is right
        "divided by four",
        "values",
        ("0.5 times the right one", "the sum of 2 ranks was divided by 4", "these weights do not show it"),
        {"mine /= n": "mine /= 4"},
    ),
    Mistake(
        "gathers what it stepped against",
        "values",
        ("what was gathered is the mean gradient",),
        {"list(new), w[r]": "list(new), mine"},
    ),
    Mistake(
        "every n-th weight",
        "values",
        ("the weights are right, in another order",),
        {
            PADDED.format("weights"): PADDED.format("weights").replace("(n, -1)", "(-1, n).T.contiguous()"),
            PADDED.format("gradients"): PADDED.format("gradients").replace("(n, -1)", "(-1, n).T.contiguous()"),
        },
    ),
    Mistake(
        "moments of everything",
        "values",
        ("must match the size", "adamw_ takes four tensors of one length"),
        {"zeros_like(mine)": "zeros_like(weights)"},
    ),
    Mistake("a rate of its own", "values", ("0.1 times as far", "is `lr`"), {COUNT: 'state["step"], 1e-3'}),
    Mistake(
        "gathers on rank zero",
        "values",
        ("only rank 0 has all new weights", "by an all-gather"),
        {GATHER: "dist.gather(w[r], list(new) if r == 0 else None, dst=0)"},
    ),
    Mistake(
        "drops the remainder",
        "values",
        ("elements where", "shards of P // n leave a remainder"),
        {
            PADDED.format("weights"): "weights[: len(weights) // n * n].view(n, -1)",
            PADDED.format("gradients"): "gradients[: len(gradients) // n * n].view(n, -1)",
        },
    ),
    Mistake(
        "pads by the remainder",
        "values",
        ("is invalid for input of size", "-len(x) % n of them"),
        {"-len(weights) % n": "len(weights) % n"},
    ),
    Mistake(
        "hands in a tensor",
        "values",
        ("`input_list`", "list(x) has the rows of x"),
        {"list(g)": "g"},
    ),
)

SUM_ROWS = "dist.reduce_scatter(mine, list(rows), group=group)"
KEEP = "mine if kept is None else kept + mine"

SHARDED_GRADIENTS = (
    Mistake("sum of gradients", "values", ("was not divided by the world size",), {"mine /= n": "pass"}),
    Mistake("overwrites", "values", ("only the last micro-batch",), {KEEP: "mine"}),
    Mistake("keeps the first", "values", ("only the first micro-batch",), {"kept + mine": "kept"}),
    Mistake("divides what was kept", "values", ("divided by 2 again",), {"mine /= n": "pass", KEEP: f"({KEEP}) / n"}),
    Mistake("cuts without summing", "values", ("own gradients only",), {SUM_ROWS: "mine = rows[dist.get_rank()]"}),
    Mistake(
        "keeps everything",
        "values",
        ("where its shard of", "get rid of"),
        {"torch.empty_like(rows[0])": "gradient", SUM_ROWS: "dist.all_reduce(mine)"},
    ),
    Mistake(
        "all-reduces and cuts",
        "traffic",
        ("all_reduce", "whole sums are of no use"),
        {SUM_ROWS: "dist.all_reduce(rows)\n    mine = rows[dist.get_rank()]"},
    ),
    Mistake(
        "keeps the neighbour's",
        "values",
        ("wrong shard", "rank r keeps row r"),
        {"list(rows)": "list(rows.roll(1, 0))"},
    ),
    Mistake(
        "cut as tensor_split cuts",
        "values",
        ("shards are equal", "add zeros at the end"),
        {SUM_ROWS: "dist.all_reduce(gradient)\n    mine = gradient.tensor_split(n)[dist.get_rank()].clone()"},
    ),
    GROUP_IGNORED,
    Mistake(
        "uses what reduce_scatter returns",
        "values",
        ("uses what dist.reduce_scatter returns, which is None",),
        {SUM_ROWS: f"mine = {SUM_ROWS}"},
    ),
    Mistake(
        "keeps row zero",
        "values",
        ("every rank keeps row 0", "rank r keeps row r"),
        {SUM_ROWS: "dist.all_reduce(rows)\n    mine = rows[0]"},
    ),
    Mistake(
        "asks what was kept whether it is true",
        "values",
        ("Boolean value", "`kept is None` asks"),
        {KEEP: "kept + mine if kept else mine"},
    ),
)

VIEW = "    weight = whole[: shape.numel()].view(shape)"
TAKE = "    storage.resize_(0)\n\n    def gather"  # the memory, before the first gather()
GIVE, FREE = "storage.resize_(nbytes)", "    def free():\n        storage.resize_(0)"
FILL = "dist.all_gather(list(whole.view(n, -1)), shard, group=group)"

LENT_LAYER = (
    Mistake(
        "never frees",
        "cost",
        ("of whole weights at once", "resize_(0)", "line"),
        {"storage.resize_(0)": "pass", GIVE: "pass"},
    ),
    Mistake(
        "drops its own reference",
        "cost",
        ("of whole weights at once", "autograd keeps the tensor"),
        {
            TAKE: "    held = []\n\n    def gather",
            GIVE: "held[:] = [whole]",
            FREE: "    def free():\n        held.clear()",
        },
    ),
    Mistake(
        "begins with everything",
        "cost",
        ("there is none before the first gather()",),
        {TAKE: "    def gather"},
    ),
    Mistake(
        "frees after forward only",
        "cost",
        ("of whole weights at once",),
        {FREE: "    times = []\n\n    def free():\n        times.append(0) or len(times) > 1 or storage.resize_(0)"},
    ),
    Mistake(
        "frees when the next one comes",
        "cost",
        ("when everything was freed",),
        {
            GIVE: "last = lend_layer.__dict__.setdefault('last', [])\n"
            "        if last and last[0] is not storage:\n"
            "            last[0].resize_(0)\n"
            "        last[:] = [storage]\n"
            "        storage.resize_(nbytes)",
            FREE: "    def free():\n        pass",
        },
    ),
    Mistake("never gives memory back", "values", ("gather(): ", "first resize its storage"), {GIVE: "pass"}),
    Mistake(
        "gathers into another tensor",
        "values",
        ("the layer: ", "after gather() the weight has no memory"),
        {GIVE: "whole = shard.new_empty(n * len(shard))"},
    ),
    Mistake(
        "cuts without memory",
        "values",
        ("lend_layer: ", "make the weight before"),
        {VIEW: "    late = True", TAKE: f"    storage.resize_(0)\n{VIEW}\n\n    def gather"},
    ),
    Mistake(
        "gathers for forward only",
        "values",
        ("its gradients are not", "fill the same tensor again"),
        {
            TAKE: "    storage.resize_(0)\n    done = []\n\n    def gather",
            FILL: f"whole.zero_() if done else {FILL}\n        done.append(True)",
        },
    ),
    Mistake(
        "own shard first",
        "values",
        ("output is wrong", "rank 0's shard first"),
        {FILL: f"{FILL}\n        whole.copy_(whole.view(n, -1).roll(-dist.get_rank(), 0).flatten())"},
    ),
    Mistake(
        "sums what is mostly zero",
        "traffic",
        ("built-in all_reduce", "nothing is summed"),
        {FILL: "whole.zero_()\n        whole.view(n, -1)[dist.get_rank()] = shard\n        dist.all_reduce(whole)"},
    ),
    Mistake(
        "padding in the weight",
        "values",
        ("the padding is in the weight", "shape.numel()"),
        {"whole[: shape.numel()]": "whole"},
    ),
    Mistake(
        "copies into no memory",
        "values",
        ("killed by SIGSEGV", "gather() begins with `untyped_storage().resize_(nbytes)`"),
        body="""
            weight = shard.new_empty(shape)

            def gather():
                whole = shard.new_empty(dist.get_world_size() * len(shard))
                dist.all_gather(list(whole.view(-1, len(shard))), shard)
                weight.copy_(whole[: shape.numel()].view(shape))

            return weight, gather, lambda: weight.untyped_storage().resize_(0)
        """,
    ),
    Mistake(
        "weight without a shape",
        "values",
        ("rank 0 failed: ValueError", "the weight has shape (0,)", "keeps its shape"),
        body="""
            weight = shard.new_empty(0)

            def gather():
                whole = shard.new_empty(dist.get_world_size() * len(shard))
                dist.all_gather(list(whole.view(-1, len(shard))), shard)
                weight.data = whole[: shape.numel()].view(shape)

            return weight, gather, lambda: None
        """,
    ),
    Mistake(
        "returns nothing",
        "values",
        ("cannot unpack", "lend_layer returns (weight, gather, free)"),
        {"return weight, gather, free": "return"},
    ),
    GROUP_IGNORED,
    Mistake(
        "binds the weight later",
        "values",
        ("the weight is None", "what gather() binds to its name later, nobody else sees"),
        {
            VIEW: "    weight = None",
            FILL: f"nonlocal weight\n        {FILL}\n        weight = whole[: shape.numel()].view(shape)",
        },
    ),
    Mistake(
        "elements, not bytes",
        "values",
        ("resize_ counts bytes, not elements", "the weight wants"),
        {"storage.nbytes()": "whole.numel()"},
    ),
    Mistake(
        "swaps the data",
        "values",
        ("gave the weight another memory", "resize that, and fill it"),
        {
            VIEW: "    weight = shard.new_empty(shape)",
            FILL: f"{FILL}\n        weight.data = whole[: shape.numel()].view(shape)",
        },
    ),
    Mistake(
        "the weight is a copy",
        "values",
        ("the weight is as it was", "a copy does not"),
        {VIEW: f"{VIEW}.clone()"},
    ),
    Mistake(
        "gathers at once",
        "values",
        ("is not callable", "without brackets"),
        {"return weight, gather, free": "return weight, gather(), free()"},
    ),
    Mistake(
        "frees first",
        "values",
        ("after gather() the weight has no memory", "the order is (weight, gather, free)"),
        {"return weight, gather, free": "return weight, free, gather"},
    ),
    Mistake(
        "makes the tensor short",
        "values",
        ("makes room for 0", "`x.untyped_storage().resize_(0)` keeps its shape"),
        {TAKE: "    whole.resize_(0)\n\n    def gather"},
    ),
)
