"""How long a collective takes by the alpha-beta model, for any finite number of ranks.

One message of m bytes takes a + m b seconds: a the latency (s), b = 1 / bandwidth (s per byte). A rank sends one
message and receives one at a time, both at once; every rank has a link of its own; adding numbers is free.

Everywhere: n ranks (>= 1); `nbytes` the whole buffer S in bytes (what the all-gather yields, what the reduce-scatter
and the scatter spread); latency in seconds; bandwidth in bytes per second. Seconds come back, 0 for a rank alone.
ValueError for n < 1, a negative size or latency, a bandwidth that is not positive.

Sources, cited below by these letters:
H    R. W. Hockney, The communication challenge for MPP, Parallel Computing 20 (1994): the model
TRG  R. Thakur, R. Rabenseifner, W. Gropp, Optimization of collective communication operations in MPICH,
     International Journal of High Performance Computing Applications 19 (2005)
PY   P. Patarasuk, X. Yuan, Bandwidth optimal all-reduce algorithms for clusters of workstations,
     Journal of Parallel and Distributed Computing 69 (2009)
SST  P. Sanders, J. Speck, J. L. Traeff, Two-tree algorithms for full bandwidth broadcast, reduction and scan,
     Parallel Computing 35 (2009)
NT   NVIDIA nccl-tests, doc/PERFORMANCE.md: bandwidths
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

Algorithm = Callable[[int, float, float, float], float]  # (n, nbytes, latency, bandwidth) -> seconds


def message(nbytes: float, latency: float, bandwidth: float) -> float:
    """One message: a + S b (H)."""
    a, b = _model(1, nbytes, latency, bandwidth)
    return a + nbytes * b


def ring_all_reduce(n: int, nbytes: float, latency: float, bandwidth: float) -> float:
    """2(n-1) a + 2(n-1)/n S b: reduce-scatter then all-gather, a chunk of S/n a step (PY).

    Each rank sends 2(n-1)/n S. Exact where n divides the buffer; else the largest chunk sets the pace.
    """
    return ring_reduce_scatter(n, nbytes, latency, bandwidth) + ring_all_gather(n, nbytes, latency, bandwidth)


def ring_all_gather(n: int, nbytes: float, latency: float, bandwidth: float) -> float:
    """(n-1) a + (n-1)/n S b, S the gathered whole (TRG, on allgather)."""
    a, b = _model(n, nbytes, latency, bandwidth)
    return (n - 1) * (a + nbytes / n * b)


def ring_reduce_scatter(n: int, nbytes: float, latency: float, bandwidth: float) -> float:
    """(n-1) a + (n-1)/n S b, S the buffer that is spread (PY; TRG's pairwise exchange costs the same)."""
    return ring_all_gather(n, nbytes, latency, bandwidth)


def halving_doubling_all_reduce(n: int, nbytes: float, latency: float, bandwidth: float) -> float:
    """2 log2(p) a + 2(p-1)/p S b with p the largest power of two up to n, and 2a + 2Sb more where n is not p.

    Recursive halving, then doubling (Rabenseifner's algorithm; TRG, on allreduce). Where n is no power of two, n - p
    ranks hand their buffer to a neighbour first and are given the result at the end.
    """
    a, b = _model(n, nbytes, latency, bandwidth)
    steps = n.bit_length() - 1
    p = 1 << steps
    inner = 2 * steps * a + 2 * (p - 1) / p * nbytes * b
    return inner if p == n else inner + 2 * (a + nbytes * b)


def tree_broadcast(n: int, nbytes: float, latency: float, bandwidth: float) -> float:
    """ceil(log2 n)(a + S b): a binomial tree, not pipelined (TRG, on broadcast)."""
    a, b = _model(n, nbytes, latency, bandwidth)
    return _rounds(n) * (a + nbytes * b)


def tree_reduce(n: int, nbytes: float, latency: float, bandwidth: float) -> float:
    """ceil(log2 n)(a + S b): the broadcast backwards (TRG, on reduce)."""
    return tree_broadcast(n, nbytes, latency, bandwidth)


def tree_all_reduce(n: int, nbytes: float, latency: float, bandwidth: float) -> float:
    """2 ceil(log2 n)(a + S b): a reduce to one rank, then a broadcast, not pipelined."""
    return 2 * tree_broadcast(n, nbytes, latency, bandwidth)


def pairwise_all_to_all(n: int, nbytes: float, latency: float, bandwidth: float) -> float:
    """(n-1)(a + S/n b), S what each rank hands in; in step i a rank sends i places on (TRG, on alltoall)."""
    return ring_all_gather(n, nbytes, latency, bandwidth)


def root_gather(n: int, nbytes: float, latency: float, bandwidth: float) -> float:
    """(n-1)(a + S/n b), S the whole at the root: its link takes one piece after the other."""
    return ring_all_gather(n, nbytes, latency, bandwidth)


def root_scatter(n: int, nbytes: float, latency: float, bandwidth: float) -> float:
    """(n-1)(a + S/n b), S the whole at the root: its link sends one piece after the other."""
    return ring_all_gather(n, nbytes, latency, bandwidth)


def via_root_all_reduce(n: int, nbytes: float, latency: float, bandwidth: float) -> float:
    """2(n-1)(a + S b): the root receives every buffer, adds, and sends every rank the sum, one at a time."""
    a, b = _model(n, nbytes, latency, bandwidth)
    return 2 * (n - 1) * (a + nbytes * b)


def dissemination_barrier(n: int, nbytes: float, latency: float, bandwidth: float) -> float:
    """ceil(log2 n) a: in round i every rank tells the one 2**i places on. nbytes is not used: a barrier carries none.

    Source: D. Hensgen, R. Finkel, U. Manber, "Two algorithms for barrier synchronization", IJPP 17 (1988).
    """
    a, _ = _model(n, nbytes, latency, bandwidth)
    return _rounds(n) * a


# what a library runs for a collective unless somebody knows better
USUAL: Mapping[str, Algorithm] = {
    "all_reduce": ring_all_reduce,
    "all_gather": ring_all_gather,
    "reduce_scatter": ring_reduce_scatter,
    "broadcast": tree_broadcast,
    "reduce": tree_reduce,
    "gather": root_gather,
    "scatter": root_scatter,
    "all_to_all": pairwise_all_to_all,
    "barrier": dissemination_barrier,
    "monitored_barrier": dissemination_barrier,
}


def algorithm_bandwidth(nbytes: float, seconds: float) -> float:
    """algbw = S / t in bytes per second, S the whole buffer (NT). GB/s: divide by 10**9, not by 2**30."""
    if nbytes < 0 or seconds <= 0:
        raise ValueError(f"a bandwidth needs bytes >= 0 and a time > 0 s, not {nbytes} bytes in {seconds} s")
    return nbytes / seconds


def bus_factor(operation: str, n: int) -> float:
    """What turns algbw into busbw, the speed of the busiest link, comparable between operations and numbers of ranks.

    NT: all_reduce 2(n-1)/n; all_gather, reduce_scatter, all_to_all, gather, scatter (n-1)/n; broadcast, reduce
    and a message 1. ValueError for another operation.
    """
    if n < 1:
        raise ValueError(f"a group has at least one rank, not {n}")
    if operation == "all_reduce":
        return 2 * (n - 1) / n
    if operation in ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter"):
        return (n - 1) / n
    if operation in ("broadcast", "reduce", "send", "recv"):
        return 1.0
    raise ValueError(f"no bus bandwidth is defined for {operation!r}: name a collective of torch.distributed")


def bus_bandwidth(operation: str, n: int, nbytes: float, seconds: float) -> float:
    """busbw = algbw x `bus_factor`, in bytes per second."""
    return algorithm_bandwidth(nbytes, seconds) * bus_factor(operation, n)


def _model(n: int, nbytes: float, latency: float, bandwidth: float) -> tuple[float, float]:
    """(a, b), checked."""
    if not n >= 1:  # a NaN is not either
        raise ValueError(f"a group has at least one rank, not {n}")
    if not nbytes >= 0:
        raise ValueError(f"a buffer has 0 bytes or more, not {nbytes}")
    if not (latency >= 0 and bandwidth > 0):
        raise ValueError(f"give a latency >= 0 s and a bandwidth > 0 bytes/s, not {latency} s and {bandwidth} bytes/s")
    return latency, 1 / bandwidth


def _rounds(n: int) -> int:
    """ceil(log2 n), in whole numbers: a float logarithm may round the wrong way."""
    return (n - 1).bit_length()
