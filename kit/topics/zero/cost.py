"""What ZeRO's stages leave on a rank, by formula; and so on how many nodes a model fits.

Letters: P parameters, N ranks, L layers. Bytes of weights, gradients and optimizer, and for stage 3 of the whole layer
in hand. What is not counted: activations (`kit.cost.memory`), buckets, libraries, what an allocator cannot use. So
'fits' says that training is not hopeless, and `left` how much there is for the rest. What the stages send is in
`kit.cost.training`. ValueError for what makes no sense.

R   S. Rajbhandari, J. Rasley, O. Ruwase, Y. He, ZeRO: memory optimizations toward training trillion parameter models
    (2020), section 3 and figure 1: the three stages
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kit.cost.machines import POLARIS, Machine
from kit.cost.training import STAGES
from kit.tables import Rows, Table
from kit.trace.text import counted


@dataclass(frozen=True, slots=True)
class Precision:
    """Bytes that each parameter needs, in three kinds."""

    weight: int
    gradient: int
    optimizer: int  # k of R


MIXED = Precision(2, 2, 12)  # 16 bits; the optimizer keeps fp32 weights and two moments, so k = 12 (R)
FP32 = Precision(4, 4, 8)  # no copy of the weights to keep, so k = 8; autocast, too: its weights stay fp32


@dataclass(frozen=True, slots=True)
class State:
    """Bytes of one rank that do not depend on the batch."""

    weights: int
    gradients: int
    optimizer: int

    @property
    def total(self) -> int:
        return self.weights + self.gradients + self.optimizer


def model_state(
    parameters: int,
    *,
    ranks: int = 1,
    stage: int = 0,
    precision: Precision = MIXED,
    rank: int = 0,
    padded: bool = False,
) -> State:
    """Weights, gradients and optimizer state that `rank` holds, in whole bytes, for any N (R).

    stage 0 (data parallel): (2 + 2 + k) P. 1 shards the optimizer: 4P + kP/N. 2 the gradients too: 2P + (2 + k)P/N.
    3 the weights too: (4 + k)P/N. In fp32: 16P; 8P + 8P/N; 4P + 12P/N; 16P/N.
    Shards are those of `shard_size`; rank 0 holds the largest.
    """
    if stage not in STAGES:
        raise ValueError(f"stage is 0 (plain data parallel), 1, 2 or 3, not {stage!r}")
    if not isinstance(precision, Precision):
        raise ValueError(f"precision is MIXED or FP32 of kit.topics.zero.cost, or a Precision, not {precision!r}")
    mine = shard_size(parameters, ranks, rank=rank, padded=padded)
    return State(
        weights=precision.weight * (mine if stage >= 3 else parameters),
        gradients=precision.gradient * (mine if stage >= 2 else parameters),
        optimizer=precision.optimizer * (mine if stage >= 1 else parameters),
    )


def shard_size(parameters: int, ranks: int, *, rank: int = 0, padded: bool = False) -> int:
    """Elements of one rank's shard of P.

    As `torch.tensor_split` cuts, the first P mod N ranks have one more; `padded`: all have as many as the first, so
    that collectives of equal pieces can be used, and the last shard ends in zeros.
    """
    if not (parameters >= 0 and ranks >= 1):  # a NaN is not either
        raise ValueError(f"give 0 parameters or more and 1 rank or more, not {parameters} parameters on {ranks} ranks")
    if not 0 <= rank < ranks:
        raise ValueError(f"rank {rank} is none of {ranks} ranks: they go from 0 to {ranks - 1}")
    return -(-parameters // ranks) if padded else parameters // ranks + (rank < parameters % ranks)


def layer_in_hand(parameters: int, layers: int, precision: Precision = MIXED) -> int:
    """Bytes of the whole layer that stage 3 gathers to compute with, its whole gradients included; rounded up.

    Layers of equal size; fetching the next one early doubles the weights. FSDP's documentation calls it the unsharded
    parameters of one unit.
    """
    if not layers >= 1:
        raise ValueError(f"a model has at least one layer, not {layers}")
    return (precision.weight + precision.gradient) * -(-parameters // layers)


@dataclass(frozen=True, slots=True)
class Model:
    """As large as its name says, in round figures, with its layers."""

    name: str
    parameters: int
    layers: int


# 7B, 13B, 70B: H. Touvron and others, Llama 2 (2023); 405B: A. Dubey and others, The Llama 3 herd of models (2024).
MODELS = (
    Model("7B", 7 * 10**9, 32),
    Model("13B", 13 * 10**9, 40),
    Model("70B", 70 * 10**9, 80),
    Model("405B", 405 * 10**9, 126),
)


@dataclass(frozen=True, slots=True)
class Fitting:
    """One model on so many nodes with one stage, in bytes per rank."""

    model: Model
    stage: int
    nodes: int
    ranks: int
    needed: int
    memory: int

    @property
    def fits(self) -> bool:
        return self.needed <= self.memory

    @property
    def left(self) -> int:
        """Bytes for activations and all else; negative where it does not fit."""
        return self.memory - self.needed

    def __str__(self) -> str:
        how = "plain data parallel" if self.stage == 0 else f"ZeRO stage {self.stage}"
        end = f"fits, {_gb(self.left)} left for the rest" if self.fits else f"{_gb(-self.left)} too many"
        return (
            f"{self.model.name}, {how}, {counted(self.nodes, 'node')} ({self.ranks} ranks):"
            f" {_gb(self.needed)} of {_gb(self.memory)}: {end}"
        )


def fitting(
    model: Model, nodes: int, stage: int, machine: Machine = POLARIS, precision: Precision = MIXED, in_hand: int = 1
) -> Fitting:
    """Bytes per rank of `model` on so many nodes, one rank for each accelerator.

    in_hand: whole layers of stage 3; 2 where the next one is fetched early. ValueError for nodes there are not.
    """
    if not 1 <= nodes <= machine.nodes:
        raise ValueError(f"{machine.name} has 1 to {machine.nodes} nodes, not {nodes}")
    ranks = nodes * machine.per_node
    needed = model_state(model.parameters, ranks=ranks, stage=stage, precision=precision).total
    if stage == 3:
        needed += in_hand * layer_in_hand(model.parameters, model.layers, precision)
    return Fitting(model, stage, nodes, ranks, needed, machine.accelerator.memory)


def fewest_nodes(
    model: Model, stage: int, machine: Machine = POLARIS, precision: Precision = MIXED, in_hand: int = 1
) -> int | None:
    """The smallest number of nodes on which it fits; None where not even all of them are enough."""
    low, high = 1, machine.nodes
    if not fitting(model, high, stage, machine, precision, in_hand).fits:
        return None
    while low < high:  # more nodes never need more memory per rank
        middle = (low + high) // 2
        if fitting(model, middle, stage, machine, precision, in_hand).fits:
            high = middle
        else:
            low = middle + 1
    return low


@dataclass(frozen=True, repr=False)
class FittingTable(Table):
    """The fewest nodes by model and stage, read as a table."""

    machine: Machine
    models: tuple[Model, ...]
    nodes: tuple[tuple[int | None, ...], ...]  # by model, then by stage 0 to 3

    def table(self) -> tuple[str, Rows, Sequence[str]]:
        one = self.machine.accelerator
        each = f"{self.machine.per_node} x {one.name}, {one.memory / 2**30:g} GiB each"
        title = f"Fewest nodes of {self.machine.name} ({each}) for weights, gradients and optimizer"
        head = ["model", "data parallel", *(f"stage {stage}" for stage in STAGES[1:])]
        cells = [["never" if count is None else counted(count, "node") for count in row] for row in self.nodes]
        return title, [head, *([model.name, *row] for model, row in zip(self.models, cells, strict=True))], ()


def fitting_table(
    models: Sequence[Model] = MODELS, machine: Machine = POLARIS, precision: Precision = MIXED
) -> FittingTable:
    """`fewest_nodes` of every model with every stage."""
    found = tuple(tuple(fewest_nodes(model, stage, machine, precision) for stage in STAGES) for model in models)
    return FittingTable(machine, tuple(models), found)


def _gb(nbytes: float) -> str:
    return f"{nbytes / 1e9:.3g} GB"
