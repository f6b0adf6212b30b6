"""How people usually get the exercises of lab 06a wrong."""

from kit.grade.exercise import Mistake

GROUP_IGNORED = Mistake(
    "group ignored",
    "values",
    ("in a group of ranks", "pass group=group on"),
    {", group=group": "", "get_world_size(group)": "get_world_size()", "get_rank(group)": "get_rank()"},
)

RECV_X, RECV_DY = "dist.recv(x, group_src=r - 1, group=group)", "dist.recv(dy, group_src=r + 1, group=group)"
SEND_Y, SEND_DX = (
    "dist.send(y.detach(), group_dst=r + 1, group=group)",
    "dist.send(x.grad, group_dst=r - 1, group=group)",
)
BACK = "    for j in range(m):\n        x, y = kept[j]"

PIPELINE_STEP = (
    Mistake(
        "sum of the losses",
        "values",
        ("times the right one", "each loss counts 1/m"),
        {"loss_of(y, targets[j]) / m": "loss_of(y, targets[j])"},
    ),
    Mistake(
        "divided by the ranks",
        "values",
        ("the number of ranks, not of micro-batches",),
        {"targets[j]) / m": "targets[j]) / p"},
    ),
    Mistake(
        "divided twice",
        "values",
        ("the loss was divided by m twice",),
        {"targets[j]) / m": "targets[j]) / m / m"},
    ),
    Mistake(
        "gradients meet the last activations",
        "values",
        ("always those of the last", "what comes back first belongs to"),
        {"x, y = kept[j]": "x, y = kept[j] if r == p - 1 else (kept[j][0], stage(kept[-1][0]))"},
    ),
    Mistake(
        "receives in the other order",
        "values",
        ("the other way round", "what comes back first belongs to"),
        {"x, y = kept[j]": "x, y = kept[j] if r == p - 1 else kept[m - 1 - j]"},
    ),
    Mistake(
        "weight gradient lost",
        "values",
        ("of the last micro-batch alone", "add up in the stage's parameters"),
        {"        x, y = kept[j]": "        stage.zero_grad()\n        x, y = kept[j]"},
    ),
    Mistake(
        "goes back once",
        "values",
        ("of the last micro-batch alone",),
        {BACK: "    for j in range(m - 1, m):\n        x, y = kept[j]"},
    ),
    Mistake(
        "input gradient alone",
        "values",
        ("has no gradient", "it has to stay"),
        {
            "            loss.backward()": "            x.grad, = torch.autograd.grad(loss, x)",
            "            y.backward(dy)": "            x.grad = torch.autograd.grad(y, x, dy)[0] if r else None",
        },
    ),
    Mistake(
        "nobody asked for its gradient",
        "values",
        ("`x.requires_grad_()` before the stage",),
        {"            x.requires_grad_()\n": ""},
    ),
    Mistake(
        "keeps what it sends",
        "values",
        ("keep `y = stage(x)` itself",),
        {"y = stage(x)  #": "y = stage(x).detach()  #"},
    ),
    Mistake(
        "a loss on every rank",
        "values",
        ("Only the last rank has a loss",),
        {"y.backward(dy)": "y.backward()"},
    ),
    Mistake(
        "forgets to send the gradient back",
        "values",
        ("Follow micro-batch 0",),
        {SEND_DX: "pass"},
    ),
    Mistake(
        "as many micro-batches as ranks",
        "values",
        ("that is m, not the ranks",),
        {"for j in range(m):\n        x = inputs": "for j in range(p + m):\n        x = inputs"},
    ),
    Mistake(
        "keeps one micro-batch",
        "values",
        ("Each micro-batch goes back once", "keep all of them"),
        {"x, y = kept[j]": "x, y = kept[0]"},
    ),
    Mistake(
        "sums over ranks as data parallel does",
        "traffic",
        ("called the built-in barrier", "messages between neighbours"),
        {BACK: f"    dist.barrier(group=group)\n{BACK}"},
    ),
    GROUP_IGNORED,
)

ALL_F, ALL_B = '[f"F{j}" for j in range(m)]', '[f"B{j}" for j in range(m)]'

GPIPE_ROW = (
    Mistake("returns text", "values", ("a list such as ['F0', 'F1', 'B0', 'B1'] is asked for",), body='return "F0 B0"'),
    Mistake("returns nothing", "values", ("row is None", "is asked for"), body="row = ['F0', 'B0']"),
    Mistake("never comes back", "values", ("never comes back through stage 0",), {f" + {ALL_B}": ""}),
    Mistake(
        "counts ranks",
        "values",
        ("these rows cannot run",),
        {ALL_F: ALL_F.replace("(m)", "(p)"), ALL_B: ALL_B.replace("(m)", "(p)")},
    ),
    Mistake(
        "counts from one",
        "values",
        ("there is no micro-batch",),
        {ALL_F: ALL_F.replace("(m)", "(1, m + 1)"), ALL_B: ALL_B.replace("(m)", "(1, m + 1)")},
    ),
    Mistake(
        "back before forward",
        "values",
        ("0B0 comes before 0F0, which it needs",),
        {f"{ALL_F} + {ALL_B}": f"{ALL_B} + {ALL_F}"},
    ),
    Mistake(
        "one after the other",
        "values",
        ("all go forward before the first comes back",),
        body='return [f"{kind}{j}" for j in range(m) for kind in "FB"]',
    ),
    Mistake("numbers alone", "values", ("an action is kind and micro-batch",), {'f"F{j}"': "j"}),
)

