"""Wrong solutions of lab 03, each a mistake people make: gradients averaged by hooks."""

from collections import Counter

import torch
import torch.distributed as dist

from tests.mutants.mutant import Mutants

wrong = Mutants()


def trained(model):
    return [p for p in model.parameters() if p.requires_grad]


def attach(model, hook):
    for p in trained(model):
        p.register_post_accumulate_grad_hook(hook)


def average(p):
    dist.all_reduce(p.grad)
    p.grad /= dist.get_world_size()


@wrong("averaging-hooks", "traffic", "micro-batches before the last stay local")
def after_every_micro_batch(model, micro_batches):
    attach(model, average)


def counting(micro_batches):
    calls = Counter()

    def hook(p):
        calls[p] += 1
        if calls[p] % micro_batches == 0:
            average(p)

    return hook


@wrong("averaging-hooks", "traffic", "averaged twice", "once")
def hooks_registered_twice(model, micro_batches):
    attach(model, counting(micro_batches))
    attach(model, counting(micro_batches))


@wrong("averaging-hooks", "traffic", "a parameter that two modules share has one hook")
def shared_one_hooked_twice(model, micro_batches):
    for _, p in model.named_parameters(remove_duplicate=False):
        if p.requires_grad:
            p.register_post_accumulate_grad_hook(counting(micro_batches))


@wrong("averaging-hooks", "values", "what the last micro-batch added", "register_post_accumulate_grad_hook")
def on_its_way_there(model, micro_batches):
    calls = Counter()

    def hooked(p):
        def hook(gradient):
            calls[p] += 1
            if calls[p] % micro_batches:
                return gradient
            gradient = gradient / dist.get_world_size()
            dist.all_reduce(gradient)
            return gradient

        p.register_hook(hook)

    for p in trained(model):
        hooked(p)


@wrong("averaging-hooks", "values", "still have only own gradients", "before backward has filled p.grad is lost")
def before_backward(model, micro_batches):
    def hook(*ignored):
        for p in trained(model):
            p.grad = torch.zeros_like(p) if p.grad is None else p.grad
            average(p)

    model.register_forward_pre_hook(hook)


@wrong("averaging-hooks", "values", "was not divided by the world size")
def hook_without_division(model, micro_batches):
    calls = Counter()

    def hook(p):
        calls[p] += 1
        if calls[p] % micro_batches == 0:
            dist.all_reduce(p.grad)

    attach(model, hook)


@wrong("averaging-hooks", "cost", "sent nothing before its last gradient was there")
def all_at_the_end(model, micro_batches):
    calls = Counter()

    def hook(p):
        calls["all"] += 1
        if calls["all"] % (micro_batches * len(trained(model))) == 0:
            for q in trained(model):
                average(q)

    attach(model, hook)


@wrong("averaging-hooks", "values", "mean after the first step", "begin anew with every step")
def counts_to_the_first_step(model, micro_batches):
    calls = Counter()

    def hook(p):
        calls[p] += 1
        if calls[p] == micro_batches:
            average(p)

    attach(model, hook)


@wrong("averaging-hooks", "values", "those were not averaged", "uses the parameter it is called with")
def name_of_the_loop(model, micro_batches):
    calls = Counter()
    for p in trained(model):

        def hook(ignored):
            calls[p] += 1  # noqa: B023  that is the mistake
            if calls[p] % micro_batches == 0:  # noqa: B023
                average(p)  # noqa: B023

        p.register_post_accumulate_grad_hook(hook)


@wrong("averaging-hooks", "values", "with micro_batches = 1 all was right", "look at what is counted")
def one_counter_for_all(model, micro_batches):
    calls = Counter()

    def hook(p):
        calls["all"] += 1
        if calls["all"] % micro_batches == 0:
            average(p)

    attach(model, hook)


@wrong("averaging-hooks", "values", "2 ranks times 3 micro-batches", "shall add up")
def divided_by_micro_batches_too(model, micro_batches):
    calls = Counter()

    def hook(p):
        calls[p] += 1
        if calls[p] % micro_batches == 0:
            average(p)
            p.grad /= micro_batches

    attach(model, hook)
