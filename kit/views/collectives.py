"""What each collective does, as data: what every rank holds before and after, and how it flows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

Row = tuple["Piece", ...]


@dataclass(frozen=True, slots=True)
class Piece:
    """A tensor, or a chunk of one: what it is called and whose data is in it."""

    label: str
    origins: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Collective:
    """One collective over n ranks. An empty row is a rank that holds nothing that matters."""

    name: str
    sentence: str
    hub: str  # the word on the operation
    before: tuple[Row, ...]
    after: tuple[Row, ...]
    sources: tuple[int, ...]  # ranks with an arrow into the operation
    targets: tuple[int, ...]  # ranks with an arrow out of it


def collective(name: str, ranks: int, root: int = 0) -> Collective:
    """The collective of that name ('all_reduce', 'all-reduce', 'send/receive') over `ranks` ranks.

    Raises ValueError for an unknown name, fewer than two ranks or more than eight, or a root outside of them.
    """
    key = name.lower().replace("-", "_").replace("/", "_").replace(" ", "_")
    key = {"send_recv": "send_receive", "alltoall": "all_to_all", "allreduce": "all_reduce"}.get(key, key)
    if key not in _MAKERS:
        raise ValueError(f"there is no collective {name!r}: choose from {', '.join(COLLECTIVES)}")
    if not 2 <= ranks <= 8:
        raise ValueError(f"a chart shows 2 to 8 ranks, not {ranks}: choose a number between them")
    if not 0 <= root < ranks:
        raise ValueError(f"root {root} is not one of the ranks 0 to {ranks - 1}: choose one of them")
    return _MAKERS[key](ranks, root)


def _own(n: int) -> tuple[Row, ...]:
    return tuple((Piece(f"x{_sub(r)}", (r,)),) for r in range(n))


def _everything(n: int) -> Row:
    return tuple(Piece(f"x{_sub(r)}", (r,)) for r in range(n))


def _sub(number: int) -> str:
    return str(number).translate(str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉"))


def _only(n: int, rank: int, row: Row) -> tuple[Row, ...]:
    return tuple(row if r == rank else () for r in range(n))


def _broadcast(n: int, root: int) -> Collective:
    piece = (Piece("x", (root,)),)
    return Collective(
        "broadcast", f"rank {root} hands its tensor to every rank", "copy", _only(n, root, piece), (piece,) * n,
        (root,), tuple(range(n)),
    )  # fmt: skip


def _scatter(n: int, root: int) -> Collective:
    pieces = tuple(Piece(f"x{_sub(r)}", (root,)) for r in range(n))
    return Collective(
        "scatter", f"rank {root} hands one piece to each rank", "deal out", _only(n, root, pieces),
        tuple((piece,) for piece in pieces), (root,), tuple(range(n)),
    )  # fmt: skip


def _gather(n: int, root: int) -> Collective:
    return Collective(
        "gather", f"every rank hands its tensor to rank {root}, which keeps them side by side", "collect", _own(n),
        _only(n, root, _everything(n)), tuple(range(n)), (root,),
    )  # fmt: skip


def _reduce(n: int, root: int) -> Collective:
    total = (Piece("Σ x", tuple(range(n))),)
    return Collective(
        "reduce",
        f"the sum of all tensors ends on rank {root}",
        "Σ",
        _own(n),
        _only(n, root, total),
        tuple(range(n)),
        (root,),
    )


def _all_gather(n: int, _: int) -> Collective:
    every = tuple(range(n))
    return Collective(
        "all_gather", "every rank ends with the tensors of all ranks, side by side", "collect", _own(n),
        (_everything(n),) * n, every, every,
    )  # fmt: skip


def _reduce_scatter(n: int, _: int) -> Collective:
    every = tuple(range(n))
    before = tuple(tuple(Piece(f"x{_sub(r)}[{j}]", (r,)) for j in range(n)) for r in range(n))
    after = tuple((Piece(f"Σ x[{j}]", every),) for j in range(n))
    return Collective(
        "reduce_scatter", "rank r ends with the sum of everybody's chunk r", "Σ, deal out", before, after, every, every
    )


def _all_reduce(n: int, _: int) -> Collective:
    every = tuple(range(n))
    total = (Piece("Σ x", every),)
    return Collective(
        "all_reduce", "every rank ends with the sum of all tensors", "Σ", _own(n), (total,) * n, every, every
    )


def _all_to_all(n: int, _: int) -> Collective:
    every = tuple(range(n))
    before = tuple(tuple(Piece(f"x{_sub(r)}[{j}]", (r,)) for j in range(n)) for r in range(n))
    after = tuple(tuple(Piece(f"x{_sub(r)}[{j}]", (r,)) for r in range(n)) for j in range(n))
    return Collective("all_to_all", "chunk j of every rank goes to rank j", "exchange", before, after, every, every)


def _send_receive(n: int, _: int) -> Collective:
    piece = (Piece("x", (0,)),)
    after = tuple(piece if r < 2 else () for r in range(n))
    return Collective(
        "send_receive",
        "rank 0 sends its tensor, rank 1 receives it; nobody else takes part",
        "send",
        _only(n, 0, piece),
        after,
        (0,),
        (1,),
    )


def _barrier(n: int, _: int) -> Collective:
    every = tuple(range(n))
    nothing: tuple[Row, ...] = ((),) * n
    return Collective(
        "barrier",
        "nobody goes on before all ranks have arrived; no data moves",
        "wait for all",
        nothing,
        nothing,
        every,
        every,
    )


_MAKERS: dict[str, Callable[[int, int], Collective]] = {
    "broadcast": _broadcast,
    "scatter": _scatter,
    "gather": _gather,
    "reduce": _reduce,
    "all_gather": _all_gather,
    "reduce_scatter": _reduce_scatter,
    "all_reduce": _all_reduce,
    "all_to_all": _all_to_all,
    "send_receive": _send_receive,
    "barrier": _barrier,
}
COLLECTIVES = tuple(_MAKERS)
