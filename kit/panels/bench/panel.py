"""The schedule bench: drag an action and see at once whether it still runs and what it costs, then run it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from kit.cost.pipeline import Times
from kit.panels.areas import header_area, header_area_html
from kit.panels.bench.controls import KEYS, Controls
from kit.panels.bench.draft import Draft, Place, RowMaker
from kit.panels.bench.layout import Layout, beginning, laid_out, needed
from kit.panels.bench.sheet import MOST_HELD, Block, Held, Look, News, Said, Sheet
from kit.panels.bench.words import Gauge, Target, gauges, verdict
from kit.panels.one_at_a_time import OneAtATime
from kit.panels.panel import Panel, area
from kit.plan.families import FAMILIES, schedule
from kit.plan.flaws import Flaw, flaws, most_held
from kit.plot.markup import escape
from kit.plot.pipeline import pipeline_figure
from kit.plot.render_svg import html
from kit.trace.text import counted

if TYPE_CHECKING:
    from kit.cost.pipeline import Timeline
    from kit.panels.page_bridge import PageFacts
    from kit.plan.schedule import Action, Schedule
    from kit.plot.figure import Figure

MOST_DRAWN = 4_000  # actions of which an SVG is made: 0.6 MB, in every notebook that is saved


class Ran(Protocol):
    """What comes back from the ranks. str() of it says how it went."""

    @property
    def timeline(self) -> Timeline: ...


class ScheduleBench(Panel):
    """A schedule that is dragged, edited or written, and proved, priced and run. `text()` reads it all.

    Every control is one method. What a motion cannot do it says with a ValueError; pressed in the page it stands beside
    the buttons. run: takes a schedule to the ranks, if there are any. times: of the actions, in `unit`.
    """

    def __init__(
        self,
        begin: Schedule,
        target: Target | None = None,
        times: Times | None = None,
        unit: str = "units",
        run: Callable[[Schedule], Ran] | None = None,
    ) -> None:
        self.target = target or Target()
        self._draft = Draft(begin)
        self._times, self._unit = times or Times(), unit
        self._go = run
        self._ran: dict[tuple[object, ...], Ran] = {}
        self._look = Look()
        self._notice = ""
        self._under_way = OneAtATime(self.paint, self._failed)
        self._sheet = Sheet(self._touched)
        self._controls = Controls(tuple(FAMILIES), run is not None, self._pressed, self._picked, self._typed)
        self._typing = False
        self._header, self._gauges, self._words = header_area(""), area("gauges"), area("words")
        parts = [self._header, *self._controls.rows(), self._sheet.widget, self._gauges, self._words]
        self._prove()
        super().__init__("Schedule bench", [*parts, self._controls.table], self._heard, keys=KEYS)
        self.add_class("lsp-bench")
        self.paint()

    # ------------------------------------------------------------------------------------------ controls

    def load(self, begin: Schedule | str, micro_batches: int | None = None) -> None:
        """Another schedule to work on, or one of the literature by its name. ValueError where there is none."""
        now = self.schedule
        made = schedule(begin, now.ranks, micro_batches or now.micro_batches) if isinstance(begin, str) else begin
        if made.ranks != now.ranks:
            raise ValueError(f"this bench has {now.ranks} ranks; {made.name} is for {made.ranks}")
        self._change(lambda: self._draft.replaced(made))

    def make(self, row_of: RowMaker) -> None:
        """A row for each rank from `row_of(rank, ranks, micro_batches)`: actions, or their text such as '0F0'."""
        self._change(lambda: self._draft.make(row_of))

    def edit(self, text: str) -> None:
        """torch's text form: a row a rank. ValueError for a cell that is no action, with its row and column."""
        self._change(lambda: self._draft.edit(text))

    def choose(self, rank: int, position: int) -> None:
        """The action that the next motions are about. ValueError for one that is not there."""
        self._change(lambda: self._draft.choose(rank, position))

    def previous(self) -> None:
        """Chooses the action before."""
        self._change(lambda: self._draft.beside(-1))

    def next(self) -> None:
        """Chooses the action after."""
        self._change(lambda: self._draft.beside(1))

    def above(self) -> None:
        """Chooses what runs at about the same time on the rank above."""
        self._change(lambda: self._draft.across(-1, self._opposite))

    def below(self) -> None:
        """Chooses what runs at about the same time on the rank below."""
        self._change(lambda: self._draft.across(1, self._opposite))

    def move(self, rank: int, position: int, to: int) -> None:
        """Puts an action to another place of its row. ValueError for an action or a place that is not there."""
        self._change(lambda: self._draft.move(rank, position, to))

    def earlier(self) -> None:
        """Moves the chosen action one place earlier. ValueError when none is chosen."""
        self._change(lambda: self._draft.shift(-1))

    def later(self) -> None:
        """Moves the chosen action one place later. ValueError when none is chosen."""
        self._change(lambda: self._draft.shift(1))

    def part(self) -> None:
        """Parts the chosen B into I and W; joins the chosen I or W with its other half. ValueError else."""
        kind = self._kind
        self._change(self._draft.join if kind in ("I", "W") else self._draft.part)

    def undo(self) -> None:
        """Back to before the last change. ValueError when there is none."""
        self._change(self._draft.undo)

    def redo(self) -> None:
        """The change that was undone. ValueError when there is none."""
        self._change(self._draft.redo)

    def run(self) -> Ran:
        """Runs the schedule on the ranks; what was measured stands under the drawn one. ValueError for one with flaws,
        before anything runs, and where there are no ranks.
        """
        self._notice = ""
        self._under_way.now(self._run_now)
        return self._ran[_key(self.schedule)]

    def look(self, begin: float = 0.0, end: float = 0.0) -> None:
        """Shows this part of the time in the page; without arguments all of it."""
        self._look = Look(self._look.number + 1, begin, end)
        self.paint()

    def zoom(self, factor: float) -> None:
        """Shows so many times less of the time in the page."""
        self._look = Look(self._look.number + 1, factor=factor)
        self.paint()

    def table(self, on: bool = True) -> None:
        """Shows the schedule as text to be edited, or hides it."""
        self._controls.show_table(on)
        self.paint()

    def export(self, path: str | Path) -> Path:
        """Writes the schedule in torch's text form, which `torch.distributed.pipelining` reads."""
        target = Path(path)
        target.write_text(self.schedule.text(), encoding="utf-8")
        return target

    def read(self, path: str | Path) -> None:
        """Takes the schedule of a file in torch's text form."""
        self.edit(Path(path).read_text(encoding="utf-8"))

    # ------------------------------------------------------------------------------------------ reading

    @property
    def schedule(self) -> Schedule:
        return self._draft.schedule

    @property
    def chosen(self) -> Place | None:
        return self._draft.chosen

    @property
    def flaws(self) -> tuple[Flaw, ...]:
        """What is wrong with the schedule; nothing: it can run."""
        return self._flaws

    @property
    def timeline(self) -> Timeline | None:
        """The schedule as it would run; None while it cannot."""
        return None if self._flaws else self._layout.line

    @property
    def measured(self) -> Timeline | None:
        """What was measured of this very schedule; None until it has run."""
        ran = self._ran.get(_key(self.schedule))
        return ran.timeline if ran else None

    @property
    def reached(self) -> bool:
        """Whether the schedule can run and comes down to the target."""
        share = self._layout.idle_share
        held = max(most_held(self.schedule, rank) for rank in range(self.schedule.ranks))
        return not self._flaws and share is not None and self.target.reached(share, held)

    @property
    def status(self) -> str:
        """'running', 'runs', or how many flaws there are."""
        if self._under_way.busy:
            return "running"
        return counted(len(self._flaws), "flaw") if self._flaws else "runs"

    def text(self) -> str:
        """All that the bench says, as plain text: what is drawn, the proof, the gauges, the action in hand."""
        told = [" · ".join((self._title, self.status)), *self._sentences()]
        told.insert(1 + len(verdict(self._flaws)), "; ".join(map(str, self._gauge())))
        return "\n".join([*told, self._notice] if self._notice else told)

    def inside(self) -> tuple[str, int]:
        picture = self._svg()
        page = header_area_html(self._header_html()) + f'<div class="lsp-cell lsp-schedule">{picture}</div>'
        page += f'<div class="lsp-gauges">{self._gauges_html()}</div><div class="lsp-words">{self._words_html()}</div>'
        return page, self._figure().whole + 190 if self._layout.line.seconds else 220

    # ------------------------------------------------------------------------------------------ inside

    def paint(self) -> None:
        """Shows the schedule in hand. The page paints the grid itself, out of what it is told here."""
        draft = self._draft
        text = draft.schedule.text() if self._controls.table_shown and not self._typing else None
        busy, valid = self._under_way.busy, not self._flaws
        self._sheet.show(self._news(), self._svg)
        self._controls.paint(text, draft.chosen is not None, self._kind, draft.can_undo, draft.can_redo, valid, busy)
        self._controls.say(self._notice)
        self._gauges.value = self._gauges_html()
        self._words.value = self._words_html()
        self._header.value = self._header_html()
        self._still.stale()

    def _prove(self) -> None:
        self._flaws = flaws(self.schedule)
        self._layout: Layout = laid_out(self.schedule, self._times)

    def _change(self, motion: Callable[[], object]) -> None:
        """A motion of the draft, and all that follows from it."""
        self._notice = ""
        before = self.schedule
        motion()
        if self.schedule is not before:
            self._prove()
        self.paint()

    def _run_now(self) -> None:
        if self._go is None:
            raise ValueError("this bench has no ranks to run on")
        if self._flaws:
            raise ValueError(f"this schedule cannot run: {self._flaws[0].sentence}")
        made = self.schedule
        self._ran[_key(made)] = self._go(made)

    def _opposite(self, here: Place, rank: int) -> int:
        """The position on another rank that begins at about the time of an action."""
        began = self._layout.began
        when = began[here.rank][here.position] if began[here.rank] else 0.0
        after = bisect_left(began[rank], when)
        near = [i for i in (after - 1, after) if 0 <= i < len(began[rank])]
        return min(near, key=lambda i: abs(began[rank][i] - when), default=0)

    def _news(self) -> News:
        layout, made = self._layout, self.schedule
        share = layout.idle_share
        cost = "does not run to its end" if self._flaws or share is None else f"idle {share:.1%} of the time"
        drawn = Block.of(f"drawn: {cost}", made, layout.began, layout.ended, layout.line.seconds, layout.runs)
        blocks, span = [drawn], max((max(row) for row in layout.ended if row), default=1.0)
        if line := self.measured:
            whole = tuple(map(len, made.rows))
            told = f"measured: idle {line.idle_share:.1%} of the time"
            blocks.append(Block.of(told, line.schedule, line.began, line.ended, line.seconds, whole))
            span = max(span, line.seconds)
        held = tuple(Held.of(layout.line, rank) for rank in range(made.ranks)) if made.ranks <= MOST_HELD else ()
        marks = tuple((f.rank, f.position) for f in self._flaws if f.rank is not None and f.position is not None)
        room = self.target.held
        links = (*self._missing(), *self._needs_of_chosen())
        chosen = self._draft.chosen
        return News(
            tuple(blocks), held, span, self._unit, layout.halt, room, chosen, marks[:MOST_HELD], links, self._look
        )

    def _missing(self) -> list[tuple[int, int, int, int, bool]]:
        """From what a rank waits for, where it stands in the schedule at all, to what waits."""
        found = []
        for rank, action in self._layout.needs.items():
            for name in (action, action._replace(kind="B")) if action.kind == "I" else (action,):
                if place := self._place(name):
                    found.append((*place, rank, self._layout.runs[rank], True))
        return found

    def _needs_of_chosen(self) -> list[tuple[int, int, int, int, bool]]:
        if self._draft.chosen is None:
            return []
        rank, position = self._draft.chosen
        places = map(self._place, needed(self.schedule, self.schedule.rows[rank][position]))
        return [(*place, rank, position, False) for place in places if place]

    def _place(self, action: Action) -> Place | None:
        for rank, row in enumerate(self.schedule.rows):
            if action in row:
                return Place(rank, row.index(action))
        return None

    @property
    def _kind(self) -> str:
        """Of the chosen action; '' where none is."""
        if self._draft.chosen is None:
            return ""
        rank, position = self._draft.chosen
        return self.schedule.rows[rank][position].kind

    @property
    def _title(self) -> str:
        made = self.schedule
        sizes = (counted(made.ranks, "rank"), counted(made.stages, "stage"), f"{made.micro_batches} micro-batches")
        return " · ".join((made.name, *sizes))

    def _sentences(self) -> list[str]:
        return [*verdict(self._flaws), *self._about_chosen(), *self._about_run(), *self._about_target()]

    def _about_chosen(self) -> list[str]:
        if self._draft.chosen is None:
            return []
        rank, position = self._draft.chosen
        action = self.schedule.rows[rank][position]
        needs = [one for one in needed(self.schedule, action) if self._place(one)]
        told = f"; it needs {' and '.join(map(str, needs))}" if needs else ""
        return [f"In hand: {action}, place {position} of rank {rank}{told}"]

    def _about_run(self) -> list[str]:
        ran = self._ran.get(_key(self.schedule))
        return str(ran).splitlines() if ran else []

    def _about_target(self) -> list[str]:
        aims = self.target.idle is not None or self.target.held is not None
        return ["The target is reached."] if aims and self.reached else []

    def _gauge(self) -> list[Gauge]:
        return gauges(self._layout, self.target, not self._flaws, self._unit)

    def _gauges_html(self) -> str:
        return "".join(one.html() for one in self._gauge())

    def _words_html(self) -> str:
        wrong = len(verdict(self._flaws)) if self._flaws else 0
        lines = [
            f'<div class="ls-word{" ls-bad" if i < wrong else ""}">{escape(told)}</div>'
            for i, told in enumerate(self._sentences())
        ]
        return "".join(lines)

    def _header_html(self) -> str:
        name, _, sizes = self._title.partition(" · ")
        return f"<div><b>{escape(name)}</b> <span>· {escape(sizes)}</span></div><span>{escape(self.status)}</span>"

    def _figure(self) -> Figure:
        """What a page shows that runs no scripts, and a saved notebook: of very many actions the first."""
        runs = {"drawn": self._layout.line}
        if self.measured:
            runs["measured"] = self.measured
        if self._part:
            most = MOST_DRAWN // len(runs)
            runs = {f"{name}, the first {most:,} actions": beginning(line, most) for name, line in runs.items()}
        return pipeline_figure(runs, self._unit)

    @property
    def _part(self) -> str:
        """A sentence where a still picture shows only some of the actions; else ''."""
        actions = sum(map(len, self.schedule.rows))
        if actions <= MOST_DRAWN:
            return ""
        return f"{actions:,} actions: a page that runs scripts paints them all; what is said below is said of all."

    def _svg(self) -> str:
        if not self._layout.line.seconds:
            return '<div class="ls-empty">No action of this schedule can run.</div>'
        part = f'<div class="ls-word">{escape(self._part)}</div>' if self._part else ""
        return part + html(self._figure())

    def _heard(self, page: PageFacts) -> None:
        self._sheet.heard(page)

    def _touched(self, said: Said) -> None:
        """A person touched an action in the page."""
        if said.what == "choose":
            self._guarded(lambda: self.choose(said.rank, said.position))
            return
        self._guarded(lambda: self._change(lambda: self._draft.move(said.rank, said.position, said.to, said.gesture)))
        if said.over:
            self._draft.end_gesture()
            self.paint()

    def _pressed(self, name: str) -> None:
        if name == "run":
            self._notice = ""
            self._under_way.soon(self._run_now)
            return
        presses: dict[str, Callable[[], object]] = {
            "back": self.earlier,
            "step": self.later,
            "before": self.previous,
            "after": self.next,
            "up": self.above,
            "down": self.below,
            "part": self.part,
            "undo": self.undo,
            "redo": self.redo,
            "nearer": partial(self.zoom, 2.0),
            "farther": partial(self.zoom, 0.5),
            "all": self.look,
            "table": lambda: self.table(not self._controls.table_shown),
        }
        self._guarded(presses[name])

    def _picked(self, family: str) -> None:
        self._guarded(lambda: self.load(family))

    def _typed(self, text: str) -> None:
        self._typing = True
        try:
            self._guarded(lambda: self.edit(text))
        finally:
            self._typing = False

    def _guarded(self, motion: Callable[[], object]) -> None:
        """What has no caller to raise to is said beside the buttons."""
        try:
            motion()
        except ValueError as error:
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        self._notice = str(error)
        self._controls.say(self._notice)


def _key(made: Schedule) -> tuple[object, ...]:
    """What makes two schedules run in the same way."""
    return made.rows, made.together, made.stages, made.micro_batches
