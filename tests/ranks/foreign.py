"""Functions in the manner of torch's own users, each ending in numbers that do not depend on the order of ranks."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import nn


def mlp() -> nn.Sequential:
    torch.manual_seed(7)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))


def batch(step: int = 0) -> torch.Tensor:
    return torch.randn(4, 8, generator=torch.Generator().manual_seed(10 * step + dist.get_rank()))


def tensor_parallel() -> Any:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = parallelize_module(mlp(), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    y = model(torch.ones(4, 8))
    y.square().mean().backward()
    return y.detach().clone(), model[0].weight.grad.full_tensor()


def mesh_of_two_dimensions() -> Any:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (2, dist.get_world_size() // 2), mesh_dim_names=("data", "tensor"))
    whole = distribute_tensor(torch.arange(64.0).reshape(8, 8), mesh, [Shard(0), Shard(1)])
    product = whole @ whole.redistribute(mesh, [Replicate(), Shard(0)])
    return product.full_tensor()


def functional() -> Any:
    import torch.distributed._functional_collectives as functional

    x = torch.full((4,), 1.0 + dist.get_rank(), requires_grad=True)
    y = functional.all_reduce(x.detach() * 2, "sum", dist.group.WORLD)
    z = y + 1
    gather = getattr(functional, "all_gather_single_autograd", None) or functional.all_gather_tensor_autograd
    gathered = gather(x, 0, dist.group.WORLD)
    (gathered * torch.arange(4.0 * dist.get_world_size())).sum().backward()
    return z.clone(), x.grad


def sharded_optimizer() -> Any:
    from torch.distributed.optim import ZeroRedundancyOptimizer
    from torch.nn.parallel import DistributedDataParallel

    model = DistributedDataParallel(mlp())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.SGD, lr=0.1)
    model(batch()).square().mean().backward()
    optimizer.step()
    return [p.detach().clone() for p in model.parameters()]


def pipeline() -> Any:
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    layer = nn.Linear(8, 8)
    stage = PipelineStage(layer, rank, size, torch.device("cpu"))
    schedule = Schedule1F1B(stage, n_microbatches=4, loss_fn=lambda y, target: (y - target).square().mean())
    if rank == 0:
        schedule.step(torch.ones(8, 8))
    elif rank == size - 1:
        schedule.step(target=torch.zeros(8, 8))
    else:
        schedule.step()
    return layer.weight.grad.clone()


def coalesced_messages() -> Any:
    from torch.distributed.distributed_c10d import _coalescing_manager

    rank, size = dist.get_rank(), dist.get_world_size()
    out, into = torch.full((3,), float(rank)), torch.zeros(3)
    with _coalescing_manager(device=torch.device("cpu"), async_ops=True) as both:
        dist.isend(out, (rank + 1) % size)
        dist.irecv(into, (rank - 1) % size)
    both.wait()
    return into.clone()


def barriers() -> Any:
    x = torch.full((1,), float(dist.get_rank()))
    dist.monitored_barrier(timeout=timedelta(seconds=60))
    dist.barrier(async_op=True).wait()
    dist.all_reduce(x)
    return x


def sparse() -> Any:
    x = torch.eye(3).to_sparse()
    dist.all_reduce(x)
    return x.to_dense()


def uneven_exchange() -> Any:
    rank, size = dist.get_rank(), dist.get_world_size()
    give = [(rank + other) % 3 + 1 for other in range(size)]
    take = [(other + rank) % 3 + 1 for other in range(size)]
    into = torch.empty(sum(take))
    dist.all_to_all_single(into, torch.arange(float(sum(give))) + 100 * rank, take, give)
    return into


class Two(nn.Module):
    """Made where it is stepped: its `self` is in scope before Module.__init__ has run."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.a = nn.Linear(8, 8)
        self.b = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor, which: int) -> torch.Tensor:
        return self.a(x) if which else self.b(x)


def unused_parameters() -> Any:
    from torch.nn.parallel import DistributedDataParallel

    model = DistributedDataParallel(Two(), find_unused_parameters=True)
    model(batch(), dist.get_rank() % 2).square().mean().backward()
    return [p.grad.clone() for p in model.parameters()]


def own_hook() -> Any:
    from torch.nn.parallel import DistributedDataParallel

    def average(state, bucket):  # type: ignore[no-untyped-def]  # DDP refuses annotations that are text
        flat = bucket.buffer().div_(dist.get_world_size())
        return dist.all_reduce(flat, async_op=True).get_future().then(lambda done: done.value()[0])

    model = DistributedDataParallel(mlp())
    model.register_comm_hook(None, average)
    with model.no_sync():
        model(batch(0)).square().mean().backward()
    model(batch(1)).square().mean().backward()
    return [p.grad.clone() for p in model.parameters()]


def let_go_by_fsdp() -> Any:
    """Holds on to a gathered weight after FSDP has freed its memory."""
    from torch.distributed.fsdp import fully_shard

    model = Two()
    fully_shard(model.a)
    fully_shard(model.b)
    fully_shard(model)
    seen: list[torch.Tensor] = []
    model.a.register_forward_pre_hook(lambda module, inputs: seen.append(module.weight))
    y = model(batch(), 1)
    weight = seen[0]
    y.sum().backward()
    del weight
    return [p.full_tensor().detach() for p in model.parameters()]


def from_another_thread() -> Any:
    x, y = torch.full((1,), float(dist.get_rank())), torch.ones(1)
    group = dist.new_group(list(range(dist.get_world_size())))
    helper = threading.Thread(target=dist.all_reduce, args=(x,), kwargs={"group": group})
    helper.start()
    dist.all_reduce(y)
    helper.join()
    return x, y


EVERY = [
    tensor_parallel,
    mesh_of_two_dimensions,
    functional,
    sharded_optimizer,
    pipeline,
    coalesced_messages,
    barriers,
    sparse,
    uneven_exchange,
    unused_parameters,
    own_hook,
    let_go_by_fsdp,
    from_another_thread,
]
