"""What the tests of ZeRO run on every rank: a small model with everything that is awkward, drawn apart on purpose."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from kit.topics.data_parallel.reference import broadcast_state
from kit.topics.zero.reference import ZeroStage1, ZeroStage2, ZeroStage3, by_hand

B, T, C, V = 2, 3, 6, 11  # samples of a rank and micro-batch, tokens, channels, words
STEPS = 20
FEW = 5  # where twenty steps would say no more
LR = 1e-2


class Block(nn.Module):
    """One layer: a norm, two matrices and a frozen gate; takes a keyword, returns a tuple. (B, T, C) -> (B, T, C)."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(C)
        self.up = nn.Linear(C, hidden)
        self.down = nn.Linear(hidden, C)
        self.gate = nn.Parameter(1 + torch.rand(C), requires_grad=False)

    def forward(self, x: torch.Tensor, *, scale: float) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.down(torch.tanh(self.up(self.norm(x)))) * self.gate  # (B, T, C)
        return x + scale * y, y.square().mean()


class Words(nn.Module):
    """Loss of the next of 11 words: tied embedding, frozen parameters, a buffer, and layers of different sizes."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(V, C)
        self.scale = nn.Parameter(1 + torch.rand(C), requires_grad=False)
        self.blocks = nn.ModuleList(Block(hidden) for hidden in (7, 9, 8))
        self.norm = nn.LayerNorm(C)
        self.unembed = nn.Linear(C, V, bias=False)
        self.unembed.weight = self.embed.weight
        self.register_buffer("shift", torch.randn(C))

    def forward(self, words: torch.Tensor, following: torch.Tensor) -> torch.Tensor:
        """words, following (B, T) of int64 -> the mean loss ()."""
        x = self.embed(words) * self.scale + self.shift.to(self.scale.dtype)  # (B, T, C)
        extra = x.new_zeros(())
        for block in self.blocks:
            x, more = block(x, scale=0.5)
            extra = extra + more
        logits = self.unembed(self.norm(x)).float() if x.dtype == torch.bfloat16 else self.unembed(self.norm(x))
        return F.cross_entropy(logits.flatten(0, 1), following.flatten()) + 0.01 * extra


def model_of(seed: int, dtype: torch.dtype = torch.float64) -> Words:
    torch.manual_seed(seed)
    return Words().to(dtype)


def batch(step: int, micro: int, ranks: Iterable[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """The samples of these ranks, one rank's after the other's: words and following words (B len(ranks), T)."""
    drawn = []
    for rank in ranks:
        generator = torch.Generator().manual_seed(10_000 * step + 100 * micro + rank)
        drawn.append(torch.randint(V, (B, T + 1), generator=generator))
    tokens = torch.cat(drawn)
    return tokens[:, :-1], tokens[:, 1:]


def flat(tensors: Iterable[torch.Tensor]) -> torch.Tensor:
    return torch.cat([x.detach().flatten().double() for x in tensors])


def state(model: nn.Module) -> torch.Tensor:
    return flat([*model.parameters(), *model.buffers()])


def train(
    model: nn.Module,
    optimizer: Any,
    ranks: Iterable[int],
    micro_batches: int = 1,
    quiet: Any = None,
    steps: int = STEPS,
) -> None:
    """Plain training; quiet: a context for the micro-batches before the last."""
    for step in range(steps):
        optimizer.zero_grad()
        for micro in range(micro_batches):
            last = micro == micro_batches - 1
            with nullcontext() if last or quiet is None else quiet():
                (model(*batch(step, micro, ranks)) / micro_batches).backward()
        optimizer.step()


def with_zero(
    make: Callable[..., Any], m: int, quiet: bool = False, steps: int = STEPS, **options: Any
) -> torch.Tensor:
    """The state after 20 steps of a stage with m micro-batches."""
    zero = make(model_of(1000 + dist.get_rank()), lr=LR, **options)
    train(zero.module, zero, [dist.get_rank()], m, zero.no_sync if quiet else None, steps)
    with zero.full_parameters() as model:
        return state(model)


def stage_1_by_hand(m: int) -> torch.Tensor:
    model, adam = model_of(1000 + dist.get_rank()), dict[str, Any]()
    broadcast_state(model)
    params = [p for p in model.parameters() if p.requires_grad]
    step = Stepped(params, lambda: by_hand.stage_1_step(params, adam, lr=LR))
    train(model, step, [dist.get_rank()], m, steps=FEW)
    return state(model)


def stage_2_by_hand(m: int) -> torch.Tensor:
    model, kept = model_of(1000 + dist.get_rank()), dict[nn.Parameter, torch.Tensor]()
    adams: dict[nn.Parameter, dict[str, Any]] = {}
    broadcast_state(model)
    params = [p for p in model.parameters() if p.requires_grad]
    for step in range(FEW):
        for micro in range(m):
            (model(*batch(step, micro, [dist.get_rank()])) / m).backward()
            by_hand.stage_2_sum(params, kept)
            assert all(p.grad is None for p in params)
        by_hand.stage_2_step(params, kept, adams, lr=LR)
    return state(model)


class Stepped:
    """An optimizer's face for a function that steps."""

    def __init__(self, params: list[nn.Parameter], step: Callable[[], None]) -> None:
        self.params, self.step = params, step

    def zero_grad(self) -> None:
        for p in self.params:
            p.grad = None


