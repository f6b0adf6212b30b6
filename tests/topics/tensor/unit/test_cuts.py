"""The grids of a layer that is cut: every cell in the colour of who holds it, at every moment of a stepped run."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from kit.plot.figure import Boxes, Figure, Labels
from kit.topics.tensor.figures.cuts import CUTS, cut_figure
from kit.trace.trace import Trace
from tests.traces.builder import TraceBuilder, tensor

LINES = ("def layer(x, w):", "    y = x @ w.T", "    dist.all_reduce(y)", "    return y")
X, W = np.array([[1.0, 2, 3], [4, 5, 6]]), np.arange(18.0).reshape(6, 3)  # (B, C), (F, C)


def holding(by_rank: list[Mapping[str, np.ndarray]]) -> Trace:
    """Ranks that stand before a line, each with matrices of its own."""
    drawing = TraceBuilder("layer", LINES, len(by_rank), "step")
    for rank, held in enumerate(by_rank):
        drawing.run(rank, 10)
        drawing.stop(rank, 3, [tensor(name, values, at) for at, (name, values) in enumerate(held.items())])
    drawing.position("start")
    return drawing.trace()


def by_columns(done: tuple[int, ...]) -> Trace:
    """Three ranks with two columns of W each; those of `done` have computed theirs of Y."""
    shards = [W[2 * rank : 2 * rank + 2] for rank in range(3)]
    return holding([{"x": X, "w": w} | ({"y": X @ w.T} if rank in done else {}) for rank, w in enumerate(shards)])


def by_rows(summed: bool) -> Trace:
    parts = [(X[:, rank : rank + 1], W[:, rank : rank + 1]) for rank in range(3)]
    return holding([{"x": x, "w": w, "y": X @ W.T if summed else x @ w.T} for x, w in parts])


def cells(figure: Figure) -> dict[str, list[str]]:
    """Tooltips of all cells, by the matrix they belong to."""
    found: dict[str, list[str]] = {}
    for _, axes in figure.axes():
        for told in (told for mark in axes.marks if isinstance(mark, Boxes) for told in mark.told):
            found.setdefault(told.partition("[")[0], []).append(told)
    return found


def written(figure: Figure, role: str) -> list[str]:
    marks = (mark for _, axes in figure.axes() for mark in axes.marks)
    return [text for mark in marks if isinstance(mark, Labels) and mark.role == role for text in mark.text]


def test_columns_of_y_come_where_columns_of_w_are() -> None:
    figure = cut_figure(by_columns(done=(0, 2)), 0, "columns")
    told = cells(figure)
    assert len(told["X"]) == 6 and all(one.endswith("the same on all ranks") for one in told["X"])
    assert {one for one in told["W"] if "[1, 3]" in one} == {"W[1, 3] = 10, on rank 1"}
    assert [one for one in told["Y"] if one.startswith("Y[1, ")] == [
        "Y[1, 0] = 17, on rank 0", "Y[1, 1] = 62, on rank 0", "Y[1, 4] = 197, on rank 2", "Y[1, 5] = 242, on rank 2",
        "Y[1, 2], not there yet", "Y[1, 3], not there yet",
    ]  # fmt: skip
    assert "Y: each rank holds 2 columns, rank 1 none yet" in figure.words
    assert "62" in written(figure, "on rank 0") and "62" not in written(figure, "on rank 2")


def test_terms_become_one_matrix_when_they_are_summed() -> None:
    before, after = (cut_figure(by_rows(summed), 0, "rows") for summed in (False, True))
    assert {"Y₀", "Y₁", "Y₂"} <= cells(before).keys() and "Y" not in cells(before)
    assert "Y: ranks 0, 1, 2 hold a term of a sum" in before.words
    assert "Y₀" not in cells(after) and all(one.endswith("the same on all ranks") for one in cells(after)["Y"])
    assert {one for one in cells(after)["W"] if "[2, 1]" in one} == {"W[2, 1] = 5, on rank 2"}
    assert "Y: the same on every rank" in after.words
    assert before.height == after.height and before.whole == after.whole, "nothing below moves"


def test_the_way_back_turns_what_lay_across() -> None:
    shards = [W[2 * rank : 2 * rank + 2] for rank in range(3)]
    dy = [np.full((2, 2), 1.0 + rank) for rank in range(3)]
    held = [{"x": X, "w": w, "dy": d, "dw": d.T @ X, "dx": d @ w} for w, d in zip(shards, dy, strict=True)]
    figure = cut_figure(holding(held), 0, "columns backward")
    told = cells(figure)
    assert len(figure.columns[0].axes) == 2
    assert "Wᵀ[3, 1] = 10, on rank 1" in told["Wᵀ"] and "dX₁[0, 0] = 30, on rank 1" in told["dX₁"]
    assert "dW[0, 5] = 15, on rank 2" in told["dW"], "a shard's gradient lies where the shard lies"


def test_numbers_that_have_no_room_are_left_to_the_tooltip() -> None:
    wide = holding([{"x": X[:, :1] * 1e5, "w": np.ones((20, 1)), "y": np.ones((2, 20)) * (1e5 + r)} for r in range(3)])
    figure = cut_figure(wide, 0, "rows")
    assert "100001" not in written(figure, "on rank 1") and "Y₁[0, 0] = 100001, on rank 1" in cells(figure)["Y₁"]


@pytest.mark.parametrize("cut", CUTS)
def test_every_cut_names_what_it_wants(cut: str) -> None:
    with pytest.raises(ValueError, match=r"shows the matrices .*w.* and no rank has enough of them"):
        cut_figure(holding([{"z": X}] * 2), 0, cut)


def test_a_cut_that_is_none_says_which_there_are() -> None:
    with pytest.raises(ValueError, match="choose from columns, columns backward, rows, rows backward"):
        cut_figure(by_rows(True), 0, "diagonals")
