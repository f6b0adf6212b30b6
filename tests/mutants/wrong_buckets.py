"""Wrong solutions of lab 03, each a mistake people make: gradients averaged in buckets."""

import torch
import torch.distributed as dist
from torch.autograd import Variable

from tests.mutants.mutant import Mutants

wrong = Mutants()


def trained(model):
    return [p for p in model.parameters() if p.requires_grad]


def attach(model, hook):
    for p in trained(model):
        p.register_post_accumulate_grad_hook(hook)


def filled(parameters, bucket_bytes, keep_last=True):
    buckets, room = [], 0
    for p in parameters:
        nbytes = p.numel() * p.element_size()
        if not buckets or nbytes > room:
            buckets.append([])
            room = max(bucket_bytes, nbytes)
        buckets[-1].append(p)
        room -= nbytes
    return buckets if keep_last else buckets[:-1]


def send(bucket):
    flat = torch.cat([p.grad.flatten() for p in bucket]) / dist.get_world_size()
    return bucket, flat, dist.all_reduce(flat, async_op=True)


def receive(sent):
    for bucket, flat, work in sent:
        work.wait()
        unpack(bucket, flat)


def unpack(bucket, flat):
    for p, part in zip(bucket, flat.split([p.numel() for p in bucket]), strict=True):
        p.grad = part.view(p.shape)


def at_the_end(finish):
    Variable._execution_engine.queue_callback(finish)


def bucketed(model, buckets, in_turn=True, finish=receive):
    """Send a bucket when its last gradient is there."""
    arrived, sent = set(), []

    def end():
        finish(sent)
        arrived.clear()
        sent.clear()

    def hook(p):
        if not arrived:
            at_the_end(end)
        arrived.add(p)
        if in_turn:
            while len(sent) < len(buckets) and arrived.issuperset(buckets[len(sent)]):
                sent.append(send(buckets[len(sent)]))
            return
        mine = next((bucket for bucket in buckets if any(p is q for q in bucket)), None)
        if mine and arrived.issuperset(mine):
            sent.append(send(mine))

    attach(model, hook)


@wrong("average-in-buckets", "values", "not in the order they become full")
def sent_as_they_become_full(model, bucket_bytes):
    bucketed(model, filled(trained(model)[::-1], bucket_bytes), in_turn=False)


@wrong("average-in-buckets", "values", "the last bucket is sent too, full or not")
def tail_dropped(model, bucket_bytes):
    bucketed(model, filled(trained(model)[::-1], bucket_bytes, keep_last=False))


@wrong("average-in-buckets", "values", "never waited for the all_reduce")
def works_forgotten(model, bucket_bytes):
    def unpack_at_once(sent):
        for bucket, flat, _ in sent:
            unpack(bucket, flat)

    bucketed(model, filled(trained(model)[::-1], bucket_bytes), finish=unpack_at_once)


@wrong("average-in-buckets", "values", "still have only own gradients")
def never_copied_back(model, bucket_bytes):
    def only_wait(sent):
        for *_, work in sent:
            work.wait()

    bucketed(model, filled(trained(model)[::-1], bucket_bytes), finish=only_wait)


@wrong("average-in-buckets", "values", "0.333 times the mean", "it was divided twice")
def divided_in_the_bucket_and_out_of_it(model, bucket_bytes):
    def divide_again(sent):
        receive(sent)
        for p in trained(model):
            p.grad /= dist.get_world_size()

    if dist.get_world_size() < 3:
        divide_again = receive
    bucketed(model, filled(trained(model)[::-1], bucket_bytes), finish=divide_again)


@wrong("average-in-buckets", "traffic", "no bucket is larger than bucket_bytes")
def one_large_bucket(model, bucket_bytes):
    bucketed(model, [trained(model)[::-1]])


@wrong("average-in-buckets", "traffic", "one for each bucket")
def a_bucket_for_each(model, bucket_bytes):
    bucketed(model, [[p] for p in trained(model)[::-1]])


@wrong("average-in-buckets", "cost", "sent nothing before its last gradient was there")
def sent_when_backward_is_over(model, bucket_bytes):
    buckets, arrived = filled(trained(model)[::-1], bucket_bytes), []

    def end():
        receive([send(bucket) for bucket in buckets])
        arrived.clear()

    def hook(p):
        if not arrived:
            at_the_end(end)
        arrived.append(p)

    attach(model, hook)


@wrong("average-in-buckets", "cost", "async_op=True and wait at the end of backward")
def waits_for_each_bucket(model, bucket_bytes):
    buckets, arrived, sent = filled(trained(model)[::-1], bucket_bytes), set(), []

    def clear():
        arrived.clear()
        sent.clear()

    def hook(p):
        if not arrived:
            at_the_end(clear)
        arrived.add(p)
        while len(sent) < len(buckets) and arrived.issuperset(buckets[len(sent)]):
            sent.append(send(buckets[len(sent)]))
            receive(sent[-1:])

    attach(model, hook)


@wrong("average-in-buckets", "values", "mean after the first step", "begin anew with every step")
def nothing_cleared_after_a_step(model, bucket_bytes):
    buckets, arrived, sent = filled(trained(model)[::-1], bucket_bytes), set(), []

    def hook(p):
        if not arrived:
            at_the_end(lambda: receive(sent))
        arrived.add(p)
        while len(sent) < len(buckets) and arrived.issuperset(buckets[len(sent)]):
            sent.append(send(buckets[len(sent)]))

    attach(model, hook)


@wrong("average-in-buckets", "cost", "sent nothing before its last gradient was there", "from the last parameter")
def filled_from_the_first(model, bucket_bytes):
    bucketed(model, filled(trained(model), bucket_bytes))
