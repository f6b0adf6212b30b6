"""Does a model fit? Bytes per rank by ZeRO stage and number of nodes, beside the memory of one accelerator.

What is counted: weights, gradients and optimizer, and for stage 3 the whole layer in hand. What is not: activations,
buckets, libraries. So 'fits' says that training is not hopeless, and `left` how much there is for the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kit.cost.machines import POLARIS, Machine
from kit.cost.memory import MIXED, STAGES, Precision, layer_in_hand, model_state
from kit.cost.table import html_table, text_table


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
            f"{self.model.name}, {how}, {_nodes(self.nodes)} ({self.ranks} ranks):"
            f" {_gb(self.needed)} of {_gb(self.memory)}: {end}"
        )


def fitting(model: Model, nodes: int, stage: int, machine: Machine = POLARIS, precision: Precision = MIXED) -> Fitting:
    """Bytes per rank of `model` on so many nodes, one rank for each accelerator. ValueError for nodes there are not."""
    if not 1 <= nodes <= machine.nodes:
        raise ValueError(f"{machine.name} has 1 to {machine.nodes} nodes, not {nodes}")
    ranks = nodes * machine.per_node
    needed = model_state(model.parameters, ranks=ranks, stage=stage, precision=precision).total
    if stage == 3:
        needed += layer_in_hand(model.parameters, model.layers, precision)
    return Fitting(model, stage, nodes, ranks, needed, machine.accelerator.memory)


def fewest_nodes(model: Model, stage: int, machine: Machine = POLARIS, precision: Precision = MIXED) -> int | None:
    """The smallest number of nodes on which it fits; None where not even all of them are enough."""
    low, high = 1, machine.nodes
    if not fitting(model, high, stage, machine, precision).fits:
        return None
    while low < high:  # more nodes never need more memory per rank
        middle = (low + high) // 2
        if fitting(model, middle, stage, machine, precision).fits:
            high = middle
        else:
            low = middle + 1
    return low


@dataclass(frozen=True)
class FittingTable:
    """The fewest nodes by model and stage. `str()` is a table, a notebook shows it as one."""

    machine: Machine
    models: tuple[Model, ...]
    nodes: tuple[tuple[int | None, ...], ...]  # by model, then by stage 0 to 3

    def __str__(self) -> str:
        return text_table(self._title(), self._rows())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return html_table(self._title(), self._rows())

    def _title(self) -> str:
        one = self.machine.accelerator
        each = f"{self.machine.per_node} x {one.name}, {one.memory / 2**30:g} GiB each"
        return f"Fewest nodes of {self.machine.name} ({each}) for weights, gradients and optimizer"

    def _rows(self) -> list[list[str]]:
        head = ["model", "data parallel", *(f"stage {stage}" for stage in STAGES[1:])]
        cells = [["never" if count is None else _nodes(count) for count in row] for row in self.nodes]
        return [head, *([model.name, *row] for model, row in zip(self.models, cells, strict=True))]


def fitting_table(
    models: Sequence[Model] = MODELS, machine: Machine = POLARIS, precision: Precision = MIXED
) -> FittingTable:
    """`fewest_nodes` of every model with every stage."""
    found = tuple(tuple(fewest_nodes(model, stage, machine, precision) for stage in STAGES) for model in models)
    return FittingTable(machine, tuple(models), found)


def _nodes(count: int) -> str:
    return "1 node" if count == 1 else f"{count} nodes"


def _gb(nbytes: float) -> str:
    return f"{nbytes / 1e9:.3g} GB"
