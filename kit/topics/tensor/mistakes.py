"""How people usually get the exercises of lab 05 wrong."""

from kit.grade.exercise import Mistake

IN_A_GROUP = ("in a group of ranks 0, 1 and 2 of 4", "pass group=group on")
GROUP_IGNORED = Mistake("group ignored", "values", IN_A_GROUP, {", group=group": ""})
SUM_DX, SUM_Y = "dist.all_reduce(dx, group=group)", "dist.all_reduce(y, group=group)"
DW, DB = "dw = dy.T @ x", "db = dy.sum(0)"

COLUMN = (
    Mistake("no sum in backward", "values", ("dx comes from this rank's outputs only",), {SUM_DX: "pass"}),
    Mistake(
        "sums dy",
        "values",
        ("dy was summed over the ranks", "what is summed is dx"),
        {"dx = dy @ w": "dist.all_reduce(dy, group=group)\n    dx = dy @ w", f"    {SUM_DX}\n": ""},
    ),
    Mistake(
        "averages, as in data parallel",
        "values",
        ("dx was divided by 2", "parts of one layer"),
        {SUM_DX: f"{SUM_DX}\n    dx /= dist.get_world_size(group)"},
    ),
    Mistake(
        "sums the weight's gradient",
        "values",
        ("dw was summed over the ranks", "no other rank has a copy"),
        {f"{DW}  # (F/n, C)": f"{DW}\n    dist.all_reduce(dw, group=group)"},
    ),
    Mistake(
        "sums y",
        "values",
        ("y was summed over the ranks", "this rank's outputs"),
        {"y = F.linear(x, w, b)": f"y = F.linear(x, w, b)\n    {SUM_Y}"},
    ),
    Mistake("forgets the bias", "values", ("y lacks the bias",), {"F.linear(x, w, b)": "F.linear(x, w)"}),
    Mistake(
        "gathers y",
        "values",
        ("rank 0's y has shape", "gathered or never cut"),
        {
            "y = F.linear(x, w, b)": "y = F.linear(x, w, b)\n"
            "    parts = [torch.empty_like(y) for _ in range(dist.get_world_size(group))]\n"
            "    dist.all_gather(parts, y, group=group)\n"
            "    y = torch.cat(parts, 1)"
        },
    ),
    Mistake("transposed gradient", "values", ("dw has shape", "transposed"), {DW: "dw = x.T @ dy"}),
    Mistake(
        "mean over the samples",
        "values",
        ("db was divided by the 2 samples", "nothing is averaged"),
        {DB: "db = dy.mean(0)"},
    ),
    Mistake(
        "multiplies by the transpose",
        "values",
        ("shapes cannot be multiplied", "w (out, in): dx = dy @ w"),
        {"dx = dy @ w": "dx = dy @ w.T"},
    ),
    Mistake(
        "takes what all_reduce returns",
        "values",
        ("dx is None", "works in place"),
        {"dx = dy @ w": "dx = dist.all_reduce(dy @ w, group=group)", f"    {SUM_DX}\n": ""},
    ),
    Mistake("dw in dx's place", "values", ("returned dw where dx is asked for",), {"y, dx, dw, db": "y, dw, dx, db"}),
    Mistake("sums over the features", "values", ("summed over the features", "dy.sum(0)"), {DB: "db = dy.sum(1)"}),
    Mistake(
        "sums the products, then the bias",
        "values",
        ("summed over the ranks before the bias",),
        {"y = F.linear(x, w, b)": f"y = F.linear(x, w)\n    {SUM_Y}\n    y = y + b"},
    ),
    Mistake(
        "sums on rank zero",
        "values",
        ("rank 1's dx", "dist.reduce leaves the sum on one rank"),
        {SUM_DX: "dist.reduce(dx, 0, group=group)"},
    ),
    Mistake(
        "fetches the whole layer",
        "traffic",
        ("all_gather", "one sum in backward"),
        {
            "dx = dy @ w": "n = dist.get_world_size(group)\n"
            "    ws, dys = [torch.empty_like(w) for _ in range(n)], [torch.empty_like(dy) for _ in range(n)]\n"
            "    dist.all_gather(ws, w, group=group)\n"
            "    dist.all_gather(dys, dy, group=group)\n"
            "    dx = torch.cat(dys, 1) @ torch.cat(ws)",
            SUM_DX: "pass",
        },
    ),
    Mistake("returns y alone", "values", ("return y, dx, dw, db", "a Tensor"), {"return y, dx, dw, db": "return y"}),
    GROUP_IGNORED,
)

