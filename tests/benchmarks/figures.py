"""What a benchmark finds: figures with their gates, printed and written alike by every program of this folder."""

from __future__ import annotations

import argparse
import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True)
class Figure:
    """One measured number.

    unit: 's', 'ms', 'MB' or '×' (a ratio, taken side by side). gate: what is asked for, None for what is only told.
    asked: whether the gate is the most or the least. spread: (lowest, highest) over the repeats. beside: what it is
    measured against or how, in a few words.
    """

    what: str
    value: float
    unit: str
    gate: float | None = None
    asked: Literal["at most", "at least"] = "at most"
    spread: tuple[float, float] | None = None
    beside: str = ""

    @property
    def within(self) -> bool:
        if self.gate is None:
            return True
        return self.value <= self.gate if self.asked == "at most" else self.value >= self.gate

    def measured(self) -> str:
        spread = "" if self.spread is None else f" ({_number(self.spread[0])} to {_number(self.spread[1])})"
        return f"{_number(self.value)} {self.unit}{spread}"

    def demand(self) -> str:
        return "" if self.gate is None else f"{self.asked} {_number(self.gate)} {self.unit}"


def _number(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def machine() -> str:
    """The machine in words: cores, memory, GPUs, versions."""
    import torch

    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    devices = f"GPUs: {', '.join(gpus)}" if gpus else "no GPU"
    versions = f"Python {platform.python_version()}, torch {torch.__version__}"
    return f"{len(os.sched_getaffinity(0))} cores, {memory:.0f} GB, {devices}; {versions}"


def options(description: str | None) -> argparse.ArgumentParser:
    """A parser with what every program of this folder takes."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the figures here")
    return parser


def tell(figures: Sequence[Figure], file: Path | None = None) -> None:
    """Prints the figures; ends the program with status 1 if one is outside its gate."""
    print(table(figures))
    if file is not None:
        file.write_text(json.dumps([asdict(figure) for figure in figures], indent=1))
    raise SystemExit(0 if all(figure.within for figure in figures) else 1)


def read(file: Path) -> list[Figure]:
    found = json.loads(file.read_text())
    return [Figure(**{**each, "spread": tuple(each["spread"]) if each["spread"] else None}) for each in found]


def table(figures: Sequence[Figure]) -> str:
    """Aligned columns for a terminal."""
    rows = [(f.what, f.measured(), f.demand(), "" if f.within else "OUTSIDE", f.beside) for f in figures]
    widths = [max(len(row[i]) for row in rows) for i in range(4)]
    lines = [
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[4]]) for row in rows
    ]
    return "\n".join(line.rstrip() for line in lines)


def markdown(figures: Sequence[tuple[str, Figure]]) -> str:
    """A table for the README: (program, figure) by row."""
    rows = ["| what | measured | asked | against | program |", "|---|---|---|---|---|"]
    for program, f in figures:
        asked = f.demand() + ("" if f.within else " (**missed**)")
        rows.append(f"| {f.what} | {f.measured()} | {asked} | {f.beside} | `{program}` |")
    return "\n".join(rows)
