"""The grid of the bench in its place: a still SVG where only ipywidgets are to be had, a canvas where scripts run.

The canvas of assets/panel/schedule.js is given numbers, packed, so that 65,000 boxes come in a megabyte, and paints
them itself: a drag, a zoom and a pan need no picture from the kernel.
"""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Literal

import ipywidgets as widgets
import numpy as np

from kit.panels.page_bridge import page_ear, unseen
from kit.panels.panel import area
from kit.plan.schedule import KINDS
from kit.resources import assets

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kit.cost.pipeline import Moments, Timeline
    from kit.panels.page_bridge import PageFacts
    from kit.plan.schedule import Schedule

MOST_HELD = 8  # ranks whose activations are drawn; the words have all of them


@dataclass(frozen=True)
class Block:
    """The rows of one schedule, as numbers packed in base64. runs: by rank, how many actions run to their end."""

    title: str
    seconds: float
    counts: tuple[int, ...]
    runs: tuple[int, ...]
    began: str
    ended: str
    kind: str
    stage: str
    micro: str
    half: str  # 1 and 2: the upper and the lower of two that run together

    @classmethod
    def of(
        cls, title: str, schedule: Schedule, began: Moments, ended: Moments, seconds: float, runs: tuple[int, ...]
    ) -> Block:
        actions = [action for row in schedule.rows for action in row]
        numbers = np.array([(one.stage, KINDS.index(one.kind), one.micro_batch) for one in actions] or np.empty((0, 3)))
        counts = tuple(map(len, schedule.rows))
        starts = np.cumsum([0, *counts])
        half = np.zeros(len(actions), dtype=np.uint8)
        for rank, position in schedule.together:
            if position + 1 < runs[rank] and began[rank][position] == began[rank][position + 1]:
                half[starts[rank] + position : starts[rank] + position + 2] = 1, 2
        return cls(
            title,
            seconds,
            counts,
            runs,
            _packed(chain.from_iterable(began), "<f4"),
            _packed(chain.from_iterable(ended), "<f4"),
            _packed(numbers[:, 1], "<u1"),
            _packed(numbers[:, 0], "<u2"),
            _packed(numbers[:, 2], "<u2"),
            _packed(half, "<u1"),
        )


@dataclass(frozen=True)
class Held:
    """Activations of one rank: `counts[i]` of them from `times[i]` to `times[i + 1]`."""

    times: tuple[float, ...]
    counts: tuple[int, ...]

    @classmethod
    def of(cls, line: Timeline, rank: int) -> Held:
        changes = line.held(rank)
        return cls((*(when for when, _ in changes), line.seconds), tuple(count for _, count in changes))


@dataclass(frozen=True)
class Look:
    """What part of the time the page is to show; another number is another wish. end 0: all; factor: nearer by that."""

    number: int = 0
    begin: float = 0.0
    end: float = 0.0
    factor: float = 0.0


@dataclass(frozen=True)
class News:
    """All that the page has to know. marks: places of actions that are wrong. links: from what is needed to who needs
    it, two places and whether it is missing. answers: the number of what the page said last. painted: the kernel knows
    that the canvas is there.
    """

    blocks: tuple[Block, ...]
    held: tuple[Held, ...]
    span: float
    unit: str
    halt: float | None
    room: int | None
    chosen: tuple[int, int] | None
    marks: tuple[tuple[int, int], ...]
    links: tuple[tuple[int, int, int, int, bool], ...]
    look: Look
    answers: int = 0
    painted: bool = False


@dataclass(frozen=True)
class Said:
    """What a person did in the page. gesture: of which drag; over: it has ended."""

    what: Literal["painted", "choose", "drag"]
    number: int
    rank: int = 0
    position: int = 0
    to: int = 0
    gesture: str = ""
    over: bool = False


class Sheet:
    """`show(news)` paints; `said(what)` is called when a person touches the canvas."""

    def __init__(self, said: Callable[[Said], object]) -> None:
        self._said = said
        self._last = 0
        self._view: tuple[float, int] | None = None
        self.painted = False
        self._data = unseen(area("data"))
        self._still = area("bench-still")
        mark = f'<img src="data:," alt="" hidden onerror="{html.escape(f"{_script()}.adopt(this)", quote=True)}">'
        hand = page_ear("lsp-hand", self._heard)
        self.widget = widgets.Box([self._data, self._still, hand, unseen(widgets.HTML(mark))])
        for name in ("cell", "schedule"):
            self.widget.add_class(f"lsp-{name}")

    def show(self, news: News, still: Callable[[], str]) -> None:
        """still: the SVG, asked for as long as no canvas has been painted."""
        if not self.painted:
            self._still.value = still()
        told = asdict(news) | {"answers": self._last, "painted": self.painted}
        self._data.value = f"<pre hidden>{html.escape(json.dumps(told, separators=(',', ':')), quote=False)}</pre>"

    def heard(self, page: PageFacts) -> None:
        """A page that shows the panel for the first time has a canvas that is not painted yet."""
        told = page["since"], page["view"]
        self.painted = self.painted and told == self._view
        self._view = told

    def _heard(self, told: dict[str, object]) -> None:
        said = Said(**told)  # type: ignore[arg-type]  # as assets/panel/schedule.js says it
        self._last = said.number
        if said.what == "painted":
            self.painted = True
        else:
            self._said(said)


@cache
def _script() -> str:
    return (assets() / "panel" / "schedule.js").read_text(encoding="utf-8")


def _packed(values: Iterable[float], kind: str) -> str:
    numbers = np.fromiter(values, dtype=kind) if not isinstance(values, np.ndarray) else values.astype(kind)
    return base64.b64encode(numbers.tobytes()).decode()
