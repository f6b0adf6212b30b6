"""One stage of ZeRO over a step, beside what all stages hold and send: all to one scale, and of one size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from kit.trace.facts import Trace
from kit.trace.holdings import MODEL
from kit.views.holdings import Board, board, bytes_text
from kit.views.markup import escape, heading
from kit.views.memory_svg import board_svg, memory_class
from kit.views.stages import OPERATIONS, Stage, stage_words, stages

_LEFT, _RIGHT = 508, 276  # px: areas, bars
_HEADING, _LINE, _LINES = 22, 16, 4  # px; lines of words that there is room for
_BAR, _NAME, _TOP = 40, 16, 16  # px of a bar, of the number below, of the figure above
_SHORT = {"all_reduce": "AR", "reduce_scatter": "RS", "all_gather": "AG"}


class _Shown(NamedTuple):
    board: Board
    stages: dict[int, Stage]


def stages_html(runs: Mapping[int, Trace], stage: int, parameters: int, precision: str = "fp32") -> str:
    """Areas by rank of one stage; bars of what a rank holds at rest and sends, all stages, formulas dashed; words.

    runs: stage (0 to 3) -> a run whose memory was accounted for, and which ends with a training step. Raises ValueError
    for a stage that was not run.
    """
    shown = _shown(_key(runs), parameters, precision)
    column = _number(shown, stage)
    one = replace(shown.board, columns=(shown.board.columns[column],))
    swatches = [(f"ls-memory {memory_class(kind)}", kind) for kind in shown.board.kinds if kind != "other"]
    areas = board_svg(one, _LEFT)
    high = _height(areas) // 2 - _HEADING
    held = {s.number: (tuple(map(float, s.state)), float(s.due)) for s in shown.stages.values()}
    sent = {s.number: (s.sent, s.toll) for s in shown.stages.values()}
    said = "".join(f"<div>{escape(line)}</div>" for line in stages_words(runs, stage, parameters, precision))
    return (
        f'<div class="ls">{heading("Memory by rank over one step", swatches=swatches)}'
        f'<div class="ls-stages"><div>{areas}</div><div>'
        f"{heading('Held at rest', 'dashed: formula')}{_bars(held, stage, [memory_class(k) for k in MODEL], high)}"
        f"{heading('Sent in the step', 'AR all-reduce = RS + AG')}"
        f"{_bars(sent, stage, [f'ls-{name}' for name in OPERATIONS], high, list(_SHORT.values()))}"
        f'</div></div><div class="ls-said" style="height:{_LINE * _LINES}px">{said}</div></div>'
    )


def stages_words(runs: Mapping[int, Trace], stage: int, parameters: int, precision: str = "fp32") -> tuple[str, ...]:
    """What `stages_html` says of this stage, sentence by sentence."""
    shown = _shown(_key(runs), parameters, precision)
    _number(shown, stage)
    return stage_words(shown.stages[stage], shown.board.rows)


def stages_height(runs: Mapping[int, Trace], parameters: int, precision: str = "fp32") -> int:
    """px, the same for every stage."""
    shown = _shown(_key(runs), parameters, precision)
    return _HEADING + _height(board_svg(shown.board, _LEFT)) + 4 + _LINE * _LINES


def _key(runs: Mapping[int, Trace]) -> tuple[tuple[int, Trace], ...]:
    return tuple(sorted(runs.items()))


@lru_cache(maxsize=8)
def _shown(runs: tuple[tuple[int, Trace], ...], parameters: int, precision: str) -> _Shown:
    accounts, figures = stages(dict(runs), parameters, precision)
    named = {f"stage {number}": held for number, held in accounts.items()}
    formulas = {f"stage {number}": {one.formula: one.due} for number, one in figures.items()}
    return _Shown(board(named, formulas), figures)


def _number(shown: _Shown, stage: int) -> int:
    if stage not in shown.stages:
        there = ", ".join(map(str, shown.stages))
        raise ValueError(f"stage {stage} was not run: choose from {there}")
    return list(shown.stages).index(stage)


def _height(svg: str) -> int:
    return int(svg.split('height="', 1)[1].split('"', 1)[0])


def _bars(
    found: Mapping[int, tuple[tuple[float, ...], float]],
    chosen: int,
    kinds: list[str],
    high: int,
    names: list[str] | None = None,
) -> str:
    """A stack for each stage, the chosen one strong; its formula as a dashed line across it."""
    bottom = high - _NAME
    most = max(max(sum(parts), due) for parts, due in found.values()) or 1.0
    scale, step = (bottom - _TOP) / most, _RIGHT / len(found)
    drawn = []
    for place, (stage, (parts, due)) in enumerate(found.items()):
        x, middle = place * step + (step - _BAR) / 2, (place + 0.5) * step
        y, line = bottom - scale * sum(parts), bottom - scale * due
        faint, strong = ("", " ls-strong") if stage == chosen else (' class="ls-faint"', "")  # bars: words stay clear
        size = bytes_text(sum(parts))
        drawn.append(
            f"<g><title>stage {stage}: {size}, by formula {bytes_text(due)}</title>"
            f"<g{faint}>{_stack(parts, x, bottom, scale, kinds)}</g>{_names(parts, x, bottom, scale, names or [])}"
            f'<line class="ls-formula" stroke-dasharray="5 4" x1="{x - 6:.1f}" x2="{x + _BAR + 6:.1f}" y1="{line:.1f}"'
            f' y2="{line:.1f}"/>'
            f'<text class="ls-axis{strong}" x="{middle:.1f}" y="{y - 5:.1f}">{size}</text>'
            f'<text class="ls-axis{strong}" x="{middle:.1f}" y="{high - 3}">stage {stage}</text></g>'
        )
    base = f'<line class="ls-tick" x1="0" x2="{_RIGHT}" y1="{bottom}" y2="{bottom}"/>'
    words = ", ".join(f"stage {stage}: {bytes_text(sum(parts))}" for stage, (parts, _) in found.items())
    return (
        f'<svg class="ls" viewBox="0 0 {_RIGHT} {high}" width="{_RIGHT}" height="{high}" role="img"'
        f' xmlns="http://www.w3.org/2000/svg" aria-label="{escape(words)}">{base}{"".join(drawn)}</svg>'
    )


def _stack(parts: tuple[float, ...], x: float, bottom: float, scale: float, kinds: list[str]) -> str:
    """The parts of one bar from the bottom up."""
    drawn, y = [], bottom
    for number, size in enumerate(parts):
        y -= scale * size
        if size:
            frame = f'x="{x:.1f}" y="{y:.1f}" width="{_BAR}" height="{scale * size:.1f}"'
            drawn.append(f'<rect class="ls-part {kinds[number]}" {frame}/>')
    return "".join(drawn)


def _names(parts: tuple[float, ...], x: float, bottom: float, scale: float, names: list[str]) -> str:
    """The short names of parts, where there is room."""
    drawn, y = [], bottom
    for name, size in zip(names, parts, strict=False):
        tall = scale * size
        y -= tall
        if tall > 12:
            place = f'x="{x + _BAR / 2:.1f}" y="{y + tall / 2 + 3.5:.1f}"'
            drawn.append(f'<text class="ls-axis ls-over" {place}>{name}</text>')
    return "".join(drawn)
