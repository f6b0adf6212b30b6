"""How people usually get the exercises of lab 06b wrong."""

from kit.grade.exercise import Mistake
from kit.topics.pipeline.mistakes import GROUP_IGNORED

ADDS = "weight.grad += dz.T @ x"

PARTED_STAGE = (
    Mistake(
        "adds to nothing",
        "values",
        ("W of micro-batch 0 has left weight.grad as it was", "the gradient of the weights is lost"),
        {ADDS: "weight.grad + dz.T @ x"},
    ),
    Mistake(
        "both parts do W",
        "values",
        ("I of micro-batch 0 has changed weight.grad and again in W", "in W, once"),
        {"return dz @ weight": f"{ADDS}\n        return dz @ weight"},
    ),
    Mistake(
        "all of it in I",
        "values",
        ("I of micro-batch 0 has changed weight.grad: ", "what the stage before waits for"),
        {"return dz @ weight": f"{ADDS}\n        return dz @ weight", f"{ADDS}  #": "pass  #"},
    ),
    Mistake(
        "autograd does both",
        "values",
        ("has changed weight.grad and again in W", "in W, once"),
        body="""
            weight.requires_grad_()
            kept = {}

            def forward(j, x):
                x = x.detach().requires_grad_()
                y = torch.tanh(x @ weight.T)
                kept[j] = x, y, None
                return y

            def input_gradient(j, dy):
                x, y, _ = kept[j]
                kept[j] = x, y, dy
                y.backward(dy, retain_graph=True)
                return x.grad

            def weight_gradient(j):
                x, y, dy = kept.pop(j)
                y.backward(dy)

            return forward, input_gradient, weight_gradient
        """,
    ),
    Mistake(
        "the graph is gone",
        "values",
        ("second time", "retain_graph=True"),
        body="""
            weight.requires_grad_()
            kept = {}

            def forward(j, x):
                x = x.detach().requires_grad_()
                y = torch.tanh(x @ weight.T)
                kept[j] = x, y, None
                return y

            def input_gradient(j, dy):
                x, y, _ = kept[j]
                kept[j] = x, y, dy
                return torch.autograd.grad(y, x, dy)[0]

            def weight_gradient(j):
                x, y, dy = kept.pop(j)
                weight.grad += torch.autograd.grad(y, weight, dy)[0]

            return forward, input_gradient, weight_gradient
        """,
    ),
    Mistake(
        "takes the place of what was there",
        "values",
        ("of one micro-batch alone", "each W adds"),
        {"weight.grad += ": "weight.grad = "},
    ),
    Mistake(
        "mean over the rows",
        "values",
        ("1/4 of the weights' gradient", "not their mean"),
        {"dz.T @ x  #": "dz.T @ x / len(x)  #"},
    ),
    Mistake(
        "W with dy",
        "values",
        ("dy where dz belongs", "both parts need it"),
        {"kept[j] = x, dz": "kept[j] = x, dy"},
    ),
    Mistake(
        "I without tanh",
        "values",
        ("dx is that of a stage without tanh",),
        {"return dz @ weight": "return dy @ weight"},
    ),
    Mistake(
        "W with the newest activations",
        "values",
        ("W took the activations of the micro-batch that went forward last", "by the number j"),
        {
            "kept[j] = x, y": "kept[j], kept[-1] = (x, y), x",
            "x, dz = kept.pop(j)": "dz, x = kept.pop(j)[1], kept[-1]",
        },
    ),
    Mistake(
        "W with the newest gradient",
        "values",
        ("W took dz of the micro-batch whose I came last",),
        {
            "kept[j] = x, dz": "kept[j], kept[-1] = (x, dz), dz",
            "x, dz = kept.pop(j)": "x, dz = kept.pop(j)[0], kept[-1]",
        },
    ),
    Mistake(
        "I with the newest activations",
        "values",
        ("I took the activations of the micro-batch that went forward last",),
        {"kept[j] = x, y": "kept[j], kept[-1] = (x, y), y", "x, y = kept[j]": "x, y = kept[j][0], kept[-1]"},
    ),
    Mistake(
        "turned round",
        "values",
        ("weight.grad is (D, C), as the weights are: dz^T x",),
        {"dz.T @ x": "x.T @ dz"},
    ),
    Mistake(
        "input gradient into the weights",
        "values",
        ("weight.grad is (D, C), as the weights are: dz^T x",),
        {"dz.T @ x": "dz @ weight"},
    ),
    Mistake(
        "weights turned round",
        "values",
        ("dx = dz A has the shapes (B, D) (D, C)",),
        {"return dz @ weight": "return dz @ weight.T"},
    ),
    Mistake(
        "I returns nothing",
        "values",
        ("input_gradient(0, ...) returned nothing where dx (B, C)",),
        {"return dz @ weight": "dz @ weight"},
    ),
    Mistake(
        "parts in another order",
        "values",
        ("in this order: forward, input_gradient, weight_gradient",),
        {"return forward, input_gradient, weight_gradient": "return forward, weight_gradient, input_gradient"},
    ),
    Mistake(
        "returns the forward pass alone",
        "values",
        ("where three functions are asked for",),
        {"return forward, input_gradient, weight_gradient": "return forward"},
    ),
    Mistake(
        "never lets go",
        "cost",
        ("still holds x of micro-batch 0 after its W", "memory grows with m"),
        {"kept.pop(j)": "kept[j]"},
    ),
)

