"""Notebooks made of code cells, for tests of what is handed in."""

from __future__ import annotations

import json
from pathlib import Path


def notebook(*cells: str) -> str:
    """The text of a notebook with these code cells, under a cell of prose."""
    prose = {"cell_type": "markdown", "id": "prose", "metadata": {}, "source": ["@exercise is prose here"]}
    bare = {"cell_type": "code", "metadata": {}, "execution_count": None, "outputs": []}
    code = [{**bare, "id": f"c{number}", "source": cell} for number, cell in enumerate(cells)]
    return json.dumps({"cells": [prose, *code], "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


def write(path: Path, *cells: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(notebook(*cells), encoding="utf-8")
    return path
