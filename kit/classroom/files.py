"""Files that are whole or not there: whoever ends a run at any moment leaves none half-written."""

from __future__ import annotations

import os
from pathlib import Path


def put(path: Path, text: str) -> Path:
    """Writes a text as it is, in UTF-8, in a folder that is made where it is missing; returns the path.

    Raises OSError where it cannot be written; what was there before stays then.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(text, encoding="utf-8", newline="")
    return draft.replace(path)
