"""How people usually get the exercises of lab 00 wrong."""

from kit.grade.exercise import Mistake

WHO_AM_I = (
    Mistake("remainder lost", "values", ("remainder", "belongs to no rank"), {"divmod(total, n)": "(total // n, 0)"}),
    Mistake(
        "last takes the rest",
        "values",
        ("first total % n ranks", "one item more"),
        {"divmod(total, n)": "(total // n, 0)", "start + base + (r < extra)": "total if r == n - 1 else start + base"},
    ),
    Mistake(
        "extra items at the end",
        "values",
        ("wrong ranks", "first total % n ranks"),
        {"min(r, extra)": "max(0, r - (n - extra))", "(r < extra)": "(r >= n - extra)"},
    ),
    Mistake("stop included", "values", ("stop is not included",), {"(r < extra)": "(r < extra) - 1"}),
    Mistake(
        "everyone is rank zero",
        "values",
        ("every rank returned the same", "dist.get_rank()"),
        {"dist.get_rank()": "0"},
    ),
    Mistake(
        "shares overlap",
        "values",
        ("at once", "a share ends where the next one starts"),
        {"divmod(total, n)": "(total // n, 0)", "start + base + (r < extra)": "min(total, start + base + 1)"},
    ),
    Mistake(
        "asks the others",
        "traffic",
        ("all_gather", "no communication is needed"),
        body="""
            r, n = dist.get_rank(), dist.get_world_size()
            each, extra = divmod(total, n)
            sizes = [torch.zeros((), dtype=torch.long) for _ in range(n)]
            dist.all_gather(sizes, torch.tensor(each + (r < extra)))
            start = int(sum(sizes[:r]))
            return start, start + int(sizes[r])
        """,
    ),
    Mistake(
        "the notebook's number of ranks",
        "values",
        ("shares for more ranks than there are, 2", "`ranks` is a variable of the notebook, 4 on every rank"),
        {"def my_share": "ranks = 4\n\n\ndef my_share", "dist.get_world_size()": "ranks"},
    ),
    Mistake(
        "starts not shifted",
        "values",
        ("rank 0 stops at 4 and rank 1 starts at 3", "a share starts where the last stops"),
        {"r * base + min(r, extra)": "r * base"},
    ),
    Mistake(
        "fractions of items",
        "values",
        ("two whole numbers (start, stop)", "`//` divides whole numbers"),
        body="""
            r, n = dist.get_rank(), dist.get_world_size()
            return r * total / n, (r + 1) * total / n
        """,
    ),
    Mistake(
        "size in place of stop",
        "values",
        ("where its share starts and its size", "the second is where it stops"),
        {"return start, start + base": "return start, base"},
    ),
)

RANK_ZERO_SPEAKS = (
    Mistake("other words", "values", ("the number is right, and the whole line is",), {"mean loss {": "Mean loss: {"}),
    Mistake(
        "prints a tensor",
        "values",
        ("prints as tensor(...)", "total.item()"),
        {
            'print(f"mean loss {total.item() / dist.get_world_size():.4f}")': (
                'print("mean loss", total / dist.get_world_size())'
            )
        },
    ),
    Mistake(
        "reduced to nobody",
        "values",
        ("the call says which", "dist.reduce(x, dst=0)"),
        {"dist.reduce(total, dst=0)": "dist.reduce(total)"},
    ),
    Mistake(
        "everybody speaks",
        "values",
        ("printed too", "only rank 0 speaks"),
        {"dist.reduce(total, dst=0)": "dist.all_reduce(total)", "if dist.get_rank() == 0": "if True"},
    ),
    Mistake("sum, not mean", "values", ("not divided by the world size",), {" / dist.get_world_size()": ""}),
    Mistake(
        "own loss",
        "values",
        ("its own loss",),
        {"dist.reduce(total, dst=0)": "pass", " / dist.get_world_size()": ""},
    ),
    Mistake("nobody speaks", "values", ("printed 0 lines",), {"dist.get_rank() == 0": "False"}),
    Mistake(
        "meets nobody",
        "values",
        ("only the printing belongs under",),
        {"    dist.reduce(total, dst=0)": "    if dist.get_rank() == 0:\n        dist.all_reduce(total)"},
    ),
    Mistake(
        "barrier to be safe",
        "traffic",
        ("2 collectives", "where 1 is enough"),
        {"    dist.reduce(": "    dist.barrier()\n    dist.reduce("},
    ),
    Mistake(
        "uses what all_reduce returns",
        "values",
        ("uses what dist.all_reduce returns, which is None", "in the tensor that it is given"),
        {"total = loss.clone()": "pass", "dist.reduce(total, dst=0)": "total = dist.all_reduce(loss)"},
    ),
    Mistake("divided by another world", "values", ("the sum over 4", "2 ranks here"), {"dist.get_world_size()": "4"}),
    Mistake("own share", "values", ("its own loss over 2",), {"dist.reduce(total, dst=0)": "pass"}),
    Mistake(
        "sum brought to rank one",
        "values",
        ("reduce to rank 1", "whatever was left in its tensor"),
        {"dst=0": "dst=1"},
    ),
    Mistake("returned, not printed", "values", ("printed nothing", "return does not"), {"print(f": "return str(f"}),
    Mistake("two decimals", "values", ("the number is right", "has four decimals"), {":.4f": ":.2f"}),
)