ROW = (
    Mistake(
        "bias on every rank",
        "values",
        ("y has the bias 2 times", "add it once, after"),
        {"F.linear(x, w)": "F.linear(x, w, b)", "    y = y + b  # (B, C)\n": ""},
    ),
    Mistake("forgets the bias", "values", ("y lacks the bias",), {"y = y + b": "y = y"}),
    Mistake(
        "bias on rank zero, after the sum",
        "values",
        ("each rank adds the bias but one", "added once to the whole sum"),
        {"y = y + b": "y = y + b if dist.get_rank(group) == 0 else y"},
    ),
    Mistake("no sum in forward", "values", ("y is this rank's term only", "summed over the ranks"), {SUM_Y: "pass"}),
    Mistake(
        "averages the terms",
        "values",
        ("y was divided by 2", "summed, not averaged"),
        {SUM_Y: f"{SUM_Y}\n    y /= dist.get_world_size(group)"},
    ),
    Mistake(
        "sums dx, as a column linear does",
        "values",
        ("dx was summed over the ranks", "no other rank has a copy"),
        {"dx = dy @ w": f"dx = dy @ w\n    {SUM_DX}"},
    ),
    Mistake(
        "sums dy",
        "values",
        ("dx is 2 times the right one", "nothing is to be summed in backward"),
        {"dx = dy @ w": "dy = dy.clone()\n    dist.all_reduce(dy, group=group)\n    dx = dy @ w"},
    ),
    Mistake(
        "sums on rank zero",
        "values",
        ("rank 1's y is wrong, rank 0's is right",),
        {SUM_Y: "dist.reduce(y, group_dst=0, group=group)"},
    ),
    Mistake(
        "sums the bias's gradient",
        "values",
        ("db is 2 times the right one", "each has the whole gradient already"),
        {f"{DB}  # (C,)": f"{DB}\n    dist.all_reduce(db, group=group)"},
    ),
    Mistake(
        "gathers the inputs",
        "traffic",
        ("all_gather", "one sum in forward"),
        {
            "y = F.linear(x, w)": "n = dist.get_world_size(group)\n"
            "    xs, ws = [torch.empty_like(x) for _ in range(n)], [torch.empty_like(w) for _ in range(n)]\n"
            "    dist.all_gather(xs, x, group=group)\n"
            "    dist.all_gather(ws, w, group=group)\n"
            "    y = torch.cat(xs, 1) @ torch.cat(ws, 1).T",
            SUM_Y: "pass",
        },
    ),
    Mistake(
        "reduce and broadcast",
        "traffic",
        ("reduce and broadcast", "one sum in forward"),
        {SUM_Y: "dist.reduce(y, group_dst=0, group=group)\n    dist.broadcast(y, group_src=0, group=group)"},
    ),
    GROUP_IGNORED,
)

GROUP_ARGUMENT = Mistake("group ignored", "values", IN_A_GROUP, {", group)": ")"})
ENTER, LEAVE = "    x = copy_in(x, group)  # (B, C)\n", "sum_out(F.linear(h, down), group)"

