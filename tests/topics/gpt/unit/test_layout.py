"""A strategy in words, and how it shares out the ranks."""

from __future__ import annotations

import pytest

from kit.topics.gpt.reference import Layout


@pytest.mark.parametrize(
    ("words", "ranks", "layout"),
    [
        ("single", 1, Layout()),
        ("zero2", 4, Layout("zero2", dp=4)),
        ("tp+sp", 2, Layout(tp=2, sequence=True)),
        ("pp:ZBH1", 3, Layout(pp=3, schedule="ZBH1")),
        ("ddp=2 x tp", 8, Layout("ddp", dp=2, tp=4)),
        ("ddp x tp+sp=2 x pp=2", 8, Layout("ddp", dp=2, tp=2, sequence=True, pp=2)),
        ("ddp", 1, Layout("ddp")),
    ],
)
def test_words_become_a_mesh(words: str, ranks: int, layout: Layout) -> None:
    assert Layout.parse(words, ranks) == layout and layout.ranks == ranks
    assert Layout.parse(str(layout), ranks).ranks == ranks


@pytest.mark.parametrize(
    ("words", "ranks", "message"),
    [
        ("fsdp", 2, "'fsdp' is no strategy: choose single, ddp"),
        ("ddp:ZBH1", 2, "'ddp:ZBH1' is no strategy"),
        ("ddp x zero1", 2, "one of each kind at most"),
        ("", 2, "one of each kind at most"),
        ("single", 2, "does not say how 2 ranks are shared out"),
        ("ddp x tp", 4, "does not say how 4 ranks are shared out"),
        ("ddp=3 x tp", 4, "does not say how 4 ranks"),
        ("ddp=2", 4, "does not say how 4 ranks"),
        ("tp=0", 1, "does not say how 1 rank is"),
    ],
)
def test_words_that_make_no_sense_are_refused(words: str, ranks: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Layout.parse(words, ranks)
