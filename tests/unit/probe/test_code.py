"""Which code is whose, asked from several threads."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

import kit
from kit.probe import code as module
from kit.probe.code import OTHER, OWN, REFERENCE, Code

FILE = str(Path(kit.__file__).parent / "topics" / "zero" / "reference" / "flat.py")


def test_a_reference_is_read_once_and_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    code, reading, read = Code({}, "cell"), threading.Event(), threading.Event()
    times: list[int] = []
    told: list[tuple[int, int]] = []

    def slowly(lines: tuple[str, ...]) -> dict[int, int]:
        times.append(len(lines))
        reading.set()
        read.wait()
        return {2: 1}

    monkeypatch.setattr(module, "statement_starts", slowly)
    first = threading.Thread(target=code.line, args=(FILE, 1))
    second = threading.Thread(target=lambda: told.append((code.kind(FILE), code.line(FILE, 2))))
    first.start()
    reading.wait()
    second.start()
    second.join(0.1)  # as far as it comes
    read.set()
    first.join()
    second.join()
    assert len(times) == 1 and told == [(REFERENCE, 1)]


def test_what_was_typed_without_a_file_is_stepped_although_nobody_has_its_text() -> None:
    assert Code({}, "<string>").kind("<string>") == OWN
    assert Code({}, "cell").kind("<string>") == OTHER, "what dataclasses make of themselves, for instance"