PARALLEL_MLP = (
    Mistake("enters without copy_in", "values", ("dx comes from this rank's features only",), {ENTER: ""}),
    Mistake("leaves without a sum", "values", ("y is this rank's term only",), {LEAVE: "F.linear(h, down)"}),
    Mistake(
        "bias before the sum",
        "values",
        ("y has the bias 2 times", "add it after sum_out"),
        {"F.linear(h, down)": "F.linear(h, down, down_bias)", "return y + down_bias": "return y"},
    ),
    Mistake("no first bias", "values", ("lacks the bias of the first layer",), {"(x, up, up_bias)": "(x, up)"}),
    Mistake(
        "averages the terms",
        "values",
        ("y was divided by 2",),
        {LEAVE: f"{LEAVE} / dist.get_world_size(group)"},
    ),
    Mistake(
        "copies between the layers",
        "values",
        ("copy_in stands between the layers",),
        {ENTER: "", "F.linear(h, down)": "F.linear(copy_in(h, group), down)"},
    ),
    Mistake("no second bias", "values", ("y lacks the bias of the second layer",), {"y + down_bias": "y"}),
    Mistake(
        "the two swapped",
        "values",
        ("copy_in and sum_out are swapped",),
        {"copy_in(x, group)": "sum_out(x, group)", LEAVE: "copy_in(F.linear(h, down), group)"},
    ),
    Mistake(
        "a sum on the way in",
        "values",
        ("x was summed on the way in",),
        {"copy_in(x, group)": "sum_out(x, group)"},
    ),
    Mistake(
        "a sum behind each layer",
        "values",
        ("added up after GELU", "each rank keeps its own"),
        {"F.gelu(F.linear(x, up, up_bias))": "sum_out(F.gelu(F.linear(x, up, up_bias)), group)"},
    ),
    Mistake(
        "copies behind the sum too",
        "values",
        ("dx is 2 times the right one", "summed twice"),
        {LEAVE: f"copy_in({LEAVE}, group)"},
    ),
    Mistake(
        "gathers the features",
        "traffic",
        ("all_gather", "one in forward, behind the second layer"),
        {
            LEAVE: "sum_out(F.linear(h, down), group)\n"
            "    parts = [torch.empty_like(h) for _ in range(dist.get_world_size(group))]\n"
            "    dist.all_gather(parts, h.detach().contiguous(), group=group)"
        },
    ),
    Mistake(
        "cuts autograd off",
        "values",
        ("y has no way back to the inputs",),
        {
            LEAVE: "sum_out(F.linear(h, down), group).detach()",
            "return y + down_bias": "return (y + down_bias).detach()",
        },
    ),
    GROUP_ARGUMENT,
)

THIRDS = "(F.linear(x, third.chunk(n)[r]) for third in qkv.chunk(3))"
OUT = "out.chunk(n, 1)[r]"

SPLIT_HEADS = (
    Mistake(
        "qkv as one block",
        "values",
        ("qkv was cut as one block", "of each"),
        {THIRDS: "F.linear(x, qkv.chunk(n)[r]).chunk(3, -1)"},
    ),
    Mistake(
        "out cut by rows",
        "values",
        ("shapes cannot be multiplied", "out.chunk(n, 1)"),
        {OUT: "out.chunk(n)[r]"},
    ),
    Mistake(
        "out cut by rows and turned",
        "values",
        ("out was cut by rows", "dimension 1"),
        {OUT: "out.chunk(n)[r].T"},
    ),
    Mistake("no sum", "values", ("this rank's heads only", "sum_out"), {"sum_out(": "(lambda y, group: y)("}),
    Mistake(
        "no copy",
        "values",
        ("dx comes from this rank's heads only",),
        {"    x = copy_in(x, group)  # (B, T, C)\n": ""},
    ),
    Mistake(
        "heads not in front",
        "values",
        ("heads look at each other", ".transpose(1, 2)"),
        {".transpose(1, 2) for y": " for y", "y.transpose(1, 2).flatten(2)": "y.flatten(2)"},
    ),
    Mistake(
        "reshapes into heads",
        "values",
        ("positions and channels were mixed",),
        {"y.unflatten(-1, (heads // n, -1)).transpose(1, 2)": "y.reshape(len(x), heads // n, x.shape[1], -1)"},
    ),
    Mistake(
        "heads stay in front",
        "values",
        ("heads were not moved back",),
        {"y.transpose(1, 2).flatten(2)": "y.reshape(*x.shape[:2], -1)"},
    ),
    Mistake("k and v exchanged", "values", ("two of q, k and v are exchanged",), {"q, k, v = (F": "q, v, k = (F"}),
    Mistake("looks ahead", "values", ("nothing hides what comes later",), {", is_causal=True": ""}),
    Mistake(
        "every n-th head",
        "values",
        ("rank r has every n-th head",),
        {
            "third.chunk(n)[r]": "third.unflatten(0, (heads, -1))[r::n].flatten(0, 1)",
            OUT: "out.unflatten(1, (heads, -1))[:, r::n].flatten(1)",
        },
    ),
    Mistake(
        "the heads of another rank",
        "values",
        ("the ranks have each other's heads",),
        {"    x = copy_in(": "    r = n - 1 - r\n    x = copy_in("},
    ),
    Mistake(
        "all heads, and a sum",
        "values",
        ("y is 2 times the right one", "every rank computed all heads"),
        {"third.chunk(n)[r]": "third", "heads // n": "heads", OUT: "out"},
    ),
    Mistake(
        "as many heads as before",
        "values",
        ("heads were cut into 2 pieces", "heads / n of them"),
        {"heads // n": "heads"},
    ),
    GROUP_ARGUMENT,
)

