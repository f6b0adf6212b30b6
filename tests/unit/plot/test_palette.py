from __future__ import annotations

from itertools import combinations

from kit.plot.palette import (
    COMMUNICATE,
    COMPUTE,
    EXPOSED,
    INK,
    MEMORY,
    OF_A_WORD,
    PAPER,
    PASSES,
    RANKS,
    UNKNOWN,
    contrast,
    rank_color,
    text_on,
    word_in,
)
from kit.trace.memory import KINDS


def test_contrast_is_the_wcag_ratio() -> None:
    assert contrast("#000000", "#ffffff") == contrast("#ffffff", "#000000") == 21.0
    assert round(contrast("#767676", "#ffffff"), 2) == 4.54


def test_text_reads_on_every_rank() -> None:
    for color in RANKS:
        assert text_on(color) in (INK, PAPER)
        assert contrast(text_on(color), color) >= 4.5, color


def test_a_coloured_word_reads_on_light_and_on_dark() -> None:
    def mixed(color: str, ink: str) -> str:
        pairs = ((int(color[i : i + 2], 16), int(ink[i : i + 2], 16)) for i in (1, 3, 5))
        return "#" + "".join(f"{round(OF_A_WORD * c + (1 - OF_A_WORD) * page):02x}" for c, page in pairs)

    for color in ("#8c959f", COMMUNICATE, RANKS[2]):  # not attempted, not yet, right
        assert f"{color} {OF_A_WORD:.0%}" in word_in(color)
        for ink, paper in (("#212121", "#ffffff"), ("#ffffff", "#212121")):  # JupyterLab's
            assert contrast(mixed(color, ink), paper) >= 4.5 > contrast(RANKS[2], "#ffffff")


def test_the_first_four_are_as_in_every_lab() -> None:
    assert RANKS[:4] == ("#0072B2", "#E69F00", "#009E73", "#CC79A7")


def test_no_colour_has_two_meanings() -> None:
    assert len({*RANKS, COMPUTE, COMMUNICATE}) == len(RANKS) + 2
    for one, other in combinations((*RANKS, COMPUTE, COMMUNICATE), 2):
        channels = [abs(int(one[i : i + 2], 16) - int(other[i : i + 2], 16)) for i in (1, 3, 5)]
        assert sum(channels) > 80, f"{one} and {other} are hard to tell apart"


def test_colours_repeat_after_eight_ranks() -> None:
    assert [rank_color(r) for r in range(8)] == list(RANKS)
    assert rank_color(9) == rank_color(1)


def test_the_grey_for_unknown_themes_reads_on_both() -> None:
    assert min(contrast(UNKNOWN, "#ffffff"), contrast(UNKNOWN, "#111417")) >= 3.8


def test_kinds_of_memory_keep_apart_from_each_other_and_from_ranks() -> None:
    assert MEMORY["communication buffers"] == COMMUNICATE, "communication has one colour"
    own = [color for kind, color in MEMORY.items() if kind not in ("communication buffers", "allocator")]
    passes = {paint.on(dark) for paint in PASSES.values() for dark in (False, True)}
    for one, other in [
        *combinations([*own, EXPOSED, *passes], 2),
        *((a, b) for a in (*own, *passes) for b in (*RANKS, COMPUTE, COMMUNICATE)),
    ]:
        channels = [abs(int(one[i : i + 2], 16) - int(other[i : i + 2], 16)) for i in (1, 3, 5)]
        assert sum(channels) > 80, f"{one} and {other} are hard to tell apart"
    assert tuple(MEMORY) == tuple(KINDS), "every kind has a colour, in the order of the stack"
