"""A strategy in a word, and how many ranks each of its parts has.

single                 one rank
ddp                    the whole model on every rank, gradients averaged
zero1, zero2, zero3    as ddp; optimizer, gradients, weights in shards
tp, tp+sp              every layer in shards; activations outside by position, too
pp, pp:ZBH1            layers in stages, by a schedule (1F1B where none is named)
ddp=2 x tp             products: a mesh of ranks; one part may leave its number open
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

DATA = ("single", "ddp", "zero1", "zero2", "zero3")
TENSOR = ("tp", "tp+sp")
NAMES = (*DATA, *TENSOR, "pp")
DIRECTIONS = ("tp", "dp", "pp")
_AT = re.compile(r"(?P<name>[a-z]+)\s*=\s*(?:(?P<one>\d+)|(?P<first>\d*):(?P<end>\d*))")
_PART = re.compile(r"(?P<name>[a-z0-9+]+?)(?::(?P<schedule>[A-Za-z0-9]+))?(?:=(?P<ranks>\d+))?")


class Place(NamedTuple):
    """Where a rank is in the mesh."""

    dp: int
    tp: int
    pp: int


@dataclass(frozen=True)
class Layout:
    """Who holds what. data: how those ranks that compute with different data hold the model.

    dp, tp, pp: ranks in each direction of the mesh. Neighbouring ranks are in one tensor-parallel group, which has the
    most to say to each other and so wants the fastest links; pipelines are outermost.
    """

    data: str = "single"
    dp: int = 1
    tp: int = 1
    sequence: bool = False
    pp: int = 1
    schedule: str = "1F1B"

    @property
    def ranks(self) -> int:
        return self.dp * self.tp * self.pp

    def place(self, rank: int) -> Place:
        """Where a rank is. Raises ValueError for one that this layout does not have."""
        if not 0 <= rank < self.ranks:
            raise ValueError(f"{self} has the ranks 0 to {self.ranks - 1}, and no rank {rank}")
        rest, tp = divmod(rank, self.tp)
        pp, dp = divmod(rest, self.dp)
        return Place(dp, tp, pp)

    def at(self, where: str) -> tuple[int, ...]:
        """The ranks at a place in the mesh: 'dp=1, tp=0:4' are those with dp 1 and tp 0 to 3, whatever their pp.

        For whatever takes ranks: `session.step(ranks=layout.at("dp=1"))`, `panel.hold(*layout.at("pp=0"))`. Raises
        ValueError for words that name no place here.
        """
        within = {name: range(getattr(self, name)) for name in DIRECTIONS}
        for word in filter(None, (part.strip() for part in where.split(","))):
            said = _AT.fullmatch(word)
            if said is None or said["name"] not in DIRECTIONS:
                raise ValueError(f"{word!r} is no place in a mesh: write as in 'dp=1, tp=0:4'; it has dp, tp and pp")
            name, size = said["name"], getattr(self, said["name"])
            first = int(said["one"] or said["first"] or 0)
            end = first + 1 if said["one"] else int(said["end"] or size)
            if not first < end <= size:
                raise ValueError(f"{word!r}: {self} has {name}=0:{size}, and nothing there")
            within[name] = range(first, end)
        places = ((rank, self.place(rank)) for rank in range(self.ranks))
        return tuple(rank for rank, place in places if all(getattr(place, name) in within[name] for name in DIRECTIONS))

    def groups(self, direction: str) -> list[tuple[int, ...]]:
        """The ranks that are together in one direction, group by group."""
        found: dict[Place, list[int]] = {}
        for rank in range(self.ranks):
            found.setdefault(self.place(rank)._replace(**{direction: 0}), []).append(rank)
        return [tuple(ranks) for ranks in found.values()]

    def stream(self, rank: int) -> int:
        """A number for what a rank draws: ranks of a tensor-parallel group draw alike outside the layers they share,
        any others must not.
        """
        place = self.place(rank)
        return place.dp + self.dp * place.pp

    def __str__(self) -> str:
        parts = {self.data: self.dp, "tp+sp" if self.sequence else "tp": self.tp, f"pp:{self.schedule}": self.pp}
        said = [f"{name}={ranks}" for name, ranks in parts.items() if ranks > 1]
        return " x ".join(said) or "single"

    @staticmethod
    def parse(strategy: str, ranks: int) -> Layout:
        """The layout that a strategy in words asks for on so many ranks.

        Raises ValueError for words that are none, and for numbers of ranks that do not come out.
        """
        found: dict[str, int | None] = {}
        schedule = "1F1B"
        for word in strategy.replace(" x ", " ").split():
            part = _PART.fullmatch(word)
            if part is None or part["name"] not in NAMES or (part["schedule"] and part["name"] != "pp"):
                raise ValueError(
                    f"{word!r} is no strategy: choose {', '.join(NAMES)}, pp:SCHEDULE, or several, 'ddp=2 x tp=2'"
                )
            found[part["name"]] = int(part["ranks"]) if part["ranks"] else None
            schedule = part["schedule"] or schedule
        data, tensor = [one for one in DATA if one in found], [one for one in TENSOR if one in found]
        if not found or len(data) > 1 or len(tensor) > 1:
            raise ValueError(f"{strategy!r}: a strategy has one of each kind at most: {DATA}, {TENSOR}, pp")
        sizes = _filled(found, ranks, strategy)
        dp, tp = sizes.get(data[0], 1) if data else 1, sizes.get(tensor[0], 1) if tensor else 1
        return Layout(data[0] if data else "single", dp, tp, tensor == ["tp+sp"], sizes.get("pp", 1), schedule)


def _filled(found: dict[str, int | None], ranks: int, strategy: str) -> dict[str, int]:
    """Every part's number of ranks; the one that left it open has what remains."""
    if "single" in found:
        found = {**found, "single": 1}
    named = {name: size for name, size in found.items() if size is not None}
    taken = prod(named.values())
    still = [name for name in found if name not in named]
    if len(still) > 1 or taken < 1 or ranks % taken or (not still and taken != ranks):
        raise ValueError(
            f"{strategy!r} does not say how {ranks} {'rank is' if ranks == 1 else 'ranks are'} shared out: give numbers"
            " that multiply to it, as in 'ddp=2 x tp=2'"
        )
    return {**named, **dict.fromkeys(still, ranks // taken)}
