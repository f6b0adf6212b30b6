"""Recordings of labs: made by `lockstep record` (keeping), found (shelf), shown in the place of ranks (standin)."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kit.session.recorded.keeping import Keeper


def keeper() -> Keeper | None:
    """Who keeps what this kernel runs; None in every kernel but those of `lockstep record`."""
    keeping = sys.modules.get("kit.session.recorded.keeping")
    return keeping.current() if keeping is not None else None
