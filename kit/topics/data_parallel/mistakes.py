"""How people usually get the exercises of labs 03a and 03b wrong."""

from kit.grade.exercise import Mistake

EVERY = "[*model.parameters(), *model.buffers()]"
SEND = "dist.broadcast(x.detach(), group_src=source, group=group)"

GROUP_IGNORED = Mistake(
    "group ignored",
    "values",
    ("in a group of ranks 0, 1 and 2 of 4", "pass group=group on"),
    {", group=group": ""},
)
WORLD_COUNTED = Mistake(
    "counts the world",
    "values",
    ("the sum of 3 ranks is divided by 4", "dist.get_world_size(group) count within the group"),
    {"get_world_size(group)": "get_world_size()"},
)

EQUAL_START = (
    Mistake(
        "same seed for everyone",
        "values",
        ("still has its own state",),
        body="torch.manual_seed(0)  # too late: the model is made",
    ),
    Mistake("always from rank zero", "values", ("wrong source", "rank 0"), {SEND: "dist.broadcast(x.detach(), 0)"}),
    Mistake(  # right in a group of the first ranks, which counts them as the world does
        "the world's number in a group",
        "values",
        ("in a group of ranks 1, 2 and 3 of 4", "group_dst= and group_src= count within the group"),
        {"group_src=": ""},
    ),
    Mistake("without buffers", "values", ("still has its own mask", "a buffer"), {EVERY: "model.parameters()"}),
    Mistake(
        "without frozen ones",
        "values",
        ("still has its own scale", "frozen"),
        {"*model.parameters()": "*(p for p in model.parameters() if p.requires_grad)"},
    ),
    Mistake(
        "averaged states",
        "values",
        ("mean of all states", "no state anybody drew"),
        {SEND: "dist.all_reduce(x.detach())\n        x.detach().div_(dist.get_world_size())"},
    ),
    Mistake(  # what arrives is thrown away
        "copies of the state", "values", ("still has its own state",), {"x.detach()": "x.detach().clone()"}
    ),
    Mistake(
        "only the source calls",
        "values",
        ("all name the same source",),
        {EVERY: f"{EVERY} if dist.get_rank() == source else []"},
    ),
    Mistake(
        "shared one twice",
        "traffic",
        ("two modules share", "is sent once"),
        {EVERY: "[x for m in model.modules() for x in [*m._parameters.values(), *m._buffers.values()]]"},
    ),
    Mistake(
        "uses what broadcast returns",
        "values",
        ("AttributeError", "uses what dist.broadcast returns, which is None"),
        {SEND: f"x.data = {SEND}.data"},
    ),
    Mistake(
        "pickled state",
        "traffic",
        ("kB where", "bytes are enough", "every parameter and every buffer once"),
        body="""
            box = [model.state_dict() if dist.get_rank() == source else None]
            dist.broadcast_object_list(box, src=source)
            model.load_state_dict(box[0])
        """,
    ),
    GROUP_IGNORED,
    Mistake(
        "returns the model", "values", ("returned the model", "None is promised"), {SEND: f"{SEND}\n    return model"}
    ),
    Mistake(
        "never waits",
        "values",
        ("never waited for the broadcast",),
        {SEND: "dist.broadcast(x.detach(), source, async_op=True)"},
    ),
    Mistake(  # the frozen one is among them, and is not what they have in common
        "returns from the loop",
        "values",
        ("still has its own scale, hidden, bias, norm, out and mask: whatever forward reads",),
        {SEND: f"{SEND}\n        return"},
    ),
    Mistake(
        "a tuple of generators",
        "values",
        ("AttributeError", "is one list of what is in both"),
        {EVERY: "(model.parameters(), model.buffers())"},
    ),
    Mistake(
        "the whole dictionary",
        "values",
        ("TypeError", "takes one tensor at a time"),
        body="dist.broadcast(model.state_dict(), source)",
    ),
)

SUM, DIVIDE = "dist.all_reduce(p.grad, group=group)", "p.grad /= dist.get_world_size(group)"

