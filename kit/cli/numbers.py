"""Numbers among the options of a command."""

from __future__ import annotations

import argparse
from collections.abc import Callable


def whole(least: int, what: str) -> Callable[[str], int]:
    """Reads a whole number from `least` on. what: 'the number of ranks'."""

    def read(text: str) -> int:
        if not text.isascii() or not text.isdigit() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{what} is a whole number from {least} on, not '{text}'")
        return int(text)

    return read


def seconds(text: str) -> float:
    return _time(text, "seconds")


def minutes(text: str) -> float:
    return _time(text, "minutes")


def _time(text: str, unit: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"a limit is a number of {unit} above 0, not '{text}'")
    return number


def numbers(text: str) -> frozenset[int]:
    """Reads '5' and '5,6,8'."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise argparse.ArgumentTypeError(f"steps are numbers with commas between them, as in 5,6,8, not '{text}'")
    return frozenset(map(int, parts))
