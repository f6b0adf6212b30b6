"""Functions that go wrong on purpose, one fault each; written for three ranks."""

from __future__ import annotations

import os

import torch
import torch.distributed as dist


def one_returns(x: torch.Tensor) -> None:
    if dist.get_rank() != 1:
        dist.all_reduce(x)


def shapes(x: torch.Tensor) -> None:
    dist.all_reduce(torch.ones(4 if dist.get_rank() else 6))


def operations(x: torch.Tensor) -> None:
    if dist.get_rank() == 2:
        dist.broadcast(x, 0)
    else:
        dist.all_reduce(x)


def dtypes(x: torch.Tensor) -> None:
    dist.all_reduce(torch.ones(4, dtype=torch.float64 if dist.get_rank() else torch.float32))


def sources(x: torch.Tensor) -> None:
    dist.broadcast(x, src=dist.get_rank() % 2)


def both_send_first(x: torch.Tensor) -> None:
    other = 1 - dist.get_rank()
    if other >= 0:
        dist.send(x, other)
        dist.recv(x, other)


def message_too_large(x: torch.Tensor) -> None:
    if dist.get_rank() == 0:
        dist.send(torch.ones(8), 1)
    if dist.get_rank() == 1:
        dist.recv(torch.ones(4), 0)


def raises(x: torch.Tensor) -> None:
    if dist.get_rank() == 1:
        raise ValueError("boom")
    dist.all_reduce(x)


def another_model() -> None:
    mine = (2, 4) if dist.get_rank() == 1 else (3, 4)
    for shape in (mine, (3,), (2, 3), (2,)):  # the root does not wait until the first has come
        dist.broadcast(torch.ones(shape), 0)


def exits(x: torch.Tensor) -> None:
    if dist.get_rank() == 1:
        os._exit(3)
    dist.all_reduce(x)


def endless(x: torch.Tensor, sign: str | None = None) -> None:
    if sign is not None and dist.get_rank() == 0:
        open(sign, "x").close()
    while dist.get_rank() == 1:
        x = x + 1
    dist.all_reduce(x)


def clash_beside_an_endless_loop(x: torch.Tensor) -> None:
    while dist.get_rank() == 1:
        x = x + 1
    operations(x)


def long_in_c(x: torch.Tensor) -> torch.Tensor:
    if dist.get_rank() == 1:
        sum(range(2 * 10**8))  # holds the interpreter's lock for some seconds
    dist.all_reduce(x)
    return x


def unfit_for_gloo_on_one_rank(x: torch.Tensor) -> None:
    if dist.get_rank() == 0:
        x = x.to_mkldnn()  # the same shape and type: ranks agree, and gloo refuses it
    dist.all_reduce(x)


def fine(x: torch.Tensor) -> torch.Tensor:
    dist.all_reduce(x)
    return x
