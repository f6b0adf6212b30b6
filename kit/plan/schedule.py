"""A pipeline schedule: for each rank the actions it takes, in order.

The model is cut into stages 0 to stages-1, of which each rank holds some. A micro-batch goes forward through all of
them and backward the other way. An action is one of them at one stage: F the forward pass, B the whole backward pass,
or, where it is parted, I the gradient of the input and, at any time after it, W that of the weights (zero bubble, Qi et
al. 2023, arXiv 2401.10241, whose B is our I).

In the text form of `torch.distributed.pipelining` an action is stage, kind and micro-batch ('0F0', '3I12'), a row a
rank, actions parted by commas. What is written here runs there and the other way round.
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, NamedTuple, cast

Kind = Literal["F", "B", "I", "W"]
FORWARD: Kind = "F"
BACKWARD: Kind = "B"
INPUT: Kind = "I"
WEIGHT: Kind = "W"
KINDS: tuple[Kind, ...] = (FORWARD, BACKWARD, INPUT, WEIGHT)
PASSES_BACK: frozenset[Kind] = frozenset((BACKWARD, INPUT))  # gives the stage before it a gradient
FREES: frozenset[Kind] = frozenset((BACKWARD, WEIGHT))  # after it activations are needed no more


class Action(NamedTuple):
    stage: int
    kind: Kind
    micro_batch: int

    def __str__(self) -> str:
        return f"{self.stage}{self.kind}{self.micro_batch}"


Row = tuple[Action, ...]

_ACTION = re.compile(r"(\d+)([FBIW])(\d+)")
_TOGETHER = re.compile(r"\(([^()]*)\)OVERLAP_F_B")
_NOT_COMPUTING = re.compile(r"\d+(SEND_F|RECV_F|SEND_B|RECV_B|UNSHARD|RESHARD|REDUCE_GRAD)\d*")


@dataclass(frozen=True)
class Schedule:
    """rows: of each rank its actions in order. stages: of the model. micro_batches: that it is given.

    copies: 2 where two copies of the model run in opposite directions (DualPipe): stage s + stages is then stage s of
    the second, and each micro-batch goes through one of them. together: pairs (rank, position) whose action runs along
    with the next one, as DualPipe overlaps a forward with a backward pass.

    Being a Schedule promises nothing: `kit.plan.flaws` says what is wrong with one.
    """

    name: str
    rows: tuple[Row, ...]
    stages: int
    micro_batches: int
    copies: int = 1
    together: frozenset[tuple[int, int]] = frozenset()

    @property
    def ranks(self) -> int:
        return len(self.rows)

    @cached_property
    def rank_of(self) -> dict[int, int]:
        """Of each stage the rank that computes it: where ranks differ, the one that does most of it."""
        held: dict[int, int] = {}
        most: Counter[int] = Counter()
        for rank, row in enumerate(self.rows):
            for stage, count in Counter(stage for stage, _, _ in row).items():
                if count > most[stage]:
                    most[stage], held[stage] = count, rank
        return held

    @property
    def parted(self) -> bool:
        """Some backward passes are parted into I and W."""
        return any(action.kind == INPUT for row in self.rows for action in row)

    def is_first(self, stage: int) -> bool:
        return stage % self.stages == 0

    def is_last(self, stage: int) -> bool:
        return (stage + 1) % self.stages == 0

    def cells(self, rank: int) -> Iterator[Row]:
        """A rank's actions, those that run together as one."""
        row, position = self.rows[rank], 0
        while position < len(row):
            end = position + (2 if (rank, position) in self.together else 1)
            yield row[position:end]
            position = end

    def with_row(self, rank: int, row: Iterable[Action]) -> Schedule:
        """The same with another row, in which nothing is together any more."""
        rows = (*self.rows[:rank], tuple(row), *self.rows[rank + 1 :])
        return replace(self, rows=rows, together=frozenset(pair for pair in self.together if pair[0] != rank))

    def moved(self, rank: int, position: int, to: int) -> Schedule:
        """The same with one action of a rank at another place of its row. IndexError for one that is not there."""
        row = list(self.rows[rank])
        row.insert(to, row.pop(position))
        return self.with_row(rank, row)

    def text(self) -> str:
        """torch's text form, which its runtime reads (`_load_csv`)."""
        lines = io.StringIO()
        writer = csv.writer(lines, lineterminator="\n")
        for rank in range(self.ranks):
            writer.writerow([_cell_text(cell) for cell in self.cells(rank)])
        return lines.getvalue()

    def __str__(self) -> str:
        return "\n".join(f"rank {rank}: {' '.join(map(_cell_text, self.cells(rank)))}" for rank in range(self.ranks))


def _cell_text(cell: Row) -> str:
    return str(cell[0]) if len(cell) == 1 else f"({';'.join(map(str, cell))})OVERLAP_F_B"


def read(text: str, name: str = "read", stages: int | None = None) -> Schedule:
    """A schedule from torch's text form: a row a rank; empty cells are left out, sends, receives and what concerns
    sharded weights too, since they follow from the rest.

    stages: of the model; None: those that are named. ValueError for a cell that is no action, with its row and column.
    """
    rows: list[Row] = []
    together: set[tuple[int, int]] = set()
    for rank, cells in enumerate(csv.reader(io.StringIO(text.strip("\n")))):
        row: list[Action] = []
        for column, cell in enumerate(cells, start=1):
            said = cell.strip()
            if not said or _NOT_COMPUTING.fullmatch(said):
                continue
            pair = _TOGETHER.fullmatch(said)
            parts = pair[1].split(";") if pair else [said]
            if pair and len(parts) == 2:
                together.add((rank, len(row)))
            row += [_action(part.strip(), rank, column) for part in parts]
        rows.append(tuple(row))
    actions = [action for row in rows for action in row]
    if not actions:
        raise ValueError("there is no action in it: a row for each rank, actions such as 0F0 parted by commas")
    count = max(action.stage for action in actions) + 1
    return Schedule(
        name,
        tuple(rows),
        stages or count,
        max(action.micro_batch for action in actions) + 1,
        copies=1 if stages is None else max(1, -(-count // stages)),
        together=frozenset(together),
    )


def _action(said: str, rank: int, column: int) -> Action:
    found = _ACTION.fullmatch(said)
    if not found:
        raise ValueError(
            f"row {rank}, column {column}: {said!r} is no action: write stage, kind and micro-batch, such as 0F0; "
            "the kinds are F forward, B backward, I and W its two parts"
        )
    return Action(int(found[1]), cast("Kind", found[2]), int(found[3]))


def looped(ranks: int, chunks: int) -> list[list[int]]:
    """Which stages each rank holds when they go round and round: rank r holds r, r + ranks, ... (Megatron's way)."""
    return [list(range(rank, ranks * chunks, ranks)) for rank in range(ranks)]


def v_shaped(ranks: int) -> list[list[int]]:
    """Which stages each rank holds when they go down and up again: rank r holds r and 2 ranks - 1 - r."""
    return [[rank, 2 * ranks - 1 - rank] for rank in range(ranks)]
