"""Wrong solutions of lab 03, each a mistake people make: state, and gradients averaged by hand."""

import torch
import torch.distributed as dist

from tests.mutants.mutant import Mutants

wrong = Mutants()


def trained(model):
    return [p for p in model.parameters() if p.requires_grad]


# equal-start


@wrong("equal-start", "values", "still has its own state")
def same_seed_for_everyone(model, source):
    torch.manual_seed(0)  # too late: the model is made


@wrong("equal-start", "values", "wrong source", "rank 0")
def always_from_rank_zero(model, source):
    for x in [*model.parameters(), *model.buffers()]:
        dist.broadcast(x.detach(), 0)


@wrong("equal-start", "values", "still has its own mask", "a buffer")
def without_buffers(model, source):
    for p in model.parameters():
        dist.broadcast(p.detach(), source)


@wrong("equal-start", "values", "still has its own scale", "frozen")
def without_frozen_ones(model, source):
    for x in [*trained(model), *model.buffers()]:
        dist.broadcast(x.detach(), source)


@wrong("equal-start", "values", "mean of all states", "no state anybody drew")
def averaged_states(model, source):
    for x in [*model.parameters(), *model.buffers()]:
        dist.all_reduce(x.detach())
        x.detach().div_(dist.get_world_size())


@wrong("equal-start", "values", "still has its own state")
def copies_of_the_state(model, source):
    for x in [*model.parameters(), *model.buffers()]:
        dist.broadcast(x.detach().clone(), source)  # what arrives is thrown away


@wrong("equal-start", "values", "all name the same source")
def only_the_source_calls(model, source):
    if dist.get_rank() == source:
        for x in [*model.parameters(), *model.buffers()]:
            dist.broadcast(x.detach(), source)


@wrong("equal-start", "traffic", "two modules share", "is sent once")
def shared_one_twice(model, source):
    for module in model.modules():
        for x in [*module._parameters.values(), *module._buffers.values()]:
            dist.broadcast(x.detach(), source)


@wrong("equal-start", "values", "AttributeError", "in place, and returns None")
def uses_what_broadcast_returns(model, source):
    for x in [*model.parameters(), *model.buffers()]:
        x.data = dist.broadcast(x.detach(), source).data


@wrong("equal-start", "traffic", "kB where", "bytes are enough", "every parameter and every buffer once")
def pickled_state(model, source):
    box = [model.state_dict() if dist.get_rank() == source else None]
    dist.broadcast_object_list(box, src=source)
    model.load_state_dict(box[0])


# average-gradients


def with_zeros(model):
    for p in trained(model):
        if p.grad is None:
            p.grad = torch.zeros_like(p)
        yield p


@wrong("average-gradients", "values", "was not divided by the world size")
def sum_not_mean(model):
    for p in with_zeros(model):
        dist.all_reduce(p.grad)


@wrong("average-gradients", "values", "0.4 times the mean", "divided by 5", "the number of parameters")
def divided_by_the_number_of_parameters(model):
    for p in with_zeros(model):
        dist.all_reduce(p.grad)
        p.grad /= len(trained(model))


@wrong("average-gradients", "values", "it was divided twice")
def divided_before_and_after(model):
    n = dist.get_world_size()
    for p in with_zeros(model):
        p.grad /= n
        dist.all_reduce(p.grad)
        p.grad /= n


@wrong("average-gradients", "values", "it adds zeros, and the others wait for it")
def skips_what_has_no_gradient(model):
    for p in trained(model):
        if p.grad is not None:
            dist.all_reduce(p.grad)
            p.grad /= dist.get_world_size()


@wrong("average-gradients", "values", "changed its parameters", "p.grad and not p")
def averages_parameters(model):
    for p in trained(model):
        dist.all_reduce(p.detach())
        p.detach().div_(dist.get_world_size())


@wrong("average-gradients", "values", "still have only own gradients", "nobody puts into p.grad")
def averages_a_copy(model):
    for p in with_zeros(model):
        mean = p.grad / dist.get_world_size()
        dist.all_reduce(mean)


@wrong("average-gradients", "values", "only rank 0 is right")
def reduced_to_rank_zero(model):
    for p in with_zeros(model):
        total = p.grad.clone()
        dist.reduce(total, dst=0)
        if dist.get_rank() == 0:
            p.grad = total / dist.get_world_size()


@wrong("average-gradients", "values", "never waited for the all_reduce")
def never_waits(model):
    for p in with_zeros(model):
        p.grad /= dist.get_world_size()
        dist.all_reduce(p.grad, async_op=True)


@wrong("average-gradients", "traffic", "a shared one counts once")
def shared_gradient_twice(model):
    n = dist.get_world_size()
    for module in model.modules():
        for p in module._parameters.values():
            if p.requires_grad:
                p.grad = torch.zeros_like(p) if p.grad is None else p.grad / n
                dist.all_reduce(p.grad)


@wrong("average-gradients", "traffic", "built-in all_gather", "all_reduce, which sums")
def gathers_everything(model):
    for p in with_zeros(model):
        everyone = [torch.empty_like(p) for _ in range(dist.get_world_size())]
        dist.all_gather(everyone, p.grad)
        p.grad = sum(everyone) / len(everyone)


@wrong("average-gradients", "values", "TypeError", "A frozen parameter's p.grad is None")
def frozen_ones_too(model):
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.grad /= dist.get_world_size()


@wrong("average-gradients", "values", "TypeError", "in place, and returns None")
def uses_what_all_reduce_returns(model):
    for p in with_zeros(model):
        p.grad = dist.all_reduce(p.grad) / dist.get_world_size()