SEED = "seed + 1000 * (1 + dist.get_rank(group)) if cut else seed"
GENERATOR = "torch.Generator(x.device).manual_seed(mine)"

DROPOUT_SEEDS = (
    Mistake("shared seed", "values", ("the seed is shared", "the rank is in the seed"), {SEED: "seed"}),
    Mistake(
        "own seed everywhere",
        "values",
        ("different elements of the same x", "with cut=False"),
        {SEED: "seed + dist.get_rank(group)"},
    ),
    Mistake(
        "the wrong way round",
        "values",
        ("different elements of the same x",),
        {"if cut else": "if not cut else"},
    ),
    Mistake("no seed", "values", ("with another seed: the seed has to count",), {".manual_seed(mine)": ""}),
    Mistake(
        "seed times rank",
        "values",
        ("rank 0 dropped the same elements of its own part with another seed",),
        {SEED: "seed * dist.get_rank(group) if cut else seed"},
    ),
    Mistake(
        "as torch draws",
        "values",
        ("when it was called again with the same seed",),
        body="return F.dropout(x, p)",
    ),
    Mistake(
        "seeds torch itself",
        "values",
        ("torch's own generator is not where it was",),
        {GENERATOR: "torch.manual_seed(mine)"},
    ),
    Mistake("not divided", "values", ("what stays is as it was", "so that the mean stays"), {" / (1 - p)": ""}),
    Mistake("divided by p", "values", ("divided by p",), {"/ (1 - p)": "/ p"}),
    Mistake("keeps p", "values", ("dropped 7", "stays where rand >= p"), {">= p": "< p"}),
    Mistake(
        "sends the mask",
        "traffic",
        ("broadcast", "no communication is needed"),
        {
            " >= p  # shape of x": " >= p\n    if not cut:\n        dist.broadcast(kept, group_src=0, group=group)",
        },
    ),
)

GATHER, SCATTER = "gather_in(x, 0, group)", "scatter_out(F.linear(h, down), 0, group)"

SEQUENCE_MLP = (
    Mistake(
        "norm of all positions",
        "values",
        ("normalised all 4 positions", "before gather_in"),
        {
            "    x = F.layer_norm(x, gain.shape, gain)  # (T/n, C)\n": "",
            GATHER: f"F.layer_norm({GATHER}, gain.shape, gain)",
        },
    ),
    Mistake(
        "gain summed on the way in",
        "values",
        ("the gain became 2 times as large", "copy_in, not by sum_out"),
        {"gain = copy_in(gain, group)": "gain = sum_out(gain, group)"},
    ),
    Mistake(
        "scattered in the wrong dimension",
        "values",
        ("dimension 1", "Positions are dimension 0"),
        {SCATTER: "scatter_out(F.linear(h, down), 1, group)"},
    ),
    Mistake(
        "gain's gradient not summed",
        "values",
        ("dgain comes from this rank's positions only", "copy_in"),
        {"    gain = copy_in(gain, group)  # (C,)\n": ""},
    ),
    Mistake(
        "keeps all positions",
        "values",
        ("rank 0's y has shape", "never cut"),
        {SCATTER: "sum_out(F.linear(h, down), group)"},
    ),
    Mistake(
        "all-reduce where a reduce-scatter is enough",
        "traffic",
        ("a reduce-scatter is enough", "half the bytes each way"),
        {
            SCATTER: "copy_in(sum_out(F.linear(h, down), group), group)"
            ".chunk(dist.get_world_size(group))[dist.get_rank(group)]"
        },
    ),
    Mistake(
        "all-reduce, cut, and no way back",
        "values",
        ("dx is wrong",),
        {SCATTER: "sum_out(F.linear(h, down), group).chunk(dist.get_world_size(group))[dist.get_rank(group)]"},
    ),
    Mistake(
        "gathered in the wrong dimension",
        "values",
        ("shapes cannot be multiplied", "dimension 0"),
        {GATHER: "gather_in(x, 1, group)"},
    ),
    Mistake(
        "sums x's gradient twice",
        "values",
        ("dx is 2 times the right one", "gather_in sums the gradients"),
        {GATHER: "copy_in(gather_in(x, 0, group), group)"},
    ),
    Mistake(
        "does not sum",
        "values",
        ("this rank's term", "scatter_out sums them"),
        {SCATTER: "F.linear(h, down).chunk(dist.get_world_size(group))[dist.get_rank(group)]"},
    ),
    GROUP_ARGUMENT,
)