AVERAGE_GRADIENTS = (
    Mistake("sum, not mean", "values", ("was not divided by the world size",), {DIVIDE: "pass"}),
    Mistake(
        "divided by the number of parameters",
        "values",
        ("0.4 times the mean", "divided by 5", "the number of parameters"),
        {"dist.get_world_size(group)": "sum(q.requires_grad for q in model.parameters())"},
    ),
    Mistake("divided before and after", "values", ("it was divided twice",), {SUM: f"{DIVIDE}\n            {SUM}"}),
    Mistake(
        "skips what has no gradient",
        "values",
        ("it adds zeros, and the others wait for it",),
        {"p.grad = torch.zeros_like(p)": "continue"},
    ),
    Mistake(
        "averages parameters",
        "values",
        ("changed its parameters", "p.grad and not p"),
        {SUM: "dist.all_reduce(p.detach())", DIVIDE: "p.detach().div_(dist.get_world_size())"},
    ),
    Mistake(
        "averages a copy",
        "values",
        ("still have only own gradients", "nobody puts into p.grad"),
        {SUM: "mean = p.grad / dist.get_world_size()", DIVIDE: "dist.all_reduce(mean)"},
    ),
    Mistake(
        "reduced to rank zero",
        "values",
        ("only rank 0 is right",),
        {
            SUM: "total = p.grad.clone()\n            dist.reduce(total, dst=0)",
            DIVIDE: "p.grad = total / dist.get_world_size() if dist.get_rank() == 0 else p.grad",
        },
    ),
    Mistake(
        "never waits",
        "values",
        ("never waited for the all_reduce",),
        {SUM: DIVIDE, DIVIDE: "dist.all_reduce(p.grad, async_op=True)"},
    ),
    Mistake(
        "shared gradient twice",
        "traffic",
        ("a shared one counts once",),
        {"p in model.parameters()": "p in [p for m in model.modules() for p in m._parameters.values()]"},
    ),
    Mistake(
        "gathers everything",
        "traffic",
        ("built-in all_gather", "all_reduce, which sums"),
        {
            SUM: "everyone = [torch.empty_like(p) for _ in range(dist.get_world_size())]",
            DIVIDE: "dist.all_gather(everyone, p.grad)\n            p.grad = sum(everyone) / len(everyone)",
        },
    ),
    Mistake(
        "frozen ones too",
        "values",
        ("TypeError", "A frozen parameter's p.grad is None"),
        {"p.requires_grad": "True", "p.grad is None": "False"},
    ),
    Mistake(
        "uses what all_reduce returns",
        "values",
        ("TypeError", "uses what dist.all_reduce returns, which is None"),
        {SUM: "pass", DIVIDE: "p.grad = dist.all_reduce(p.grad) / dist.get_world_size()"},
    ),
    GROUP_IGNORED,
    WORLD_COUNTED,
    Mistake(
        "divides another tensor",
        "values",
        ("2 times the right value", "`g /= n` changes g itself"),
        {SUM: f"g = p.grad\n            {SUM}", DIVIDE: "g = g / dist.get_world_size()"},
    ),
    Mistake("returns the model", "values", ("returned the model",), {DIVIDE: f"{DIVIDE}\n    return model"}),
    Mistake(
        "only rank zero sums",
        "values",
        ("Every rank has to call all_reduce for the same gradients",),
        {SUM: f"if dist.get_rank() == 0:\n                {SUM}"},
    ),
    Mistake(
        "divided behind the loop",
        "values",
        ("of embed, hidden, bias and norm are 2 times too large", "only those of out", "inside the loop"),
        {f"            {DIVIDE}": f"    {DIVIDE}"},
    ),
    Mistake(
        "zeros thrown away",
        "values",
        ("whose own gradient of hidden is None, still has none", "belongs into p.grad there too"),
        {
            "p.grad = torch.zeros_like(p)": "dist.all_reduce(torch.zeros_like(p))\n                continue",
        },
    ),
    Mistake(
        "divided by those who have one",
        "values",
        ("is the sum divided by 1", "divide by the number of ranks, 2"),
        {
            SUM: "has = [None] * dist.get_world_size()\n"
            f"            dist.all_gather_object(has, had)\n            {SUM}",
            "if p.grad is None:": "had = p.grad is not None\n            if not had:",
            DIVIDE: "p.grad /= sum(has)",
        },
    ),
    Mistake(
        "asks a gradient whether it is true",
        "values",
        ("Boolean value", "`p.grad is None` asks whether there is a gradient"),
        {"if p.grad is None": "if not p.grad"},
    ),
    Mistake(
        "flat, without what is None",
        "values",
        ("the shapes must be equal on every rank", "it adds zeros, and the others wait for it"),
        body="""
            grads = [p.grad for p in model.parameters() if p.grad is not None]
            flat = torch.cat([g.flatten() for g in grads])
            dist.all_reduce(flat, group=group)
            flat /= dist.get_world_size(group)
            for g, part in zip(grads, flat.split([g.numel() for g in grads])):
                g.copy_(part.view_as(g))
        """,
    ),
)

