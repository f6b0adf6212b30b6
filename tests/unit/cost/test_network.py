"""Alpha-beta formulas: against values worked out by hand, a step by step count, and each other."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, log2

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kit.cost import network

A, B = 1e-5, 1e9  # 10 µs, 1 GB/s
MB = 1_000_000

GROUPED: list[Callable[..., float]] = [
    network.ring_all_reduce,
    network.ring_all_gather,
    network.ring_reduce_scatter,
    network.halving_doubling_all_reduce,
    network.tree_broadcast,
    network.tree_reduce,
    network.tree_all_reduce,
    network.pairwise_all_to_all,
    network.root_gather,
    network.root_scatter,
    network.via_root_all_reduce,
    network.dissemination_barrier,
]


@pytest.mark.parametrize(
    ("algorithm", "n", "steps", "buffers"),
    [
        (network.ring_all_reduce, 4, 6, 1.5),
        (network.ring_all_reduce, 3, 4, 4 / 3),
        (network.ring_all_gather, 4, 3, 0.75),
        (network.ring_reduce_scatter, 5, 4, 0.8),
        (network.halving_doubling_all_reduce, 8, 6, 1.75),
        (network.halving_doubling_all_reduce, 2, 2, 1.0),
        (network.halving_doubling_all_reduce, 6, 6, 1.5 + 2),
        (network.halving_doubling_all_reduce, 3, 4, 1.0 + 2),
        (network.tree_broadcast, 8, 3, 3.0),
        (network.tree_broadcast, 5, 3, 3.0),
        (network.tree_reduce, 9, 4, 4.0),
        (network.tree_all_reduce, 4, 4, 4.0),
        (network.pairwise_all_to_all, 4, 3, 0.75),
        (network.root_gather, 4, 3, 0.75),
        (network.root_scatter, 3, 2, 2 / 3),
        (network.via_root_all_reduce, 4, 6, 6.0),
        (network.dissemination_barrier, 5, 3, 0.0),
    ],
)
def test_steps_and_buffers_of_every_algorithm(
    algorithm: Callable[..., float], n: int, steps: int, buffers: float
) -> None:
    assert algorithm(n, MB, A, B) == pytest.approx(steps * A + buffers * MB / B, rel=1e-12)


def test_a_message() -> None:
    assert network.message(MB, A, B) == pytest.approx(1.01e-3)


@pytest.mark.parametrize("algorithm", GROUPED)
def test_a_rank_alone_takes_no_time(algorithm: Callable[..., float]) -> None:
    assert algorithm(1, MB, A, B) == 0.0


@pytest.mark.parametrize("algorithm", GROUPED)
@given(n=st.integers(2, 130), nbytes=st.integers(0, 10**10))
def test_more_latency_or_less_bandwidth_never_helps(algorithm: Callable[..., float], n: int, nbytes: int) -> None:
    base = algorithm(n, nbytes, A, B)
    assert algorithm(n, nbytes, 2 * A, B) > base
    assert algorithm(n, nbytes, A, B / 2) >= base
    assert algorithm(n, nbytes, 0, B) <= base


@given(n=st.integers(2, 4096))
def test_rounds_are_the_logarithm_rounded_up(n: int) -> None:
    assert network.dissemination_barrier(n, 0, 1.0, B) == ceil(round(log2(n), 9))


@given(n=st.integers(2, 300))
def test_all_reduce_is_never_cheaper_than_theory_allows(n: int) -> None:
    """2(n-1)/n S per rank is a lower bound; the ring and, for powers of two, halving and doubling reach it."""
    bound = 2 * (n - 1) / n * MB / B
    for algorithm in (network.ring_all_reduce, network.halving_doubling_all_reduce, network.tree_all_reduce):
        assert algorithm(n, MB, 0, B) >= bound * (1 - 1e-12)
    assert network.ring_all_reduce(n, MB, 0, B) == pytest.approx(bound)
    if n & (n - 1) == 0:
        assert network.halving_doubling_all_reduce(n, MB, 0, B) == pytest.approx(bound)


def test_who_wins_depends_on_size() -> None:
    small, large, n = 8, 10**9, 64
    assert network.tree_all_reduce(n, small, A, B) < network.ring_all_reduce(n, small, A, B)
    assert network.ring_all_reduce(n, large, A, B) < network.tree_all_reduce(n, large, A, B)


@pytest.mark.parametrize(
    ("operation", "factor"),
    [
        ("all_reduce", 1.5), ("all_gather", 0.75), ("reduce_scatter", 0.75), ("all_to_all", 0.75), ("gather", 0.75),
        ("scatter", 0.75), ("broadcast", 1.0), ("reduce", 1.0), ("send", 1.0),
    ],
)  # fmt: skip
def test_bus_factors_of_nccl_tests(operation: str, factor: float) -> None:
    assert network.bus_factor(operation, 4) == factor


def test_bus_bandwidth_of_a_perfect_ring_is_the_link_s() -> None:
    for n in (2, 3, 4, 64):
        seconds = network.ring_all_reduce(n, MB, 0, B)
        assert network.bus_bandwidth("all_reduce", n, MB, seconds) == pytest.approx(B)
    assert network.algorithm_bandwidth(10**9, 0.5) == 2e9


@pytest.mark.parametrize("algorithm", GROUPED)
def test_impossible_requests_are_refused(algorithm: Callable[..., float]) -> None:
    with pytest.raises(ValueError, match="at least one rank, not 0"):
        algorithm(0, MB, A, B)
    with pytest.raises(ValueError, match="0 bytes or more"):
        algorithm(2, -1, A, B)
    for latency, bandwidth in ((-1e-6, B), (A, 0), (A, -B)):
        with pytest.raises(ValueError, match="give a latency"):
            algorithm(2, MB, latency, bandwidth)


def test_bandwidths_refuse_what_has_none() -> None:
    with pytest.raises(ValueError, match="'barrier'"):
        network.bus_factor("barrier", 4)
    with pytest.raises(ValueError, match="time > 0"):
        network.algorithm_bandwidth(1, 0)
    with pytest.raises(ValueError, match="at least one rank"):
        network.bus_factor("all_reduce", 0)
