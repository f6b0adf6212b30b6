"""Training in the manner of picotron, of a course's assignments, of minGPT and of torch's own examples.

Every function returns tensors or numbers that torch's own ranks give bit by bit, on two ranks.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

WIDTH = 8


def mlp(seed: int = 7) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH))


def batch(step: int = 0, rank: int | None = None) -> torch.Tensor:
    seed = 10 * step + (dist.get_rank() if rank is None else rank)
    return torch.randn(4, WIDTH, generator=torch.Generator().manual_seed(seed))


def weights(model: nn.Module) -> list[torch.Tensor]:
    return [p.detach().clone() for p in model.parameters()]


# -- picotron: layers that know their group, gradients in a buffer, stages that pass activations on


class CopyToRegion(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        grad = grad.contiguous()
        dist.all_reduce(grad)
        return grad


class ReduceFromRegion(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        x = x.clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return grad


class ColumnThenRow(nn.Module):
    """Two linear layers cut by columns, then rows."""

    def __init__(self, whole: nn.Sequential) -> None:
        super().__init__()
        rank, size = dist.get_rank(), dist.get_world_size()
        first, last = whole[0], whole[2]
        assert isinstance(first, nn.Linear) and isinstance(last, nn.Linear)
        self.up = nn.Parameter(first.weight.detach().chunk(size, 0)[rank].clone())
        self.down = nn.Parameter(last.weight.detach().chunk(size, 1)[rank].clone())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = CopyToRegion.apply(x)
        x = F.gelu(F.linear(x, self.up))
        out: torch.Tensor = ReduceFromRegion.apply(F.linear(x, self.down))
        return out


def tensor_parallel_by_hand() -> Any:
    model = ColumnThenRow(mlp())
    x = batch(rank=0).requires_grad_()
    y = model(x)
    y.square().mean().backward()
    return y.detach(), x.grad, [p.grad for p in model.parameters()]


class GradientBuffer:
    """Main gradients in one buffer, reduced when the last of them has come."""

    def __init__(self, model: nn.Module) -> None:
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.buffer = torch.zeros(sum(p.numel() for p in self.parameters))
        self.left = len(self.parameters)
        at = 0
        for p in self.parameters:
            p.main_grad = self.buffer[at : at + p.numel()].view_as(p)  # type: ignore[attr-defined]
            at += p.numel()
            p.register_post_accumulate_grad_hook(self.ready)

    def ready(self, p: Any) -> None:
        p.main_grad.add_(p.grad)
        p.grad = None
        self.left -= 1
        if self.left == 0:
            self.buffer /= dist.get_world_size()
            self.work = dist.all_reduce(self.buffer, async_op=True)


def gradients_in_a_buffer() -> Any:
    model = mlp()
    buffer = GradientBuffer(model)
    model(batch()).square().mean().backward()
    buffer.work.wait()
    return buffer.buffer


def stages_pass_activations() -> Any:
    """All forward, then all backward; each message a batch of one."""
    rank, last = dist.get_rank(), dist.get_world_size() - 1

    def pass_on(operation: Any, x: torch.Tensor, to: int) -> torch.Tensor:
        for work in dist.batch_isend_irecv([dist.P2POp(operation, x, to)]):
            work.wait()
        return x

    torch.manual_seed(rank)
    layer = nn.Linear(WIDTH, WIDTH)
    kept = []
    for step in range(3):
        x = batch(step, rank=0) if rank == 0 else pass_on(dist.irecv, torch.empty(4, WIDTH), rank - 1)
        x.requires_grad_(rank > 0)
        y = torch.relu(layer(x))
        if rank < last:
            pass_on(dist.isend, y.detach(), rank + 1)
        kept.append((x, y))
    for x, y in kept:
        if rank == last:
            y.square().mean().backward()
        else:
            y.backward(pass_on(dist.irecv, torch.empty_like(y), rank + 1))
        if rank > 0:
            assert x.grad is not None
            pass_on(dist.isend, x.grad, rank - 1)
    return [p.grad for p in layer.parameters()]


def attention_around_a_ring() -> Any:
    """Keys and values go around; what each rank has seen is put together by logarithms of sums."""
    rank, size = dist.get_rank(), dist.get_world_size()
    q, k, v = batch(0), batch(1), batch(2)
    out, normal = torch.zeros_like(q), torch.full((len(q), 1), -torch.inf)
    for hop in range(size):
        if hop:
            k_next, v_next = torch.empty_like(k), torch.empty_like(v)
            to, source = (rank + 1) % size, (rank - 1) % size
            asked = [dist.P2POp(dist.isend, k, to), dist.P2POp(dist.irecv, k_next, source)]
            asked += [dist.P2POp(dist.isend, v, to), dist.P2POp(dist.irecv, v_next, source)]
            for work in dist.batch_isend_irecv(asked):
                work.wait()
            k, v = k_next, v_next
        scores = q @ k.T / WIDTH**0.5
        here = scores.logsumexp(1, keepdim=True)
        both = torch.logaddexp(normal, here)
        out = out * (normal - both).exp() + (scores.softmax(1) @ v) * (here - both).exp()
        normal = both
    return out


# -- a course's assignments: overlapped averaging, buckets, an optimizer whose state is cut


class OverlappedDDP(nn.Module):
    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        self.handles: list[Any] = []
        for p in module.parameters():
            dist.broadcast(p.data, src=0)
            if p.requires_grad:
                p.register_post_accumulate_grad_hook(self.reduce)

    def reduce(self, p: Any) -> None:
        p.grad /= dist.get_world_size()
        self.handles.append(dist.all_reduce(p.grad, async_op=True))

    def forward(self, *inputs: Any) -> Any:
        return self.module(*inputs)

    def finish_gradient_synchronization(self) -> None:
        for handle in self.handles:
            handle.wait()
        self.handles.clear()


class ShardedOptimizer(torch.optim.Optimizer):
    """Rank r steps every n-th parameter, and all are told."""

    def __init__(self, params: Any, cls: Any, **options: Any) -> None:
        self.everyone: list[Any] = []
        self.cls, self.options = cls, options
        self.inner: Any = None
        super().__init__(params, options)

    def add_param_group(self, group: dict[str, Any]) -> None:
        super().add_param_group(group)
        self.everyone += group["params"]
        mine = self.everyone[dist.get_rank() :: dist.get_world_size()]
        self.inner = self.cls(mine, **self.options)

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        self.inner.step(closure)
        for number, p in enumerate(self.everyone):
            dist.broadcast(p.data, src=number % dist.get_world_size())


def overlapped_with_a_sharded_optimizer() -> Any:
    model = OverlappedDDP(mlp(seed=dist.get_rank()))
    optimizer = ShardedOptimizer(model.parameters(), torch.optim.AdamW, lr=0.1)
    for step in range(2):
        optimizer.zero_grad()
        model(batch(step)).square().mean().backward()
        model.finish_gradient_synchronization()
        optimizer.step()
    return weights(model)


# -- a trainer of a small GPT


class Text(Dataset[Any]):
    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> Any:
        x = (torch.arange(5) * (index + 1)) % 11
        return x[:-1], x[1:]


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (part.unsqueeze(1) for part in self.qkv(self.norm(x)).chunk(3, dim=2))
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        out: torch.Tensor = x + self.out(seen.squeeze(1))
        return out


def trainer_of_a_small_gpt() -> Any:
    torch.set_num_threads(1)  # the gradient of LayerNorm's weight is summed in as many parts as there are threads
    torch.manual_seed(3)
    model = nn.Sequential(nn.Embedding(11, WIDTH), Block(), Block(), nn.Linear(WIDTH, 11))
    ddp = DistributedDataParallel(model, gradient_as_bucket_view=True, static_graph=True)
    sampler = DistributedSampler(Text(), seed=5)
    loader = DataLoader(Text(), batch_size=4, sampler=sampler)
    optimizer = torch.optim.AdamW(ddp.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (step + 1))
    losses = []
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = F.cross_entropy(ddp(x).flatten(0, 1), y.flatten())
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(ddp.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            losses.append(float(loss.detach()))
    return losses, weights(model)


# -- torch's own examples


def checkpoint_of_a_wrapped_model(folder: str) -> Any:
    model = DistributedDataParallel(mlp())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(batch()).square().mean().backward()
    optimizer.step()
    file = os.path.join(folder, "model.pt")
    if dist.get_rank() == 0:
        torch.save(model.state_dict(), file)
    dist.barrier()
    again = DistributedDataParallel(mlp(seed=1))
    again.load_state_dict(torch.load(file, map_location="cpu", weights_only=True))
    return weights(again)


def hooks_that_compress() -> Any:
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    model = DistributedDataParallel(mlp())
    model.register_comm_hook(None, default_hooks.fp16_compress_hook)
    model(batch()).square().mean().backward()
    return [p.grad for p in model.parameters()]


def uneven_inputs_joined() -> Any:
    model = DistributedDataParallel(mlp())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with model.join():
        for step in range(1 + dist.get_rank()):
            optimizer.zero_grad()
            model(batch(step)).square().mean().backward()
            optimizer.step()
    return weights(model)


def sharded_and_saved(folder: str) -> Any:
    """FSDP2 with a distributed checkpoint, read into another model."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, set_model_state_dict
    from torch.distributed.fsdp import fully_shard

    def sharded(seed: int) -> nn.Sequential:
        model = mlp(seed)
        for layer in (model[0], model[2]):
            fully_shard(layer)
        fully_shard(model)
        return model

    model = sharded(7)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    for step in range(2):
        model(batch(step)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    dcp.save({"model": get_model_state_dict(model)}, checkpoint_id=Path(folder) / "sync")
    dcp.async_save({"model": get_model_state_dict(model)}, checkpoint_id=Path(folder) / "async").result()
    for name in ("sync", "async"):
        again = sharded(1)
        read = {"model": get_model_state_dict(again)}
        dcp.load(read, checkpoint_id=Path(folder) / name)
        set_model_state_dict(again, read["model"])
        model = again
    return get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))