FIRST_RESCUE = (
    Mistake(
        "not repaired",
        "values",
        ("still has to call", "adds 0"),
        {"    count = torch": "    if len(mine) == 0:\n        return 0\n    count = torch"},
    ),
    Mistake("gave up on the others", "values", ("counted only its own",), {"dist.all_reduce(count)": "pass"}),
    Mistake(
        "reduced to rank zero",
        "values",
        ("only rank 0 is right",),
        {
            "dist.all_reduce(count)": "dist.reduce(count, dst=0)",
            "int(count)": "int(count) if dist.get_rank() == 0 else -1",
        },
    ),
    Mistake(
        "barrier first",
        "traffic",
        ("2 collectives", "where 1 is enough"),
        {"    dist.all_reduce(": "    dist.barrier()\n    dist.all_reduce("},
    ),
    Mistake(
        "another kind of zero",
        "values",
        ("dtypes must be equal on every rank", "torch.tensor(0) beside"),
        {"torch.tensor(len(mine), device=mine.device)": "torch.tensor(len(mine)) if len(mine) else torch.zeros(1)"},
    ),
    Mistake(
        "a barrier where it holds nothing",
        "values",
        ("calls barrier", "still has to call"),
        {"    count = torch": "    if len(mine) == 0:\n        dist.barrier()\n        return 0\n    count = torch"},
    ),
    Mistake(
        "uses what all_reduce returns",
        "values",
        ("uses what dist.all_reduce returns, which is None",),
        {"dist.all_reduce(count)": "count = dist.all_reduce(count)"},
    ),
    Mistake(
        "sums the items",
        "values",
        ("the sum of all items", "how many"),
        {"torch.tensor(len(mine), device=mine.device)": "mine.sum()"},
    ),
    Mistake(
        "rank zero tells everyone",
        "values",
        ("which rank 0 alone holds", "are to be added"),
        {"dist.all_reduce(count)": "dist.broadcast(count, 0)"},
    ),
    Mistake(
        "took part, returns its own zero",
        "values",
        ("returned 0 where", "which it has after the all_reduce"),
        {"return int(count)": "return int(count) if len(mine) else 0"},
    ),
    Mistake(
        "sums the items themselves",
        "values",
        ("shapes must be equal", "one number of the same kind and shape"),
        {"dist.all_reduce(count)": "dist.all_reduce(mine)"},
    ),
    Mistake(
        "a number in place of a tensor",
        "values",
        ("Expected parameter `tensor`", "torch.tensor(len(mine))"),
        {"torch.tensor(len(mine), device=mine.device)": "len(mine)"},
    ),
    Mistake("a float", "values", ("a float, where", "an int, is right"), {"int(count)": "float(count)"}),
    Mistake("returns a tensor", "values", ("a tensor where", "`.item()`"), {"return int(count)": "return count"}),
    Mistake(
        "only rank zero calls",
        "values",
        ("Every rank has to call the same collective, whatever it holds",),
        {"    dist.all_reduce(count)": "    if dist.get_rank() == 0:\n        dist.all_reduce(count)"},
    ),
)