def torch_zero_redundancy_optimizer(micro_batches: int) -> torch.Tensor:
    from torch.distributed.optim import ZeroRedundancyOptimizer
    from torch.nn.parallel import DistributedDataParallel

    model = DistributedDataParallel(model_of(1000 + dist.get_rank()))
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = ZeroRedundancyOptimizer(trained, torch.optim.AdamW, lr=LR)
    train(model, optimizer, [dist.get_rank()], micro_batches, model.no_sync)
    return state(model)


def torch_fully_shard(
    micro_batches: int, reshard: bool = True, dtype: torch.dtype = torch.float64, **options: Any
) -> torch.Tensor:
    from torch.distributed.fsdp import fully_shard

    model = model_of(1000 + dist.get_rank(), dtype)
    broadcast_state(model)  # FSDP2 leaves that to its user
    for block in model.blocks:
        fully_shard(block, reshard_after_forward=reshard, **options)
    fully_shard(model, reshard_after_forward=reshard, **options)
    train(model, torch.optim.AdamW(model.parameters(), lr=LR), [dist.get_rank()], micro_batches)
    whole = [p.full_tensor() if hasattr(p, "full_tensor") else p for p in model.parameters()]
    return flat([*whole, *model.buffers()])


STAGES = {"1": ZeroStage1, "2": ZeroStage2, "3": ZeroStage3}


def variant(make: Callable[..., Any], **options: Any) -> Callable[[int], torch.Tensor]:
    return lambda m: with_zero(make, m, steps=FEW, **options)


VARIANTS: dict[str, Callable[[int], torch.Tensor]] = {
    "1, many buckets": variant(ZeroStage1, quiet=True, bucket_bytes=500),
    "1, every micro-batch summed": variant(ZeroStage1),
    "1 by hand": stage_1_by_hand,
    "2, many buckets": variant(ZeroStage2, bucket_bytes=500),
    "2, quiet micro-batches": variant(ZeroStage2, quiet=True),
    "2 by hand": stage_2_by_hand,
    "3, nothing prefetched": variant(ZeroStage3, prefetch=False),
    "3, last layer not kept": variant(ZeroStage3, keep_last=False),
    "3, quiet micro-batches": variant(ZeroStage3, quiet=True),
    "3, one layer": variant(ZeroStage3, layers=[]),
    "3, offloaded": variant(ZeroStage3, offload=True),
}


def by_torch(m: int) -> dict[str, torch.Tensor]:
    """The state after the same 20 steps with torch's own."""
    return {"ZeroRedundancyOptimizer": torch_zero_redundancy_optimizer(m), "fully_shard": torch_fully_shard(m)}


def before_and_apart(micro_batches: int) -> dict[str, torch.Tensor]:
    """What must differ between ranks before it agrees: states, gradients, and training without any sum."""
    r = dist.get_rank()
    model = model_of(1000 + r)
    found = {"state before": state(model)}
    model(*batch(0, 0, [r])).backward()
    found["gradient before"] = flat(p.grad for p in model.parameters() if p.grad is not None)
    model = model_of(1000)
    train(model, torch.optim.AdamW(model.parameters(), lr=LR), [r], micro_batches)
    return {**found, "never summed": state(model)}


def every_stage(micro_batches: int) -> dict[str, torch.Tensor]:
    """The state after 20 steps of each stage; micro-batches of stage 1 are summed once."""
    return {name: with_zero(make, micro_batches, quiet=name == "1") for name, make in STAGES.items()}


def every_variant(micro_batches: int) -> dict[str, torch.Tensor]:
    """The state after a few steps in all other ways."""
    return {name: way(micro_batches) for name, way in VARIANTS.items()}


@contextmanager
def one_thread() -> Iterator[None]:
    """As on a rank: small tensors gain nothing from a second thread, and wait for it where the machine is busy."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@one_thread()
def serial(n: int, micro_batches: int, dtype: torch.dtype = torch.float64, steps: int = STEPS) -> torch.Tensor:
    """The state after the same steps of one process, each on the whole batch, from rank 0's state."""
    model = model_of(1000, dtype)
    train(model, torch.optim.AdamW(model.parameters(), lr=LR), range(n), micro_batches, steps=steps)
    return state(model)


@one_thread()
def serial_mixed(n: int) -> torch.Tensor:
    """The same in 16 bits, with the fp32 master that AdamW changes."""
    model = model_of(1000, torch.float32)
    master = [p.detach().clone().requires_grad_(p.requires_grad) for p in model.parameters()]
    for p in model.parameters():
        p.data = p.data.bfloat16()
    optimizer = torch.optim.AdamW([p for p in master if p.requires_grad], lr=LR)
    for step in range(STEPS):
        model.zero_grad()
        model(*batch(step, 0, range(n))).backward()
        for p, exact in zip(model.parameters(), master, strict=True):
            exact.grad = None if p.grad is None else p.grad.float()
        optimizer.step()
        for p, exact in zip(model.parameters(), master, strict=True):
            p.data.copy_(exact.data)
    return state(model)


def in_precision(name: str) -> dict[str, torch.Tensor]:
    """Twenty steps of each stage and of FSDP2 in fp32 or in mixed precision."""
    r, found = dist.get_rank(), {}
    for stage, make in STAGES.items():
        zero = make(model_of(1000 + r, torch.float32), lr=LR, precision=name)
        train(zero.module, zero, [r])
        with zero.full_parameters() as model:
            found[stage] = state(model)
    options: dict[str, Any] = {}
    if name == "mixed":
        from torch.distributed.fsdp import MixedPrecisionPolicy

        options["mp_policy"] = MixedPrecisionPolicy(param_dtype=torch.bfloat16)
    found["torch fully_shard"] = torch_fully_shard(1, dtype=torch.float32, **options)
    return found
