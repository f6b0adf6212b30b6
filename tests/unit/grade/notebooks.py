"""Small notebooks for the tests of `lockstep check`."""

from __future__ import annotations

import json
from pathlib import Path


def write(path: Path, *cells: str) -> Path:
    """Save a notebook with these code cells."""
    page = {
        "cells": [
            {
                "cell_type": "code",
                "execution_count": None,
                "id": f"c{n}",
                "metadata": {},
                "outputs": [],
                "source": source,
            }
            for n, source in enumerate(cells)
        ],
        "metadata": {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(page))
    return path


def verdict(exercise: str, outcome: str, sentence: str = "", seconds: float = 0.5) -> str:
    """A line of the side file."""
    entry = {"lab": "x", "exercise": exercise, "outcome": outcome, "sentence": sentence, "seconds": seconds}
    return json.dumps(entry) + "\n"


def saying(*lines: str) -> str:
    """A cell that writes verdicts as `kit.grade` does."""
    return f"import os\nwith open(os.environ['LOCKSTEP_VERDICTS'], 'a') as file:\n    file.write({''.join(lines)!r})"