def sequence_parallel() -> Any:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    plan = {"0": ColwiseParallel(input_layouts=Shard(0)), "2": RowwiseParallel(output_layouts=Shard(0))}
    model = parallelize_module(mlp(), mesh, plan)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(batch()).square().mean().backward()
    optimizer.step()
    whole: Any = [p.full_tensor().detach() for p in model.parameters()]  # type: ignore[attr-defined]
    return whole


def interleaved_pipeline() -> Any:
    from torch.distributed.pipelining import PipelineStage, ScheduleInterleaved1F1B

    rank, size = dist.get_rank(), dist.get_world_size()
    numbers = [rank, rank + size]
    layers = []
    for number in numbers:
        torch.manual_seed(number)
        layers.append(nn.Linear(WIDTH, WIDTH))
    cpu = torch.device("cpu")
    stages = [PipelineStage(layer, n, 2 * size, cpu) for layer, n in zip(layers, numbers, strict=True)]
    schedule = ScheduleInterleaved1F1B(stages, 4, loss_fn=lambda y, target: (y - target).square().mean())
    if rank == 0:
        schedule.step(batch(0, rank=0))
    else:
        schedule.step(target=batch(1, rank=0))
    return [layer.weight.grad for layer in layers]


def compiled_around_ddp() -> Any:
    model = torch.compile(DistributedDataParallel(mlp()), backend="eager")
    for step in range(3):
        model(batch(step)).square().mean().backward()
    return [p.grad for p in model.parameters()]


EVERY = [
    tensor_parallel_by_hand,
    gradients_in_a_buffer,
    stages_pass_activations,
    attention_around_a_ring,
    overlapped_with_a_sharded_optimizer,
    trainer_of_a_small_gpt,
    hooks_that_compress,
    uneven_inputs_joined,
    sequence_parallel,
    interleaved_pipeline,
    compiled_around_ddp,
]
WITH_A_FOLDER = [checkpoint_of_a_wrapped_model, sharded_and_saved]
