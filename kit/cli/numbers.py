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
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"a limit is a number of seconds above 0, not '{text}'")
    return number
