"""The reference collectives on real gloo ranks: equal to torch's own, and with exactly the traffic of theory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.gloo import RankFailed, World, world, world_sizes
from tests.topics.collectives.ranks.checks import (
    ALL_GATHERS,
    ALL_REDUCES,
    ALL_TO_ALLS,
    BROADCASTS,
    REDUCE_SCATTERS,
    check_all_gather,
    check_all_reduce,
    check_all_to_all,
    check_broadcast,
    check_exchange,
    check_gradient_history,
    check_halves_make_a_whole,
    check_not_contiguous,
    check_reduce_scatter,
    check_refusals,
    check_scalar,
    check_sub_groups,
    check_traffic,
    check_uneven_all_gather,
    check_uneven_all_to_all,
    fail_on_rank_one,
)
from tests.torches import groups_in_any_order

DTYPES = ("float32", "float64", "bfloat16", "int64")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "ranks" in metafunc.fixturenames:
        sizes = world_sizes(bool(metafunc.config.getoption("--full-matrix")))
        metafunc.parametrize("ranks", sizes, ids=lambda n: f"{n} ranks", indirect=True, scope="module")


@pytest.fixture(scope="module")
def ranks(request: pytest.FixtureRequest) -> Iterator[World]:
    with world(request.param) as running:
        yield running


@pytest.fixture(scope="module")
def five() -> Iterator[World]:
    with world(5) as running:
        yield running


def shapes(n: int) -> list[tuple[int, ...]]:
    flat = sorted({0, 1, n - 1, n, n + 1, 1000})
    return [(count,) for count in flat] + [(n + 2, 3), (1, 4), (2 * n, 0)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ALL_REDUCES)
def test_all_reduce_equals_torch(ranks: World, name: str, dtype: str) -> None:
    for shape in shapes(ranks.n):
        ranks.run(check_all_reduce, name, shape, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", REDUCE_SCATTERS)
def test_reduce_scatter_equals_torch(ranks: World, name: str, dtype: str) -> None:
    for shape in shapes(ranks.n):
        ranks.run(check_reduce_scatter, name, shape, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ALL_GATHERS)
def test_all_gather_equals_torch(ranks: World, name: str, dtype: str) -> None:
    for shape in shapes(ranks.n):
        ranks.run(check_all_gather, name, shape, dtype)


@pytest.mark.parametrize("name", ALL_GATHERS)
def test_all_gather_of_unequal_shares(ranks: World, name: str) -> None:
    for count in (0, 1, ranks.n + 1, 100):
        ranks.run(check_uneven_all_gather, name, count)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", BROADCASTS)
def test_broadcast_equals_torch_from_every_root(ranks: World, name: str, dtype: str) -> None:
    for shape in shapes(ranks.n):
        ranks.run(check_broadcast, name, shape, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ALL_TO_ALLS)
def test_all_to_all_equals_torch(ranks: World, name: str, dtype: str) -> None:
    for shape in shapes(ranks.n):
        ranks.run(check_all_to_all, name, shape, dtype)


@pytest.mark.parametrize("name", ALL_TO_ALLS)
def test_all_to_all_of_unequal_chunks(ranks: World, name: str) -> None:
    ranks.run(check_uneven_all_to_all, name)


@pytest.mark.parametrize("name", ALL_REDUCES + REDUCE_SCATTERS + ALL_GATHERS + BROADCASTS + ALL_TO_ALLS)
def test_input_need_not_be_contiguous_and_keeps_its_history(ranks: World, name: str) -> None:
    ranks.run(check_not_contiguous, name)
    ranks.run(check_gradient_history, name)


def test_a_scalar_is_summed(ranks: World) -> None:
    total = float(sum(range(1, ranks.n + 1)))
    assert ranks.run(check_scalar) == [[total] * len(ALL_REDUCES)] * ranks.n


def test_all_reduce_is_reduce_scatter_then_all_gather(ranks: World) -> None:
    for count in (0, 1, ranks.n, ranks.n + 1, 50):
        ranks.run(check_halves_make_a_whole, count)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_traffic_is_that_of_theory(ranks: World, dtype: str) -> None:
    for count in (0, 1, ranks.n - 1, ranks.n, ranks.n + 1, 101):
        ranks.run(check_traffic, count, 3, dtype)


def test_wrong_requests_say_what_is_wrong(ranks: World) -> None:
    ranks.run(check_refusals)


def test_exchange_when_everybody_sends_first(ranks: World) -> None:
    for count in (0, 1, 100_000):
        ranks.run(check_exchange, count)


def test_five_ranks_neither_even_nor_a_power_of_two(five: World) -> None:
    for name in ALL_REDUCES:
        for shape in shapes(5):
            five.run(check_all_reduce, name, shape, "float32")
    for name in REDUCE_SCATTERS:
        five.run(check_reduce_scatter, name, (12, 3), "float64")
    for name in ALL_TO_ALLS:
        five.run(check_uneven_all_to_all, name)
    for count in (0, 3, 5, 23):
        five.run(check_traffic, count, 2, "float32")


@groups_in_any_order
def test_groups_inside_the_world(five: World) -> None:
    assert five.run(check_sub_groups) == [(4, 2, 0), (3, 1), (4, 2, 0), (3, 1), (4, 2, 0)]


def test_a_failing_rank_fails_its_test(five: World) -> None:
    with pytest.raises(RankFailed, match="rank one says no"):
        five.run(fail_on_rank_one)