LOCAL, START = "if calls[p] % micro_batches:", "works.append(dist.all_reduce(q.grad, group=group, async_op=True))"
WAITING = f"{START}\n            works[-1].wait()"

AVERAGING_HOOKS = (
    Mistake(
        "in the order of backward",
        "values",
        ("added to those of another", "begin in a fixed order"),
        {
            "while len(works) < len(order) and order[len(works)] in complete:": "for q in [p]:",
            "q = order[len(works)]": "",
        },
    ),
    Mistake(  # no handle, and no order: each average is whole before backward goes on
        "blocking, in the order of backward",
        "values",
        ("added to those of another", "begin in a fixed order"),
        body="""
            calls, n = Counter(), dist.get_world_size(group)

            def average(p):
                calls[p] += 1
                if calls[p] % micro_batches == 0:
                    dist.all_reduce(p.grad, group=group)
                    p.grad /= n

            for p in model.parameters():
                if p.requires_grad:
                    p.register_post_accumulate_grad_hook(average)
        """,
    ),
    Mistake(
        "waits in the hook",
        "cost",
        ("waited for its first all_reduce", "async_op=True and wait at the end of backward"),
        {START: WAITING},
    ),
    Mistake("never waits", "values", ("never waited for the all_reduce",), {"work.wait()": "pass"}),
    Mistake("after every micro-batch", "traffic", ("micro-batches before the last stay local",), {LOCAL: "if False:"}),
    Mistake(
        "registered twice",
        "values",
        ("before this pass had brought it", "one hook for each parameter"),
        {"(hook)": "(hook)\n        p.register_post_accumulate_grad_hook(hook)"},
    ),
    Mistake(
        "shared one averaged twice",
        "traffic",
        ("a parameter that two modules share has one hook",),
        {
            "p for p in model.parameters()": "p for _, p in model.named_parameters(remove_duplicate=False)",
            "for p in order:": "for p in dict.fromkeys(order):",
            START: WAITING,
        },
    ),
    Mistake(
        "on its way there",
        "values",
        ("what the last micro-batch added", "register_post_accumulate_grad_hook"),
        body="""
            calls, n = Counter(), dist.get_world_size(group)

            def average(p, gradient):
                calls[p] += 1
                if calls[p] % micro_batches == 0:
                    gradient = gradient / n
                    dist.all_reduce(gradient, group=group)
                    return gradient

            for p in model.parameters():
                if p.requires_grad:
                    p.register_hook(lambda gradient, p=p: average(p, gradient))
        """,
    ),
    Mistake(
        "before backward",
        "values",
        ("still have only own gradients", "before backward has filled p.grad is lost"),
        body="""
            def hook(*ignored):
                for p in model.parameters():
                    if p.requires_grad:
                        p.grad = torch.zeros_like(p) if p.grad is None else p.grad
                        dist.all_reduce(p.grad)
                        p.grad /= dist.get_world_size()

            model.register_forward_pre_hook(hook)
        """,
    ),
    Mistake("without division", "values", ("was not divided by the world size",), {"q.grad /= n": "pass"}),
    Mistake(
        "all at the end",
        "cost",
        ("sent nothing before its last gradient was there",),
        {"        while len(works)": "        while len(complete) == len(order) > len(works)"},
    ),
    Mistake(
        "counts to the first step",
        "values",
        ("mean after the first step", "begin anew with every step"),
        {LOCAL: "if calls[p] != micro_batches:"},
    ),
    Mistake(
        "nothing cleared after a step",
        "values",
        ("mean after the first step", "begin anew with every step"),
        {"complete.clear()": "pass", "works.clear()": "pass"},
    ),
    Mistake(  # p is then what the loop below has left in it
        "name of the loop",
        "values",
        ("those were not averaged", "uses the parameter it is called with"),
        body="""
            for p in [p for p in model.parameters() if p.requires_grad]:
                def average(ignored):
                    dist.all_reduce(p.grad)
                    p.grad /= dist.get_world_size()

                p.register_post_accumulate_grad_hook(average)
        """,
    ),
    Mistake(
        "one counter for all",
        "values",
        ("with micro_batches = 1 all was right", "look at what is counted"),
        {"calls[p]": 'calls["all"]'},
    ),
    Mistake(
        "divided by micro-batches too",
        "values",
        ("2 ranks times 3 micro-batches", "shall add up"),
        {"q.grad /= n": "q.grad /= n * micro_batches"},
    ),
    Mistake(  # what comes of it is right whenever division is quicker, or slower, than the network
        "divides what is under way",
        "values",
        ("changes q.grad while the all_reduce of line", "after its wait()"),
        {"q.grad /= n": "pass", START: f"{START}\n            q.grad /= n"},
    ),
    Mistake(
        "never sends",
        "values",
        ("no rank called all_reduce", "sends nothing"),
        {LOCAL: "if calls[p] % micro_batches != 1:"},
    ),
    Mistake(
        "binds a counter anew",
        "values",
        ("UnboundLocalError", "has to say `nonlocal` first"),
        {"Counter()": "0", "calls[p]": "calls"},
    ),
    Mistake(
        "calls the hook",
        "values",
        ("Before backward p.grad is None", "without brackets"),
        body="""
            def hook(p):
                dist.all_reduce(p.grad, group=group)

            for p in model.parameters():
                p.register_post_accumulate_grad_hook(hook(p))
        """,
    ),
)