FIRST_W, LATER_W = 'row.append(f"W{j - r}")', "range(max(0, m - r), m)"

ZB_H1_ROW = (
    Mistake(
        "weight gradient lost",
        "values",
        ("these rows cannot run", "the gradient of its weights is lost"),
        {'return row + [f"W{j}" for j in range(max(0, m - r), m)]': "return row"},
    ),
    Mistake(
        "W before its I",
        "values",
        ("0W0 comes before 0I0, which it needs",),
        {
            '        row.append(f"I{j}")\n': "",
            FIRST_W: f'{FIRST_W}\n        row.append(f"I{{j}}")',
        },
    ),
    Mistake(
        "W of the newest",
        "values",
        ("these rows cannot run", "is there 2 times"),
        {"W{j - r}": "W{j}"},
    ),
    Mistake(
        "more forwards than there are",
        "values",
        ("these rows cannot run", "there is no micro-batch"),
        {"min(m, p - 1 - r)": "p - 1 - r"},
    ),
    Mistake(
        "1F1B as it was",
        "cost",
        ("takes B0 at once", "W0, for which nobody does"),
        {
            'row.append(f"I{j}")': 'row.append(f"B{j}")',
            f"if j >= r:\n            {FIRST_W}": "pass",
            LATER_W: "range(0)",
        },
    ),
    Mistake(
        "one forward too few",
        "cost",
        ("units where", "goes back too early and then waits"),
        {"min(m, p - 1 - r)": "min(m, max(0, p - 2 - r))"},
    ),
    Mistake(
        "one forward too many",
        "cost",
        ("activations at once", "forwards ahead are enough"),
        {"min(m, p - 1 - r)": "min(m, p - r)"},
    ),
    Mistake(
        "W straight after I",
        "cost",
        ("units where", "while the rank before it waits for an I"),
        {"j >= r": "j >= 0", "W{j - r}": "W{j}", "max(0, m - r)": "m"},
    ),
    Mistake(
        "all W at the end",
        "cost",
        ("activations at once", "which it puts off too long"),
        {"j >= r": "j >= m", "max(0, m - r)": "0"},
    ),
    Mistake(
        "the ranks the other way round",
        "cost",
        ("rank 0 holds", "which it puts off too long"),
        {"j >= r": "j >= p - 1 - r", "W{j - r}": "W{j - (p - 1 - r)}", "m - r": "m - (p - 1 - r)"},
    ),
    Mistake(
        "one I too many",
        "cost",
        ("activations at once", "lets r = 0 I go by before its first W"),
        {"j >= r": "j > r", "W{j - r}": "W{j - r - 1}", "m - r": "m - r - 1"},
    ),
)

SUM_UP, ROOT = "dist.all_reduce(total, group=group)", "total.sqrt()[0]"

