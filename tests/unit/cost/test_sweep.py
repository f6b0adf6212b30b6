"""What a sweep says of its rows: nccl-tests' bandwidths beside a computation of its own, the table, the file."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from kit.cost import network
from kit.cost.link import formula_of
from kit.cost.sweep import Row, Sweep

LINK = (3e-5, 2e9)


def made(ranks: int = 4, operations: tuple[str, ...] = ("send", "all_reduce", "reduce_scatter")) -> Sweep:
    """A sweep whose times follow the formulas exactly."""
    rows = [
        Row(
            name, ranks, size, tuple(formula_of(name)(ranks, size, *LINK) * f for f in (1.0, 0.9, 1.3)), (1e-3,) * ranks
        )
        for name in operations
        for size in (1200, 120_000, 12_000_000)
    ]
    return Sweep(ranks, "gloo", ("cpu",) * ranks, tuple(rows), 3, 1, "2026-11-20T12:00:00+00:00", "torch", ("a note",))


def link_bytes(operation: str, n: int, whole: int) -> float:
    """Bytes that the busiest link must carry, counted chunk by chunk: the hand-written other way to busbw."""
    chunk = whole / n
    if operation == "all_reduce":  # every rank sends n-1 chunks to be added up, then n-1 that are finished
        return sum(chunk for _ in range(n - 1)) + sum(chunk for _ in range(n - 1))
    if operation in ("all_gather", "reduce_scatter", "all_to_all"):  # a rank sends all chunks but one
        return sum(chunk for _ in range(n - 1))
    if operation in ("gather", "scatter"):  # the root's link carries everybody's chunk but its own
        return sum(chunk for _ in range(n) if _ != 0)
    return whole  # broadcast, reduce, send: every byte crosses a link once


@pytest.mark.parametrize("n", [2, 3, 4, 8, 64])
@pytest.mark.parametrize(
    "operation",
    ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "gather", "scatter", "broadcast", "reduce", "send"],
)
def test_bus_bandwidth_is_what_the_busiest_link_carries(operation: str, n: int) -> None:
    row = Row(operation, n, 6400, (0.004, 0.002, 0.009), (0.004,) * n)
    assert row.algbw == pytest.approx(6400 / 0.004)
    assert row.busbw == pytest.approx(link_bytes(operation, n, 6400) / 0.004)


def test_a_reduce_scatter_counted_on_its_output_is_n_times_too_low() -> None:
    n, output, seconds = 8, 1_000_000, 1e-3
    right = Row("reduce_scatter", n, n * output, (seconds,), (seconds,) * n).busbw
    classic = output * (n - 1) / n / seconds
    assert right == pytest.approx(n * classic)
    gathered = Row("all_gather", n, n * output, (seconds,), (seconds,) * n).busbw
    assert right == gathered  # the same messages the other way round


def test_a_row_is_its_median_and_its_spread() -> None:
    row = Row("send", 2, 100, (5e-5, 1e-5, 3e-5), (1e-5, 2e-5))
    assert (row.seconds, row.fastest, row.slowest) == (3e-5, 1e-5, 5e-5)


def test_fit_and_prediction() -> None:
    sweep = made()
    found = sweep.fit("send")
    assert (found.latency, found.bandwidth) == pytest.approx(LINK)
    assert sweep.predict("all_reduce", 120_000, link=found) == pytest.approx(sweep.of("all_reduce")[1].seconds)
    assert sweep.predict("all_reduce", 1e6) == pytest.approx(network.ring_all_reduce(4, 1e6, *LINK))
    assert sweep.predict("all_reduce", 1e6, ranks=64) == pytest.approx(network.ring_all_reduce(64, 1e6, *LINK))
    tree = sweep.predict("all_reduce", 1e6, link=LINK, formula=network.tree_all_reduce)
    assert tree == pytest.approx(network.tree_all_reduce(4, 1e6, *LINK))


def test_a_fit_says_how_far_its_repetitions_let_it_vary() -> None:
    even = made().fit("send")
    low, high = even.latencies
    assert low <= even.latency <= high and high / low == pytest.approx(1.3 / 0.9, rel=0.2)
    rows = tuple(replace(row, times=(row.times[0],) * 7) for row in made().rows)
    sure = replace(made(), rows=rows).fit("send")
    assert sure.latencies == pytest.approx((LINK[0],) * 2) and sure.bandwidths == pytest.approx((LINK[1],) * 2)
    assert "α = 30 µs (30 to 30), 1/β = 2 GB/s (2 to 2)" in str(sure)
    assert even == made().fit("send"), "the same repetitions tell the same"


def test_what_was_not_measured_is_named() -> None:
    with pytest.raises(ValueError, match="'broadcast' was not measured; there is send, all_reduce"):
        made().fit("broadcast")
    short = replace(made(), rows=made().rows[:1])
    with pytest.raises(ValueError, match="at least two sizes"):
        short.fit("send")


def test_a_number_and_its_unit_stay_in_one_line() -> None:
    assert "1.2\u00a0kB" in made()._repr_html_() and "a note" in made()._repr_html_()


def test_the_table_has_a_line_for_each_row_and_says_what_gb_is() -> None:
    sweep = made()
    lines = str(sweep).splitlines()
    assert len(lines) == 2 + len(sweep.rows) + 1
    assert "GB = 10^9" in lines[0] and lines[-1] == "a note"
    row = sweep.of("all_reduce")[-1]
    assert f"{row.busbw / 1e9:.3g} GB/s" in next(line for line in lines if "all_reduce" in line and "12 MB" in line)
    assert sweep._repr_html_().count("<tr>") == 1 + len(sweep.rows)


def test_text_in_html_is_escaped() -> None:
    html = replace(made(), notes=("<b>throttled</b>",), backend="<i>")._repr_html_()
    assert "<b>" not in html and "<i>" not in html and "&lt;b&gt;throttled" in html


def test_a_file_gives_back_the_same_sweep(tmp_path: Path) -> None:
    path = made().save(tmp_path / "sweep.json")
    assert Sweep.load(path) == made()
    assert json.loads(path.read_text())["lockstep-sweep"] == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("no json", "is not a sweep"),
        ("[]", "is not a sweep"),
        ("{}", "is not a sweep"),
        ('{"lockstep-sweep": 99}', "version 99"),
        ('{"lockstep-sweep": 1}', "broken"),
        ('{"lockstep-sweep": 1, "rows": [{"nbytes": 3}]}', "broken"),
    ],
)
def test_another_file_is_refused(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=words):
        Sweep.load(path)