ONE_F_ONE_B_ROW = (
    Mistake(
        "one forward too few",
        "cost",
        ("units where", "goes back too early and then waits"),
        {"ahead = min(m, p - 1 - r)": "ahead = min(m, max(0, p - 2 - r))"},
    ),
    Mistake(
        "one forward too many",
        "cost",
        ("activations at once where", "forwards ahead, then one forward and one backward"),
        {"p - 1 - r": "p - r"},
    ),
    Mistake(
        "all ranks alike",
        "cost",
        ("rank 1 holds", "activations at once where"),
        {"p - 1 - r": "p - 1"},
    ),
    Mistake(
        "the ranks the other way round",
        "values",
        ("these rows cannot run", "has not sent, because rank 1 waits before 1F1"),
        {"p - 1 - r": "r"},
    ),
    Mistake(
        "GPipe again",
        "cost",
        ("activations at once where", "by turns"),
        {"ahead = min(m, p - 1 - r)": "ahead = m"},
    ),
    Mistake(
        "more forwards than there are",
        "values",
        ("row holds 'B-1'", "an action is kind and micro-batch"),
        {"min(m, p - 1 - r)": "p - 1 - r"},
    ),
    Mistake(
        "forgets the end",
        "values",
        ("never comes back",),
        {' + [f"B{j}" for j in range(m - ahead, m)]': ""},
    ),
    Mistake(
        "takes the newest back",
        "cost",
        ("units where", "the oldest has its gradient first"),
        {
            'f"B{j}"]\n    return': 'f"B{ahead + j}"]\n    return',
            "for j in range(m - ahead, m)": "for j in range(ahead)",
        },
    ),
    Mistake(
        "backward first",
        "values",
        ("these rows cannot run", "which it needs"),
        {'[f"F{ahead + j}", f"B{j}"]': '[f"B{j}", f"F{ahead + j}"]'},
    ),
)

SUM_TIED = (
    Mistake("each its own", "values", ("would drift apart",), {"return gradient + its": "return gradient"}),
    Mistake("swapped", "values", ("add what came to your own",), {"return gradient + its": "return its"}),
    Mistake("mean of the two", "values", ("half of the sum",), {"gradient + its": "(gradient + its) / 2"}),
    Mistake(
        "only the first one knows",
        "values",
        ("has not the sum", "takes another step"),
        {"return gradient + its": "return gradient + its if r == 0 else gradient"},
    ),
    Mistake(
        "added in place",
        "values",
        ("changed its input in place",),
        {"return gradient + its": "return gradient.add_(its)"},
    ),
    Mistake(
        "all of them", "values", ("those ranks return before they touch it",), {"if r not in (0, p - 1)": "if False"}
    ),
    Mistake(
        "both receive first",
        "values",
        ("both send once and receive once",),
        {"if r == 0:": "if r < 0:"},
    ),
    Mistake(
        "everybody sums zeros",
        "traffic",
        ("called the built-in", "messages between the first rank and the last"),
        body="""
            p, r, = dist.get_world_size(group), dist.get_rank(group)
            end = r in (0, p - 1)
            sizes = [None] * p
            dist.all_gather_object(sizes, len(gradient) if end else 0, group=group)
            total = gradient.clone() if end else torch.zeros(sizes[0])
            dist.all_reduce(total, group=group)
            return total if end else None
        """,
    ),
    GROUP_IGNORED,
)

EQUALLY_MANY = "return [len(layers) // p + (stage < len(layers) % p) for stage in range(p)]"

BALANCED_CUT = (
    Mistake("equally many layers", "cost", ("where", "do not take equally long"), body=EQUALLY_MANY),
    Mistake("rounded down", "values", ("layers have a stage, and there are",), body="return [len(layers) // p] * p"),
    Mistake(
        "up to the mean",
        "cost",
        ("what the stages before leave over falls to the last one",),
        body="""
            cut, at = [], 0
            for stage in range(p - 1):
                end = at + 1
                while end < len(layers) - (p - 1 - stage) and sum(layers[at : end + 1]) <= sum(layers) / p:
                    end += 1
                cut.append(end - at)
                at = end
            return [*cut, len(layers) - at]
        """,
    ),
    Mistake(
        "leaves none for the stages behind",
        "values",
        ("has no layer", "nothing to do"),
        body="return [len(layers) - p + 2, *[1] * (p - 2), 0]",
    ),
    Mistake(
        "milliseconds",
        "values",
        ("return how many layers a stage has, not ms",),
        {"return cut": "return [sum(layers[sum(cut[:s]) : sum(cut[: s + 1])]) for s in range(p)]"},
    ),
    Mistake("where it cuts", "values", ("the layers of each stage",), body="return list(range(p + 1))"),
    Mistake("nothing", "values", ("returned None", "is asked for"), body="cut = [1] * p"),
)
