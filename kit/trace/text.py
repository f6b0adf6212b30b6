"""What facts are called in sentences: numbers, ranks, lengths of time, operations."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

POINT_TO_POINT = ("send", "recv")
ANY = -1  # the peer of a receive from any source that has met no sender yet
ALIASES = {
    "isend": "send",
    "irecv": "recv",
    "all_reduce_coalesced": "all_reduce",
    "all_gather_into_tensor": "all_gather",
    "all_gather_single": "all_gather",
    "all_gather_coalesced": "all_gather",
    "reduce_scatter_tensor": "reduce_scatter",
    "reduce_scatter_single": "reduce_scatter",
    "all_to_all_single": "all_to_all",
}


def canonical(name: str) -> str:
    """One name for an operation that torch offers under several: 'isend' is 'send'."""
    return ALIASES.get(name, name)


def is_message(name: str) -> bool:
    """Whether an operation is a send or a receive rather than a collective."""
    return canonical(name) in POINT_TO_POINT


def counted(number: int, noun: str) -> str:
    """'1 message', '3 messages'."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def listed(ranks: Iterable[int]) -> str:
    """'rank 1', 'ranks 0, 2, 3'; five or more neighbours are folded: 'ranks 0 to 15'."""
    numbers = sorted(set(ranks))
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    texts = [
        text
        for run in runs
        for text in ([f"{run[0]} to {run[-1]}"] if len(run) >= 5 else [str(number) for number in run])
    ]
    return f"{'rank' if len(numbers) == 1 else 'ranks'} {', '.join(texts)}"


def named(ranks: Iterable[int]) -> str:
    """As `listed`, for the middle of a sentence: 'rank 1', 'ranks 1 and 3', 'ranks 0, 2 and 3'."""
    head, comma, tail = listed(ranks).rpartition(", ")
    return f"{head} and {tail}" if comma else tail


def duration(nanoseconds: float) -> str:
    """A length of time for a person: '12 µs', '40 ms', '1.9 s', '2 min 5 s'."""
    seconds = nanoseconds / 1e9
    if seconds < 0.95e-3:
        return f"{seconds * 1e6:.0f} µs"
    if seconds < 0.0995:
        return f"{seconds * 1e3:.0f} ms"
    if seconds < 99.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s"


def size_text(nbytes: float) -> str:
    """'64 B', '4.1 kB', '1 MB': three digits at most, decimal units."""
    return _in_unit(nbytes, (("GB", 1e9), ("MB", 1e6), ("kB", 1e3), ("B", 1.0)))


def time_text(seconds: float) -> str:
    """'34.5 µs', '1.2 ms', '3 s': three digits at most."""
    return _in_unit(seconds, (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)))


def speed_text(speed: float) -> str:
    """'1.5 GB/s', '20 kB/s': bytes per second, three digits at most."""
    return _in_unit(speed, (("GB/s", 1e9), ("MB/s", 1e6), ("kB/s", 1e3), ("B/s", 1.0)))


def _in_unit(value: float, units: Sequence[tuple[str, float]]) -> str:
    rounded = float(f"{value:.3g}")  # 999.9 MB is 1 GB
    unit, scale = next((one for one in units if rounded >= one[1]), units[-1])
    return f"{rounded / scale:.3g} {unit}"


def size(shape: Sequence[int], dtype: str) -> str:
    """A tensor's shape and dtype in words: '4 x float32', '2 x 3 x int64', 'scalar float32'."""
    return " x ".join([*map(str, shape), dtype]) if shape else f"scalar {dtype}"


def operation_text(name: str, peer: int | None = None, root: int | None = None) -> str:
    """An operation with its other side, as `RankState.operation` holds it: 'recv from rank 3', 'reduce to rank 0'.

    A peer of -1 is a receive from any source: 'recv from any rank'.
    """
    plain = canonical(name)
    if peer == ANY:
        return f"{name} from any rank"
    other = peer if plain in POINT_TO_POINT else root
    if other is None:
        return name
    to = plain in ("send", "reduce", "gather")
    return f"{name} {'to' if to else 'from'} rank {other}"


def awaited(operation: str, missing: Sequence[int]) -> str:
    """An operation and whom it waits for: 'all_reduce for ranks 1 and 3'; nobody twice: 'recv from rank 3'."""
    if not missing:
        return operation
    says_whom = is_message(operation.split()[0]) and " rank" in operation
    ranks = named(missing)
    return operation if says_whom or operation.endswith(f" {ranks}") else f"{operation} for {ranks}"
