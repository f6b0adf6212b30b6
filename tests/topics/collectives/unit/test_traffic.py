"""The traffic functions against the formulas of the books, and against what must hold for any sizes."""

from math import ceil, log2

from hypothesis import given
from hypothesis import strategies as st

from tests.topics.collectives import traffic

ranks = st.integers(1, 40)
counts = st.integers(0, 3000)
SUMS = (
    traffic.ring_all_reduce,
    traffic.tree_all_reduce,
    traffic.halving_doubling_all_reduce,
    traffic.all_reduce_via_root,
    traffic.ring_reduce_scatter,
    traffic.reduce_scatter_via_root,
    traffic.tree_broadcast,
    traffic.broadcast_from_root,
)


@given(ranks, counts)
def test_what_is_sent_is_received(n: int, count: int) -> None:
    for algorithm in SUMS:
        loads = [algorithm(n, rank, count) for rank in range(n)]
        assert sum(load.sent for load in loads) == sum(load.received for load in loads), algorithm.__name__
        assert sum(load.bytes_sent for load in loads) == sum(load.bytes_received for load in loads), algorithm.__name__


@given(st.lists(st.integers(0, 50), min_size=1, max_size=20))
def test_gathers_of_any_shares_balance(sizes: list[int]) -> None:
    n = len(sizes)
    for algorithm in (traffic.ring_all_gather, traffic.all_gather_via_root):
        loads = [algorithm(n, rank, sizes) for rank in range(n)]
        assert sum(load.bytes_sent for load in loads) == sum(load.bytes_received for load in loads)
    assert sum(traffic.ring_all_gather(n, rank, sizes).bytes_sent for rank in range(n)) == (n - 1) * sum(sizes) * 4


@given(ranks, counts)
def test_ring_totals_hold_for_any_count(n: int, count: int) -> None:
    whole = 4 * count
    halves = [traffic.ring_reduce_scatter(n, rank, count).bytes_sent for rank in range(n)]
    rings = [traffic.ring_all_reduce(n, rank, count).bytes_sent for rank in range(n)]
    assert sum(halves) == (n - 1) * whole
    assert sum(rings) == 2 * (n - 1) * whole


@given(ranks, st.integers(0, 100))
def test_ring_formula_when_n_divides(n: int, per_rank: int) -> None:
    whole = 4 * n * per_rank
    for rank in range(n):
        load = traffic.ring_all_reduce(n, rank, n * per_rank)
        assert load.sent == load.received == 2 * (n - 1)
        assert load.bytes_sent == load.bytes_received == 2 * (n - 1) * whole // n


@given(st.integers(0, 5), st.integers(0, 100))
def test_halving_doubling_formula_for_powers_of_two(k: int, per_rank: int) -> None:
    n = 2**k
    whole = 4 * n * per_rank
    for rank in range(n):
        load = traffic.halving_doubling_all_reduce(n, rank, n * per_rank)
        assert load.sent == load.received == 2 * k
        assert load.bytes_sent == load.bytes_received == 2 * (n - 1) * whole // n


@given(ranks, counts)
def test_folding_adds_two_whole_messages_a_pair(n: int, count: int) -> None:
    p = 2 ** (n.bit_length() - 1)
    total = sum(traffic.halving_doubling_all_reduce(n, rank, count).bytes_sent for rank in range(n))
    core = sum(traffic.halving_doubling_all_reduce(p, rank, count).bytes_sent for rank in range(p))
    assert total == core + 2 * (n - p) * 4 * count


@given(ranks, counts)
def test_trees_send_each_rank_the_whole_once(n: int, count: int) -> None:
    loads = [traffic.tree_broadcast(n, rank, count, root=n // 2) for rank in range(n)]
    assert [load.received for load in loads] == [int(rank != n // 2) for rank in range(n)]
    assert max(load.sent for load in loads) == (ceil(log2(n)) if n > 1 else 0)
    assert sum(load.bytes_sent for load in loads) == (n - 1) * 4 * count


def test_the_mock_up_s_ring() -> None:
    """Four ranks, eight float32 in four chunks: 6 messages of 8 bytes each, 192 bytes in all."""
    loads = [traffic.ring_all_reduce(4, rank, 8) for rank in range(4)]
    assert loads == [traffic.Load(6, 48, 6, 48)] * 4


def test_the_root_is_the_busy_spot() -> None:
    """The lab's example: four ranks, 1 MB; rank 0 moves 6 MB, the others 2."""
    loads = [traffic.all_reduce_via_root(4, rank, 250_000) for rank in range(4)]
    assert [load.bytes_sent + load.bytes_received for load in loads] == [6_000_000, 2_000_000, 2_000_000, 2_000_000]
