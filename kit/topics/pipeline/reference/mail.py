"""Activations and gradients on their way between ranks.

Both ends know the schedule, so both know in which order a rank makes what the other takes. A receive is posted before
what it brings is needed, and while the rank computes; a send is waited for at the end of the step.

Each direction between two ranks has a communicator of its own. On one that served both, a receive that waits for what
is not made yet would stand before a send that the other rank waits for: nccl does what a communicator is asked for
strictly in order, and gloo's messages without tags would be taken for one another.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import torch
import torch.distributed as dist

from kit.topics.data_parallel.reference.built_in import Group

Tensor = torch.Tensor


class Action(Protocol):
    """What a rank does for one micro-batch at one stage. kind: 'F', 'B', or 'I' and 'W', the two parts of B."""

    @property
    def stage(self) -> int: ...
    @property
    def kind(self) -> str: ...
    @property
    def micro_batch(self) -> int: ...


Rows = Sequence[Sequence[Action]]  # by rank


class Letter(NamedTuple):
    """What a stage is given: an activation ('F') by the one before it, a gradient ('B') by the one after it."""

    stage: int
    kind: str
    micro_batch: int


class Route(NamedTuple):
    """By ranks of the pipeline."""

    source: int
    to: int


class Mail:
    """This rank's end of all routes. All ranks of the world make one at the same time: groups are made.

    rows: the schedule. depth: stages of one copy of the model. like: a tensor as they all travel. group: the ranks of
    this pipeline, None: all there are.
    """

    def __init__(self, rows: Rows, depth: int, like: Tensor, group: Group = None) -> None:
        self._like = like
        self._me = dist.get_rank(group)
        self._home = {action.stage: rank for rank, row in enumerate(rows) for action in row}
        self._letters = self._planned(rows, depth)
        self._line = ranks_of(group)
        self._groups = {}
        for line in lines(group):
            for route in sorted(self._letters):
                made = dist.new_group([line[route.source], line[route.to]])
                if line == self._line and self._me in route:
                    self._groups[route] = made
        self._route_of = {letter: route for route, letters in self._letters.items() for letter in letters}
        self._sent: list[tuple[dist.Work, Tensor]] = []
        self._coming: dict[Route, tuple[Letter, Tensor, dist.Work]] = {}
        self._to_come: dict[Route, deque[Letter]] = {}
        self._here: dict[Letter, Tensor] = {}

    def _planned(self, rows: Rows, depth: int) -> Mapping[Route, list[Letter]]:
        """Which letters travel on each route, in the order in which their sender makes them."""
        planned: dict[Route, list[Letter]] = {}
        for rank, row in enumerate(rows):
            for action in row:
                letter = made_by(action, depth)
                if letter and self._home[letter.stage] != rank:
                    planned.setdefault(Route(rank, self._home[letter.stage]), []).append(letter)
        return planned

    def open(self) -> None:
        """At the begin of a step: the first letter of every route to this rank is waited for."""
        self._to_come = {route: deque(self._letters[route]) for route in self._groups if route.to == self._me}
        for route in self._to_come:
            self._post(route)

    def send(self, letter: Letter, what: Tensor) -> None:
        """To the rank of its stage, which may be this one. ValueError for another shape than `like`."""
        if what.shape != self._like.shape:
            raise ValueError(
                f"micro-batch {letter.micro_batch} is {tuple(what.shape)} where stage {letter.stage} waits for"
                f" {tuple(self._like.shape)}: all micro-batches have the same size, so cut the batch into equal ones"
            )
        route = self._route_of.get(letter)
        if route is None:
            self._here[letter] = what
            return
        what = what.contiguous()
        work = dist.isend(what, self._line[route.to], group=self._groups[route])
        assert work is not None, "this rank is one of the two"
        self._sent.append((work, what))  # kept until it has arrived

    def take(self, letter: Letter) -> Tensor:
        """Waits until it is here. Letters that come before it are kept until they are asked for."""
        while letter not in self._here:
            route = self._route_of[letter]
            came, what, work = self._coming.pop(route)
            work.wait()
            self._here[came] = what
            self._post(route)
        return self._here.pop(letter)

    def close(self) -> None:
        """At the end of a step: all that was sent has arrived."""
        for work, _ in self._sent:
            work.wait()
        self._sent.clear()

    def _post(self, route: Route) -> None:
        if self._to_come[route]:
            letter, what = self._to_come[route].popleft(), torch.empty_like(self._like)
            work = dist.irecv(what, self._line[route.source], group=self._groups[route])
            assert work is not None, "this rank is one of the two"
            self._coming[route] = letter, what, work


def lines(group: Group = None) -> list[list[int]]:
    """The world's ranks of every pipeline there is, in one order on all ranks; each calls with its own `group`."""
    if group is None:
        return [ranks_of(None)]
    found: list[list[int]] = [[]] * dist.get_world_size()
    dist.all_gather_object(found, ranks_of(group))
    return sorted({line[0]: line for line in found}.values())


def ranks_of(group: Group) -> list[int]:
    """The world's ranks of a group's members, in the group's order."""
    return dist.get_process_group_ranks(group)


def made_by(action: Action, depth: int) -> Letter | None:
    """What another stage is given by an action; None: nothing."""
    stage, kind, micro_batch = action.stage, action.kind, action.micro_batch
    if kind == "F" and (stage + 1) % depth:
        return Letter(stage + 1, "F", micro_batch)
    if kind in ("B", "I") and stage % depth:
        return Letter(stage - 1, "B", micro_batch)
    return None
