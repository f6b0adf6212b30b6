"""The schedules of the literature, for p ranks, m micro-batches and v chunks of the model a rank.

Each is a function of those three that gives a Schedule, or raises ValueError with the reason why there is none. The
names are those under which people look them up:

naive                   one micro-batch through all stages and back before the next one begins
GPipe                   all forward, then all backward (Huang et al. 2019, arXiv 1811.06965)
1F1B                    as few forwards ahead as keep all ranks busy (Narayanan et al. 2020, 2006.09503)
Interleaved1F1B         each rank holds v chunks of the model, one round apart (Narayanan et al. 2021, 2104.04473)
LoopedBFS               breadth first: all through one chunk before the next (Lamy-Poirier 2022, 2211.05953)
ZBH1, ZBH2              B parted: I on the critical path, W where it would be idle (Qi et al. 2023, 2401.10241)
InterleavedZeroBubble   the same on interleaved chunks (ZB1P there)
ZBVZeroBubble           two chunks in the shape of a V, so that a rank has the first and the last stage (ZB-V there)
VHalf, VMin             the V with half and a third of the activations (Qi et al. 2024, 2405.15362)
DualPipe                two copies of the model in opposite directions (DeepSeek-V3, 2412.19437)
DualPipeV               the same cut in half: a V in place of the second copy (Sea AI Lab and DeepSeek 2025)

Where torch has a schedule too, the order of every rank is the same as torch's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import product, starmap
from typing import NamedTuple, cast

from kit.plan.schedule import BACKWARD, FORWARD, INPUT, WEIGHT, Action, Kind, Row, Schedule, looped, v_shaped

Maker = Callable[..., Schedule]  # of p, m and, where a rank may hold more than one stage, v


class RowWriter:
    """Writes one rank's row in the short hand of the papers: 'F0', 'I1': kind and chunk, of which it takes the next
    micro-batch each time.

    chunks: the stages the rank holds, in the order in which they are numbered here. first: the first micro-batch of
    each chunk, where the chunks are of two copies.
    """

    def __init__(self, chunks: Sequence[int], first: Sequence[int] | None = None) -> None:
        self.row: list[Action] = []
        self.together: set[int] = set()  # positions that run along with the next one
        self._chunks = chunks
        self._first = first or [0] * len(chunks)
        self._done: Counter[tuple[Kind, int]] = Counter()
        self._owed: list[tuple[int, int]] = []  # (chunk, micro-batch): I without its W

    def add(self, *what: str, times: int = 1) -> None:
        for one in what * times:
            kind, chunk = cast("Kind", one[0]), int(one[1:])
            count = self.count(INPUT if kind == BACKWARD else kind, chunk)
            self._append(kind, chunk, count)
            for part in (INPUT, WEIGHT) if kind == BACKWARD else (kind,):
                self._done[part, chunk] += 1
            if kind == INPUT:
                self._owed.append((chunk, count))

    def add_together(self, forward: str, backward: str) -> None:
        self.together.add(len(self.row))
        self.add(forward, backward)

    def add_owed_weight(self) -> None:
        """The W of the oldest I that misses it; nothing where none does."""
        if self._owed:
            chunk, count = self._owed.pop(0)
            self._append(WEIGHT, chunk, count)
            self._done[WEIGHT, chunk] += 1

    def count(self, kind: Kind, chunk: int) -> int:
        return self._done[kind, chunk]

    def _append(self, kind: Kind, chunk: int, count: int) -> None:
        self.row.append(Action(self._chunks[chunk], kind, self._first[chunk] + count))


def schedule(family: str, ranks: int, micro_batches: int, chunks: int | None = None) -> Schedule:
    """A schedule of the literature by its name (see above).

    chunks: stages of the model that each rank holds; None: as many as the family is drawn with, one or two. ValueError
    for a name that nobody knows, and for sizes the family has no schedule for, with the reason.
    """
    if family not in FAMILIES:
        raise ValueError(f"no schedule is called {family!r}: choose from {', '.join(FAMILIES)}")
    for name, value in (("ranks", ranks), ("micro_batches", micro_batches), ("chunks", chunks)):
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
            raise ValueError(f"{name} is a whole number, 1 or more, not {value!r}")
    sizes = (ranks, micro_batches) if chunks is None else (ranks, micro_batches, chunks)
    return FAMILIES[family](*sizes)


def naive(p: int, m: int, v: int = 1) -> Schedule:
    _one_chunk("naive", v)
    rows = [[Action(rank, kind, j) for j in range(m) for kind in (FORWARD, BACKWARD)] for rank in range(p)]
    return _schedule("naive", p, m, rows)


def gpipe(p: int, m: int, v: int = 1) -> Schedule:
    _one_chunk("GPipe", v)
    rows = [[Action(rank, kind, j) for kind in (FORWARD, BACKWARD) for j in range(m)] for rank in range(p)]
    return _schedule("GPipe", p, m, rows)


def one_f_one_b(p: int, m: int, v: int = 1) -> Schedule:
    _one_chunk("1F1B", v)
    rows = [_steady([rank], m, m, ahead=p - 1 - rank) for rank in range(p)]
    return _schedule("1F1B", p, m, rows)


def interleaved(p: int, m: int, v: int = 2) -> Schedule:
    per_round = _per_round("Interleaved1F1B", p, m)
    rows = [
        _steady(chunks, m, per_round, ahead=(v - 1) * per_round + 2 * (p - 1 - rank))
        for rank, chunks in enumerate(looped(p, v))
    ]
    return _schedule("Interleaved1F1B", p * v, m, rows)


def breadth_first(p: int, m: int, v: int = 2) -> Schedule:
    rows = []
    for chunks in looped(p, v):
        forward = [Action(stage, FORWARD, j) for stage in chunks for j in range(m)]
        rows.append(forward + [Action(stage, BACKWARD, j) for stage in reversed(chunks) for j in reversed(range(m))])
    return _schedule("LoopedBFS", p * v, m, rows)


def zero_bubble_h1(p: int, m: int, v: int = 1) -> Schedule:
    """As many activations as 1F1B: rank r lets r backward passes go by before it begins with W."""
    _one_chunk("ZBH1", v)
    rows = [_steady([rank], m, m, ahead=p - 1 - rank, owed=rank) for rank in range(p)]
    return _schedule("ZBH1", p, m, rows)


def zero_bubble_h2(p: int, m: int, v: int = 1) -> Schedule:
    """Twice as many activations, and no bubble at all where F, I and W last equally long."""
    _one_chunk("ZBH2", v)
    rows = [_steady([rank], m, m, ahead=2 * (p - 1 - rank), owed=2 * rank) for rank in range(p)]
    return _schedule("ZBH2", p, m, rows)


def interleaved_zero_bubble(p: int, m: int, v: int = 2) -> Schedule:
    per_round = _per_round("InterleavedZeroBubble", p, m)
    rows = [
        _steady(chunks, m, per_round, ahead=(v - 1) * per_round + p - 1 - rank, owed=rank)
        for rank, chunks in enumerate(looped(p, v))
    ]
    return _schedule("InterleavedZeroBubble", p * v, m, rows)


def zero_bubble_v(p: int, m: int, v: int = 2) -> Schedule:
    """Written for 2p - 1 micro-batches or more; of a shorter one the rest is left out."""
    _two_chunks("ZBVZeroBubble", v)
    n = max(2 * p - 1, m)
    rows = []
    for rank, chunks in enumerate(v_shaped(p)):
        row = RowWriter(chunks)
        row.add("F0", times=2 * (p - rank) - 1)
        row.add("F1", "F0", times=rank)
        row.add("F1", "I1", "W1", times=p - rank)
        while row.count("F", 1) < n:
            if row.count("F", 0) < n:
                row.add("F0")
            row.add("I0", "W0", "F1", "I1", "W1")
        row.add("I0", "I1", times=rank)
        row.add("I0", "W0", times=p - rank)
        row.add("W1", times=row.count("I", 1) - row.count("W", 1))
        row.add("W0", times=row.count("I", 0) - row.count("W", 0))
        rows.append([action for action in row.row if action.micro_batch < m])
    return _schedule("ZBVZeroBubble", 2 * p, m, rows)


def v_half(p: int, m: int, v: int = 2) -> Schedule:
    return _repeated("VHalf", p, m, v, Steps(2, 1, 2, 1))


def v_min(p: int, m: int, v: int = 2) -> Schedule:
    return _repeated("VMin", p, m, v, Steps(1, 1, 1, 1))


def dual_pipe(p: int, m: int, v: int = 1) -> Schedule:
    """Rank r holds stage r of the copy that runs down and stage p - 1 - r of the one that runs up."""
    _one_chunk("DualPipe", v)
    if p % 2 or m % 2 or m < 2 * p:
        raise ValueError(
            f"DualPipe sends half of the micro-batches each way: an even number of ranks, and of micro-batches an even "
            f"number of at least twice as many; not {p} ranks and {m} micro-batches"
        )
    rows = []
    for rank in range(p):
        near = min(rank, p - 1 - rank)  # ranks between it and the nearer end
        down, up = (rank, 0), (2 * p - 1 - rank, m // 2)
        mine = (down, up) if rank == near else (up, down)
        rows.append(RowWriter([stage for stage, _ in mine], [first for _, first in mine]))
        _both_ways(rows[-1], near, p // 2, m // 2)
    return _written("DualPipe", p, m, rows, copies=2)


def dual_pipe_v(p: int, m: int, v: int = 2) -> Schedule:
    _two_chunks("DualPipeV", v)
    if m < 2 * p:
        raise ValueError(f"DualPipeV wants a micro-batch for each of its {2 * p} stages at least, not {m}")
    rows = []
    for rank, chunks in enumerate(v_shaped(p)):
        rows.append(RowWriter(chunks))
        _both_ways(rows[-1], rank, p, m)
    return _written("DualPipeV", 2 * p, m, rows)


class Steps(NamedTuple):
    """How many units pass from rank to rank: for both chunks forward, then back; F, I and W take a unit each."""

    forward_down: int
    forward_up: int
    back_down: int
    back_up: int


PERIOD = 6  # units in which a rank does F, I and W of both chunks


def _repeated(name: str, p: int, m: int, v: int, steps: Steps) -> Schedule:
    """A building block, one micro-batch on its way down and up the V and back, begun anew every six units.

    The slower it goes from rank to rank, the longer activations live: with twice three units down and up at most half
    of them are held, with twice two units a third. Where two actions would meet, one waits a little at a turn of the V.
    """
    _two_chunks(name, v)
    block = min(filter(None, starmap(partial(_block, p, steps), product(range(PERIOD), repeat=3))), key=_lifetime)
    rows = []
    for (down, up), moments in zip(v_shaped(p), block, strict=True):
        kinds = ((down, FORWARD), (up, FORWARD), (up, INPUT), (down, INPUT), (up, WEIGHT), (down, WEIGHT))
        timed = [
            (moment + PERIOD * j, Action(stage, kind, j))
            for (stage, kind), moment in zip(kinds, moments, strict=True)
            for j in range(m)
        ]
        rows.append([action for _, action in sorted(timed)])
    return _schedule(name, 2 * p, m, rows)


def _block(p: int, steps: Steps, low: int, end: int, high: int) -> list[list[int]] | None:
    """When each rank does F down, F up, I down, I up and both W, if a micro-batch waits so long at the three turns of
    its way; None where two of them would meet.
    """
    up = (p - 1) * (steps.forward_down + steps.forward_up) + 1 + low  # on rank 0 again
    back = up + 1 + end
    over = back + (p - 1) * (steps.back_down + steps.back_up) + 1 + high
    moments = []
    for rank in range(p):
        passes = [
            steps.forward_down * rank,
            up - steps.forward_up * rank,
            back + steps.back_down * rank,
            over - steps.back_up * rank,
        ]
        free = {*range(PERIOD)} - {moment % PERIOD for moment in passes}
        if len(free) > 2:
            return None
        weights = [[part + 1 + (slot - part - 1) % PERIOD for slot in sorted(free)] for part in passes[2:]]
        straight, crossed = (weights[0][0], weights[1][1]), (weights[0][1], weights[1][0])
        moments.append([*passes, *min(straight, crossed, key=sum)])
    return moments


def _lifetime(block: list[list[int]]) -> tuple[int, int]:
    """How long activations of a micro-batch live on the rank that holds them longest, and how long it is under way."""
    held = max(weight_down - down + weight_up - up for down, up, *_, weight_up, weight_down in block)
    return held, max(max(moments) for moments in block)


def _both_ways(row: RowWriter, near: int, width: int, m: int) -> None:
    """DualPipe's eight phases: `near` ranks lie between this one and the end where its chunk 0 begins, `width` from
    there to where both ways meet; m micro-batches go each way. In the main phase a forward pass runs along with a
    backward pass of the other way.
    """
    apart = width - 1 - near
    row.add("F0", times=2 * apart)
    row.add("F0", "F1", times=near + 1)
    for _ in range(apart):
        row.add("I1")
        row.add_owed_weight()
        row.add("F1")
    for i in range(m - 2 * width + near + 1):
        if i == 0 and near == width - 1:  # nothing to overlap with yet: both ways have only just met
            row.add("F0", "B1")
        else:
            row.add_together("F0", "B1")
        row.add_together("F1", "B0")
    for _ in range(apart):
        row.add("B1")
        row.add_together("F1", "B0")
    back = ["1", "0"] * (near + 1)
    whole = 2 * ((near + 1) // 2) + (near + 1) % 2  # from here on W waits until there is nothing else to do
    for i, chunk in enumerate(back):
        row.add(("B" if i < whole else "I") + chunk)
    for _ in range(apart):
        row.add_owed_weight()
        row.add("I0")
    for _ in range(near + 1):
        row.add_owed_weight()


def _steady(chunks: Sequence[int], m: int, per_round: int, ahead: int, owed: int | None = None) -> list[Action]:
    """`ahead` forwards, then a forward and a backward by turns, then the backwards that are left.

    Micro-batches come in rounds, each of which goes through all chunks before the next. owed: B is parted, and so many
    I go by before the first W; None: B is whole.
    """
    turns = range(m * len(chunks))
    forward = RowWriter(chunks)
    forward.add(*(f"F{turn // per_round % len(chunks)}" for turn in turns))
    forwards, row = forward.row, RowWriter(chunks)
    ahead = min(ahead, len(forwards))
    backwards = [len(chunks) - 1 - turn // per_round % len(chunks) for turn in turns]
    row.row += forwards[:ahead]
    for turn, chunk in enumerate(backwards):
        row.row += forwards[ahead + turn : ahead + turn + 1]
        row.add(f"{'B' if owed is None else 'I'}{chunk}")
        if owed is not None and turn >= owed:
            row.add_owed_weight()
    while any(row.count("W", chunk) < row.count("I", chunk) for chunk in range(len(chunks))):
        row.add_owed_weight()
    return row.row


def _schedule(name: str, stages: int, m: int, rows: Iterable[Iterable[Action]]) -> Schedule:
    return Schedule(name, tuple(map(tuple, rows)), stages, m)


def _written(name: str, stages: int, m: int, rows: Sequence[RowWriter], copies: int = 1) -> Schedule:
    together = frozenset((rank, position) for rank, row in enumerate(rows) for position in row.together)
    written: tuple[Row, ...] = tuple(tuple(row.row) for row in rows)
    return Schedule(name, written, stages, m, copies, together)


def _per_round(name: str, p: int, m: int) -> int:
    """Micro-batches of a round: p, or a little more where that makes all rounds equal, as torch has it."""
    rounds = max(1, m // p)
    if m % rounds:
        fitting = [n for n in range(max(1, m - p), m + p + 1) if n % max(1, n // p) == 0]
        near = sorted(sorted(fitting, key=lambda n: abs(n - m))[:2])
        raise ValueError(
            f"{name} takes micro-batches in rounds of equal size, about one for each of its {p} ranks: "
            f"{m} make no {rounds} equal rounds, {' and '.join(map(str, near))} would do"
        )
    return m // rounds


def _one_chunk(name: str, v: int) -> None:
    if v != 1:
        raise ValueError(f"{name} gives each rank one stage, not {v}")


def _two_chunks(name: str, v: int) -> None:
    if v != 2:
        raise ValueError(f"{name} has the shape of a V: each rank holds two stages, not {v}")


FAMILIES: dict[str, Maker] = {
    "naive": naive,
    "GPipe": gpipe,
    "1F1B": one_f_one_b,
    "Interleaved1F1B": interleaved,
    "LoopedBFS": breadth_first,
    "ZBH1": zero_bubble_h1,
    "ZBH2": zero_bubble_h2,
    "InterleavedZeroBubble": interleaved_zero_bubble,
    "ZBVZeroBubble": zero_bubble_v,
    "VHalf": v_half,
    "VMin": v_min,
    "DualPipe": dual_pipe,
    "DualPipeV": dual_pipe_v,
}