TURN = "while len(works) < len(buckets) and arrived.issuperset(buckets[len(works)]):  # the same order on every rank"
BUCKET = "            bucket, flat = buckets[len(works)], flats[len(works)]\n"
WAIT = "for work, bucket, flat in zip(works, buckets, flats, strict=True):\n            work.wait()"

AVERAGE_IN_BUCKETS = (
    Mistake(
        "sent as they become full",
        "values",
        ("added to those of another", "begin in a fixed order"),
        {
            TURN: "for bucket, flat in zip(buckets, flats):\n"
            "            if p not in set(bucket) or not arrived.issuperset(bucket):\n"
            "                continue",
            BUCKET: "",
            WAIT: "for work in works:\n            work.wait()\n"
            "        for bucket, flat in zip(buckets, flats, strict=True):",
        },
    ),
    Mistake(
        "tail dropped",
        "values",
        ("the last bucket is sent too, full or not",),
        {"    flats = ": "    buckets.pop()\n    flats = "},
    ),
    Mistake("works forgotten", "values", ("never waited for the all_reduce",), {"work.wait()": "pass"}),
    Mistake(
        "never copied back",
        "values",
        ("still have only own gradients",),
        {"q.grad = part.view(q.shape)": "pass"},
    ),
    Mistake(
        "divided in the bucket and out of it",
        "values",
        ("times the mean", "it was divided twice"),
        {"q.grad = part.view(q.shape)": "q.grad = part.view(q.shape) / n"},
    ),
    Mistake(
        "one large bucket",
        "traffic",
        ("no bucket is larger than bucket_bytes",),
        {"max(bucket_bytes, nbytes)": "10**9"},
    ),
    Mistake("a bucket for each", "traffic", ("one for each bucket",), {"not buckets or nbytes > room": "True"}),
    Mistake(
        "sent when backward is over",
        "cost",
        ("sent nothing before its last gradient was there",),
        {"arrived.add(p)": "arrived.add(p)\n\n    def send():", "def finish():": "def finish():\n        send()"},
    ),
    Mistake(
        "waits for each bucket",
        "cost",
        ("async_op=True and wait at the end of backward",),
        {"async_op=True))": "async_op=True))\n            works[-1].wait()"},
    ),
    Mistake(
        "nothing cleared after a step",
        "values",
        ("mean after the first step", "begin anew with every step"),
        {"arrived.clear()": "pass", "works.clear()": "pass"},
    ),
    Mistake(
        "filled from the first",
        "cost",
        ("sent nothing before its last gradient was there", "from the last parameter"),
        {"in reversed(": "in list("},
    ),
    WORLD_COUNTED,
    Mistake(
        "nothing at the end of backward",
        "values",
        ("never waited for the all_reduce", "in hook"),
        {"Variable._execution_engine.queue_callback(finish)": "pass"},
    ),
)
