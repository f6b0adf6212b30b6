"""The row that says that a panel shows a recording: there when there is something to say, in the picture too."""

from __future__ import annotations

from typing import Any

import pytest

from kit.panels.panel import about_rows
from kit.panels.results import record_panel
from kit.panels.stepping import SteppingPanel
from kit.run.cursor import Replay
from tests.traces import example
from tests.unit.panels.test_still import picture_of

SENTENCE = "A recording, made on 2026-11-21 with 4 ranks, because there is no cluster here: <ports> & folders."


class Said(Replay):
    about = SENTENCE


def rows(panel: Any) -> list[Any]:
    return [child for child in panel.children if "lsp-about" in child._dom_classes]


def test_a_panel_without_a_sentence_has_no_row() -> None:
    assert about_rows("") == []
    assert rows(SteppingPanel(Replay(example.ring()))) == []


@pytest.mark.parametrize("kind", ["stepper", "record"])
def test_the_sentence_is_in_the_panel_its_words_and_its_picture(kind: str) -> None:
    if kind == "stepper":
        plain, panel = SteppingPanel(Replay(example.ring())), SteppingPanel(Said(example.ring()))
    else:
        plain, panel = record_panel(example.via_root()), record_panel(_Recording())
    (row,) = rows(panel)
    assert "&lt;ports&gt; &amp; folders" in row.value and 'role="note"' in row.value
    assert SENTENCE in panel.text() and SENTENCE not in plain.text()
    assert SENTENCE in "".join(picture_of(panel).itertext())
    assert SENTENCE not in "".join(picture_of(plain).itertext())


class _Recording:
    trace = example.via_root()
    about = SENTENCE