GLOBAL_NORM = (
    Mistake("each its own", "values", ("the norm of its own stage", "scaled differently"), {SUM_UP: "pass"}),
    Mistake("no root", "values", ("this is the square of the norm",), {ROOT: "total[0]"}),
    Mistake(
        "norms added up",
        "values",
        ("norms of single gradients were added", "squares add up, norms do not"),
        {"gradient.square().sum()": "gradient.norm()", ROOT: "total[0]"},
    ),
    Mistake(
        "norms of stages added up",
        "values",
        ("norms of stages were added", "the root comes last"),
        {SUM_UP: f"total = total.sqrt()\n    {SUM_UP}", ROOT: "total[0]"},
    ),
    Mistake(
        "root taken twice",
        "values",
        ("the root was taken twice",),
        {SUM_UP: f"total = total.sqrt()\n    {SUM_UP}"},
    ),
    Mistake("not squared", "values", ("each number is squared before",), {".square()": "", ROOT: "total.abs()[0]"}),
    Mistake(
        "mean of the stages",
        "values",
        ("stages hold different weights, so nothing is averaged",),
        {ROOT: "(total / dist.get_world_size(group)).sqrt()[0]"},
    ),
    Mistake(
        "largest stage",
        "values",
        ("norm of the largest stage", "not the maximum"),
        {"total, group=group": "total, op=dist.ReduceOp.MAX, group=group"},
    ),
    Mistake(
        "takes what all_reduce returns",
        "values",
        ("what dist.all_reduce returns, which is None",),
        {SUM_UP: f"total = {SUM_UP}"},
    ),
    Mistake(
        "one sum for each gradient",
        "values",
        ("stages hold different numbers of gradients",),
        body="""
            total = torch.zeros(1)
            for gradient in gradients:
                square = gradient.square().sum()
                dist.all_reduce(square, group=group)
                total += square
            return total.sqrt()[0]
        """,
    ),
    Mistake(
        "squares in place",
        "values",
        ("changed its gradients",),
        {"gradient.square()": "gradient.square_()"},
    ),
    Mistake(
        "sums a long vector",
        "traffic",
        ("gave all_reduce 400 bytes", "one number, 4 bytes"),
        {"total = torch.zeros(1)": "total = torch.zeros(100)", "total += gradient": "total[0] += gradient"},
    ),
    Mistake("group ignored", "values", ("in a group of ranks", "pass group=group on"), {", group=group": ""}),
)

ON, BACK = "dist.send(total, group_dst=r + 1, group=group)", "dist.recv(total, group_src=r + 1, group=group)"
EARLY = "early = weight - lr * gradient if total <= limit**2 else weight"

VALIDATED_STEP = (
    Mistake(
        "never taken back",
        "values",
        ("kept the whole step that it took early", "take it back"),
        {"if total > limit**2:": "if total < 0:"},
    ),
    Mistake(
        "both steps",
        "values",
        ("has taken both steps", "go back to the weights before"),
        {"final = weight - lr * limit": "final = early - lr * limit"},
    ),
    Mistake(
        "stretches",
        "values",
        ("times larger", "clipping never stretches"),
        {"if total > limit**2:": "if True:"},
    ),
    Mistake(
        "looks at its own gradient",
        "values",
        ("stepped early because its own gradient", "counts as well"),
        {"if total <= limit**2": "if gradient.square().sum() <= limit**2"},
    ),
    Mistake(
        "steps before it adds its own",
        "values",
        ("stepped early though the squares so far are beyond limit^2",),
        {
            "    total += gradient": "    early = weight - lr * gradient if total <= limit**2 else weight\n"
            "    total += gradient",
            f"    {EARLY}\n": "",
        },
    ),
    Mistake(
        "waits for the verdict",
        "values",
        ("gave as early what it could know only at the end",),
        {"return early, final": "return final, final"},
    ),
    Mistake(
        "never steps early",
        "values",
        ("has not stepped early", "it waited for nothing"),
        {EARLY: "early = weight"},
    ),
    Mistake(
        "compares with the limit itself",
        "values",
        ("has not stepped early", "within limit^2"),
        {"limit**2": "limit"},
    ),
    Mistake(
        "divides by the square",
        "values",
        ("divided by the square of the norm",),
        {"limit / total.sqrt()": "limit / total"},
    ),
    Mistake(
        "no verdict",
        "values",
        ("decided by the norm of the stages up to its own", "back up the line"),
        {BACK: "pass", "dist.send(total, group_dst=r - 1, group=group)": "pass"},
    ),
    Mistake(
        "asks before it tells",
        "values",
        ("a number goes on from stage to stage first",),
        {ON: BACK, BACK: ON},
    ),
    Mistake(
        "returns the end alone",
        "values",
        ("two tensors are asked for",),
        {"return early, final": "return None"},
    ),
    Mistake(
        "a barrier after all",
        "traffic",
        ("called the built-in all_reduce", "numbers passed on from stage to stage"),
        body="""
            p, r = dist.get_world_size(group), dist.get_rank(group)
            squares = torch.zeros(p)
            squares[r] = gradient.square().sum()
            dist.all_reduce(squares, group=group)
            early = weight - lr * gradient if squares[: r + 1].sum() <= limit**2 else weight
            norm = squares.sum().sqrt()
            return early, weight - lr * (limit / norm if norm > limit else 1.0) * gradient
        """,
    ),
    GROUP_IGNORED,
)
