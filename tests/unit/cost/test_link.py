"""Latency and bandwidth recovered from times that are known to follow them."""

from __future__ import annotations

import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kit.cost import network
from kit.cost.link import Link, fit_link, formula_of

SIZES = [10**k for k in range(2, 9)]
OPERATIONS = (
    "send", "broadcast", "reduce", "gather", "scatter", "all_gather", "reduce_scatter", "all_reduce", "all_to_all",
)  # fmt: skip


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("ranks", [2, 3, 4, 7])
def test_a_fit_finds_the_link_the_times_were_made_with(operation: str, ranks: int) -> None:
    times = [formula_of(operation)(ranks, size, 4e-5, 2.5e9) for size in SIZES]
    found = fit_link(operation, ranks, SIZES, times)
    assert found.latency == pytest.approx(4e-5, rel=1e-6)
    assert found.bandwidth == pytest.approx(2.5e9, rel=1e-6)
    assert found.error < 1e-6 and found.note == ""
    assert isinstance(found, Link)


@given(
    alpha=st.floats(1e-7, 1e-2),
    bandwidth=st.floats(1e6, 1e12),
    seed=st.integers(0, 10**6),
)
def test_both_numbers_survive_five_percent_of_noise(alpha: float, bandwidth: float, seed: int) -> None:
    random = Random(seed)
    crossing = alpha * bandwidth  # bytes at which both cost the same: measured on either side of it
    sizes = [max(1.0, crossing * 10**k) for k in (-3, -2, -1, 0, 1, 2, 3)]
    times = [network.message(size, alpha, bandwidth) * random.uniform(0.95, 1.05) for size in sizes]
    found = fit_link("send", 2, sizes, times)
    if crossing >= 1e3:
        assert found.latency == pytest.approx(alpha, rel=0.2)
    assert found.bandwidth == pytest.approx(bandwidth, rel=0.2)
    assert found.error < 0.1


def test_relative_errors_count_so_that_long_transfers_do_not_drown_the_latency() -> None:
    times = [network.message(size, 5e-5, 1e9) for size in SIZES]
    times[-1] *= 1.05  # 5 ms off in 100: a hundred times the latency
    assert fit_link("send", 2, SIZES, times).latency == pytest.approx(5e-5, rel=0.1)


def test_what_does_not_show_is_said_and_never_negative() -> None:
    flat = fit_link("send", 2, [100, 1000], [2e-4, 1e-4])
    assert flat.bandwidth == math.inf and flat.latency > 0 and "bandwidth does not show" in flat.note
    steep = fit_link("send", 2, [1e6, 2e6], [1e-3, 3e-3])
    assert steep.latency == 0 and 0 < steep.bandwidth < math.inf and "latency does not show" in str(steep)


def test_another_formula_gives_another_link() -> None:
    times = [network.tree_all_reduce(8, size, 1e-5, 1e9) for size in SIZES]
    assert fit_link("all_reduce", 8, SIZES, times, network.tree_all_reduce).bandwidth == pytest.approx(1e9)
    assert fit_link("all_reduce", 8, SIZES, times).bandwidth != pytest.approx(1e9, rel=0.1)
    assert fit_link("all_reduce", 8, SIZES, times, network.tree_all_reduce).formula == "tree_all_reduce"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("send", 2, [100], [1e-5]), "at least two sizes"),
        (("send", 2, [100, 100], [1e-5, 2e-5]), "at least two sizes"),
        (("send", 2, [100, 200], [1e-5]), "one time for each size"),
        (("send", 2, [100, 200], [1e-5, 0.0]), "above 0"),
        (("all_reduce", 1, [100, 200], [1e-5, 2e-5]), "sends nothing"),
        (("barrier", 4, [100, 200], [1e-5, 2e-5]), "sends nothing"),
        (("allreduce", 4, [100, 200], [1e-5, 2e-5]), "no formula is known for 'allreduce'"),
    ],
)
def test_nonsense_says_what_to_do(arguments: tuple, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        fit_link(*arguments)
