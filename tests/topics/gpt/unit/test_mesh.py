"""A rank's place in the mesh, by words and in the picture."""

from __future__ import annotations

import pytest

from kit.plot.figure import Boxes, Figure, Labels
from kit.topics.gpt.mesh import mesh_figure, mesh_panel
from kit.topics.gpt.reference import Layout

CUBE = Layout("ddp", dp=2, tp=2, pp=2)


@pytest.mark.parametrize(
    ("where", "ranks"),
    [
        ("dp=1", (2, 3, 6, 7)),
        ("dp=1, tp=0", (2, 6)),
        ("pp=1,tp=0:2", (4, 5, 6, 7)),
        ("tp=1:", (1, 3, 5, 7)),
        ("tp=:1, dp=:", (0, 2, 4, 6)),
        ("dp=0, tp=1, pp=1", (5,)),
        ("", (0, 1, 2, 3, 4, 5, 6, 7)),
    ],
)
def test_ranks_are_addressed_by_their_place(where: str, ranks: tuple[int, ...]) -> None:
    assert CUBE.at(where) == ranks


def test_every_place_has_one_rank() -> None:
    layout = Layout("zero1", dp=3, tp=2, pp=2)
    places = [f"dp={dp}, tp={tp}, pp={pp}" for pp in range(2) for dp in range(3) for tp in range(2)]
    assert [layout.at(place) for place in places] == [(rank,) for rank in range(12)]
    assert layout.groups("dp") == [layout.at(f"tp={tp}, pp={pp}") for pp in range(2) for tp in range(2)]


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("cp=1", "'cp=1' is no place in a mesh: write as in 'dp=1, tp=0:4'"),
        ("dp", "'dp' is no place"),
        ("dp=2", r"'dp=2': ddp=2 x tp=2 x pp:1F1B=2 has dp=0:2"),
        ("tp=1:1", "nothing there"),
        ("tp=0:4", "tp=0:2, and nothing there"),
    ],
)
def test_places_that_there_are_not_are_refused(where: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CUBE.at(where)


def boxes(figure: Figure, outline: bool) -> Boxes:
    (axes,) = (axes for _, axes in figure.axes())
    (found,) = (mark for mark in axes.marks if isinstance(mark, Boxes) and mark.outline == outline)
    return found


def written(figure: Figure) -> list[str]:
    return [text for _, axes in figure.axes() for mark in axes.marks if isinstance(mark, Labels) for text in mark.text]


def test_the_picture_has_every_rank_in_its_place() -> None:
    """Neighbours in a frame share layers, replicas are rows, stages stand beside each other."""
    figure = mesh_figure(CUBE, "dp=1")
    cells = boxes(figure, outline=False)
    assert list(cells.told) == [
        f"rank {r}: dp={p.dp}, tp={p.tp}, pp={p.pp}" for r, p in enumerate(map(CUBE.place, range(8)))
    ]
    assert cells.faint is not None and [r for r in range(8) if not cells.faint[r]] == list(CUBE.at("dp=1"))
    assert (cells.left[:2] == cells.left[2:4]).all() and cells.top[0] == cells.top[5] < cells.top[2]
    assert cells.right[1] < cells.left[4], "stages are apart"
    frames = boxes(figure, outline=True)
    inside = [
        {
            r
            for r in range(8)
            if frames.left[k] < cells.left[r] < frames.right[k] and frames.top[k] < cells.top[r] < frames.bottom[k]
        }
        for k in range(len(frames.left))
    ]
    assert inside == [set(group) for group in CUBE.groups("tp")]
    names = written(figure)
    assert {"rank 7", "pp 1", "tp 0", "dp 1"} <= set(names) and (names.count("→"), names.count("⇅")) == (2, 4)


def test_words_say_who_shares_what() -> None:
    words = str(mesh_figure(Layout("zero3", dp=2, tp=2, sequence=True)))
    assert "tp (in one frame): 0, 1 | 2, 3 share every layer" in words and "positions in between" in words
    assert "dp (⇅): 0, 2 | 1, 3 hold one copy of the weights together" in words and "pp" not in words
    assert "by ZBH1" in mesh_panel("pp:ZBH1", 4).text()
    assert "dp=1, tp=0: ranks 2, 6." in mesh_panel(CUBE, at="dp=1, tp=0").text()
    assert "shares with nobody" in str(mesh_figure(Layout()))
    with pytest.raises(ValueError, match="64 ranks at most"):
        mesh_figure(Layout("ddp", dp=65))
