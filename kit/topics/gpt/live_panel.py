"""A training as it goes on: curves, speeds, what the model writes, the log; to be held, hurried and stepped through."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import cache
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import ipywidgets as widgets

from kit import shown
from kit.panels.areas import header_area, header_area_html
from kit.panels.embed import FigureView
from kit.panels.one_at_a_time import OneAtATime, running_loop
from kit.panels.panel import Panel, area, row, row_html
from kit.panels.transport import button
from kit.plot.markup import escape
from kit.plot.render_svg import html
from kit.resources import assets
from kit.topics.gpt.history import History, Lost, Taken
from kit.topics.gpt.live import OVER, Joined, Training
from kit.topics.gpt.log import LEGEND, Log
from kit.topics.gpt.pictures import loss_figure, recipe_figure
from kit.trace.text import counted, size_text, time_text

if TYPE_CHECKING:
    from kit.panels.page_bridge import PageFacts
    from kit.run.cursor import Steppable
    from kit.topics.gpt.recorded import Recorded

PERIOD = 0.5  # s between two paintings at least
LINES = 40  # of the log
KEYS = {" ": "pause", "s": "save", "n": "through", "m": "measure"}
_HEIGHT = 806  # px: enough for a still picture


@cache
def _style() -> str:
    return (assets() / "panel" / "training.css").read_text(encoding="utf-8")


def panel(run: Training | Joined | Recorded | History | str | Path) -> TrainingPanel:
    """The panel of a training that `gpt.start` began or `gpt.join` follows, or of a history or its file.

    Raises ValueError for a file that is no history.
    """
    return TrainingPanel(History.load(run) if isinstance(run, str | Path) else run)


class TrainingPanel(Panel):
    """Paints whenever there is news, twice a second at most. `text()` reads it all.

    Every control is one method, of a training on this kernel's ranks; others are looked at. What cannot be done is said
    with a ValueError or OSError; pressed in the page it stands beside the buttons.
    """

    def __init__(self, run: Training | Joined | Recorded | History) -> None:
        self.run = run
        self._notice, self._painted, self._due = "", 0.0, False
        self._stepper: Any = None  # the panel of a step that is stepped through
        self._under_way = OneAtATime(self.paint, self._failed)
        self._header, self._progress, self._numbers = header_area(""), area("progress"), area("numbers")
        self._sample, self._log, self._legend = area("text"), area("text"), area("legend")
        for part, name in ((self._progress, "progress"), (self._numbers, "numbers"), (self._legend, "legend")):
            part.add_class(f"lspt-{name}")
        for part, name in ((self._sample, "sample"), (self._log, "log")):
            part.add_class("lspt-text")
            part.add_class(f"lspt-{name}")
        self._loss, self._recipe = FigureView("losses"), FigureView("recipe")
        self._place = widgets.VBox()
        self._controls = Controls(self._pressed, self._set_rate, self._set_prompt) if self._is_ours else None
        parts = [
            self._header,
            *(self._controls.rows() if self._controls else ()),
            self._progress,
            self._numbers,
            row(self._loss.widget, self._recipe.widget),
            row(self._sample, self._log),
            self._legend,
            self._place,
        ]
        self._legend.value = f"<details><summary>What the log says</summary>{escape(LEGEND)}</details>"
        super().__init__("Training", parts, self._heard, more_style=_style(), keys=KEYS)
        self.add_class("lsp-record")
        self.paint()
        if not isinstance(run, History):
            self._leave: Callable[[], None] = run.subscribe(self._news)

    # ------------------------------------------------------------------------------------------ controls

    def pause(self) -> None:
        """After the steps under way."""
        self._under_way.now(self._ours.pause)

    def resume(self) -> None:
        """Trains on; a step that is being stepped through is finished first."""
        self._under_way.now(self._resume)

    def stop(self) -> None:
        """Ends the training and frees the ranks."""
        self._under_way.now(self._stop)

    def save(self) -> Path:
        """Writes a checkpoint between two steps."""
        path = self._ours.save()
        self._say(f"saved {path}")
        return path

    def step_through(self) -> Steppable:
        """Pauses, and opens the very next step in a stepping panel below."""
        session = self._ours.step_through()
        self._show(session)
        return session

    def measure(self) -> Lost:
        """Records the very next step, and trains on: what of its time was lost."""
        self._measure_and_say()
        self.paint()
        assert self.history.lost is not None, "it was measured just now"
        return self.history.lost

    @property
    def rate(self) -> float:
        """A factor on the recipe's learning rate; can be set."""
        return self._ours.rate

    @rate.setter
    def rate(self, factor: float) -> None:
        self._ours.rate = factor
        self.paint()

    @property
    def prompt(self) -> str:
        """What samples begin with; can be set."""
        return self._ours.prompt

    @prompt.setter
    def prompt(self, text: str) -> None:
        self._ours.prompt = text
        self.paint()

    # ------------------------------------------------------------------------------------------ reading

    @property
    def history(self) -> History:
        return self.run if isinstance(self.run, History) else self.run.history

    @property
    def status(self) -> str:
        """'running', 'paused', 'finished', 'stopped', 'failed'; 'kept' of a history that nobody adds to."""
        return "kept" if isinstance(self.run, History) else self.run.state

    def text(self) -> str:
        """All that the panel says, as plain text."""
        history, sample = self.history, self._last_sample()
        told = [" · ".join((*_about(history), self.status)), self._progress_words()]
        told += [f"{one.name}: {one.number}" + (f" ({one.full})" if one.full else "") for one in _numbers(history)]
        told += [f"after step {sample.number + 1:,} it writes:", sample.sample] if sample else []
        told += [*self._trouble(), *([self._notice] if self._notice else [])]
        return "\n".join(told)

    def inside(self) -> tuple[str, int]:
        page = header_area_html(self._header_html())
        page += f'<div class="lsp-area lspt-progress">{self._progress_html()}</div>'
        page += f'<div class="lsp-area lspt-numbers">{_numbers_html(self.history)}</div>'
        page += row_html(html(loss_figure({"": self.history})), html(recipe_figure(self.history)))
        texts = ((self._sample_html(), "sample"), (self._log_html(), "log"))
        page += row_html(*(f'<div class="lspt-text lspt-{name}">{text}</div>' for text, name in texts))
        return page, _HEIGHT

    # ------------------------------------------------------------------------------------------ inside

    def paint(self) -> None:
        """Shows how the training stands."""
        self._painted, self._due = time.monotonic(), False
        history = self.history
        self._header.value = self._header_html()
        self._progress.value = self._progress_html()
        self._numbers.value = _numbers_html(history)
        self._loss.show(loss_figure({"": history}))
        self._recipe.show(recipe_figure(history))
        self._sample.value, self._log.value = self._sample_html(), self._log_html()
        if self._controls is not None:
            self._controls.paint(self.status, self._under_way.busy, self._ours.rate, self._ours.prompt)
            self._controls.say(" ".join([*self._trouble(), self._notice]).strip())
        if self.status in OVER or self.status == "running":
            self._place.children = ()
            self._stepper = None
        (self.add_class if self.status == "running" else self.remove_class)("lsp-running")
        self._still.stale()

    def _news(self) -> None:
        """Steps, or another state. What comes sooner than is painted waits for its turn."""
        early = PERIOD - (time.monotonic() - self._painted)
        loop = running_loop()
        if early <= 0 or loop is None or self.status != "running":
            self.paint()
        elif not self._due:
            self._due = True
            loop.call_later(early, self.paint)

    @property
    def _is_ours(self) -> bool:
        return isinstance(self.run, Training)

    @property
    def _ours(self) -> Training:
        if not isinstance(self.run, Training):
            raise ValueError("this training is not on the ranks of this kernel: it can be looked at")
        return self.run

    def _resume(self) -> None:
        self._ours.resume()

    def _stop(self) -> None:
        self._ours.stop()

    def _pressed(self, name: str) -> None:
        self._notice = ""
        motions: dict[str, Callable[[], object]] = {
            "pause": self._resume if self.status == "paused" else self._ours.pause,
            "stop": self._stop,
            "save": self._save_and_say,
            "through": self._step_and_show,
            "measure": self._measure_and_say,
        }
        self._under_way.soon(motions[name])

    def _save_and_say(self) -> None:
        self._notice = f"saved {self._ours.save()}"

    def _measure_and_say(self) -> None:
        self._ours.measure()
        assert self.history.lost is not None, "it was measured just now"
        self._notice = f"step {self.history.lost.number + 1:,} was recorded"

    def _step_and_show(self) -> None:
        self._show(self._ours.step_through())

    def _show(self, session: Steppable) -> None:
        if self._stepper is None:
            self._stepper = shown.panel(session)
            self._place.children = (self._stepper,)

    def _set_rate(self, factor: float) -> None:
        self._asked(lambda: setattr(self._ours, "rate", factor))

    def _set_prompt(self, text: str) -> None:
        self._asked(lambda: setattr(self._ours, "prompt", text))

    def _asked(self, wish: Callable[[], object]) -> None:
        self._notice = ""
        try:
            wish()
        except ValueError as error:
            self._notice = str(error)
        self.paint()

    def _say(self, sentence: str) -> None:
        self._notice = sentence
        self.paint()

    def _failed(self, error: Exception) -> None:
        self._notice = str(error) or type(error).__name__

    def _heard(self, page: PageFacts) -> None:
        self._loss.heard(page)
        self._recipe.heard(page)

    def _trouble(self) -> list[str]:
        return [] if isinstance(self.run, History) or not self.run.trouble else [self.run.trouble]

    def _last_sample(self) -> Taken | None:
        return next((step for step in reversed(self.history.steps) if step.sample), None)

    def _header_html(self) -> str:
        first, *others = _about(self.history)
        quiet = " · ".join(others)
        return f"<div><b>{escape(first)}</b> <span>· {escape(quiet)}</span></div><span>{escape(self.status)}</span>"

    def _progress_html(self) -> str:
        history = self.history
        part = history.done / history.about.recipe.steps
        bar = f'<i style="width:{part:.2%}"></i>'
        return (
            f'<div class="lspt-bar" role="progressbar" aria-valuenow="{100 * part:.0f}">{bar}</div>'
            f"<span>{escape(self._progress_words())}</span>"
        )

    def _progress_words(self) -> str:
        history = self.history
        left = history.seconds_left if self.status in ("running", "paused") else None
        pace = "" if left is None else f" · about {_clock(left)} left"
        return f"step {history.done:,} of {history.about.recipe.steps:,}{pace}"

    def _sample_html(self) -> str:
        step = self._last_sample()
        head = "What it writes" + (f", after step {step.number + 1:,}" if step else "")
        text = escape(step.sample) if step else "(nothing yet: every 50 steps)" if self._is_ours else "(no sample)"
        return f'<div class="ls-head"><span>{escape(head)}</span></div><pre>{text}</pre>'

    def _log_html(self) -> str:
        lines = "".join(f"<span>{escape(line)}</span>" for line in reversed(list(log_lines(self.history))))
        return f'<div class="ls-head"><span>Log</span></div><pre tabindex="0">{lines}</pre>'


class Controls:
    """Buttons and fields. They call back and never decide anything."""

    def __init__(
        self, press: Callable[[str], object], rate: Callable[[float], object], prompt: Callable[[str], object]
    ) -> None:
        def made(name: str, text: str, tip: str, primary: bool = False) -> widgets.Button:
            return button(text, tip, name, lambda: press(name), primary)

        self._pause = made(
            "pause", "Pause", "Stands after the steps under way; trains on when pressed again (Space)", True
        )
        self._through = made("through", "Step through", "Opens the very next step in a stepper (N)")
        self._measure = made("measure", "Measure", "Records the very next step: what of its time is lost (M)")
        self._save = made("save", "Save", "Writes a checkpoint between two steps (S)")
        self._stop = made("stop", "Stop", "Ends the training and frees the ranks")
        self._rate = widgets.FloatText(1.0, description="rate ×", step=0.1)
        self._prompt = widgets.Text(
            "", description="prompt", placeholder="what samples begin with", continuous_update=False
        )
        for field, name in ((self._rate, "rate"), (self._prompt, "prompt")):
            field.add_class("lspt-field")
            field.add_class(f"lspt-{name}")
        self._painting = False
        self._rate.observe(lambda change: None if self._painting else rate(change["new"]), "value")
        self._prompt.observe(lambda change: None if self._painting else prompt(change["new"]), "value")
        self._notice = widgets.HTML()
        self._notice.add_class("lsp-notice")
        self._keys = widgets.HTML(
            "<span>keys: <kbd>Space</kbd> pause · <kbd>N</kbd> step through · <kbd>M</kbd> measure · "
            "<kbd>S</kbd> save</span>"
        )
        self._keys.add_class("lsp-keys")

    def rows(self) -> tuple[widgets.Widget, widgets.Widget]:
        first = widgets.HBox(
            [self._pause, self._through, self._measure, self._save, self._stop, self._rate, self._prompt]
        )
        second = widgets.HBox([self._notice, self._keys])
        first.add_class("lsp-bar")
        for name in ("bar", "quiet"):
            second.add_class(f"lsp-{name}")
        return first, second

    def paint(self, status: str, busy: bool, rate: float, prompt: str) -> None:
        over = status in OVER
        self._painting = True
        try:
            self._pause.description = "Resume" if status == "paused" else "Pause"
            for each in (self._pause, self._through, self._measure, self._save, self._stop):
                each.disabled = over or busy
            for field, value in ((self._rate, rate), (self._prompt, prompt)):
                field.disabled = over
                if field.value != value:
                    field.value = value
        finally:
            self._painting = False

    def say(self, notice: str) -> None:
        """One line below the buttons."""
        self._notice.value = f'<span role="status" title="{escape(notice)}">{escape(notice)}</span>' if notice else ""


def log_lines(history: History, most: int = LINES) -> Iterable[str]:
    """The newest lines, as `lockstep train` writes them."""
    about = history.about
    log = Log(about.ranks, about.peak, about.flops)
    for step in history.steps[-most:]:
        yield log.line(step)
        if step.validation is not None:
            yield log.validation(step, step.validation)


def _about(history: History) -> tuple[str, ...]:
    about = history.about
    devices = " ".join(dict.fromkeys(device.partition(":")[0] for device in about.devices))
    sizes = about.model
    shape = f"{sizes.n_layer} layers, {sizes.n_embd} channels, block {sizes.block_size}"
    parameters = f"{about.parameters / 1e6:.2f} M parameters"
    return about.strategy, f"{counted(about.ranks, 'rank')} on {devices}", parameters, shape


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


def _numbers_html(history: History) -> str:
    return "".join(
        f'<div class="lspt-number" title="{escape(one.full)}"><span>{escape(one.name)}</span>'
        f"<b>{escape(one.number)}</b><small>{escape(one.beside) or '&#160;'}</small></div>"
        for one in _numbers(history)
    )


class _Number(NamedTuple):
    """whole: what a pointer over it shows, where that is more than there is room for beside it."""

    name: str
    number: str
    beside: str = ""
    whole: str = ""

    @property
    def full(self) -> str:
        return self.whole or self.beside


def _numbers(history: History) -> list[_Number]:
    """'–' before the first step."""
    latest, about = history.latest, history.about
    validated = next((step for step in reversed(history.steps) if step.validation is not None), None)
    held = next((step.memory for step in reversed(history.steps) if step.memory), ())
    lost = f"validation {validated.validation:.4f}, step {validated.number + 1:,}" if validated else "no validation yet"
    if latest is None:
        names = (
            "loss",
            "dt",
            "samples a second",
            "tokens a second",
            "MFU",
            "memory of a rank",
            "learning rate",
            "norm",
            "communication",
            "waiting",
        )
        return [_Number(name, "–") for name in names]
    named = {"forward": "dtf", "backward": "dtb"}
    spent = " · ".join(
        f"{named.get(name, name)} {time_text(one)}"
        for name, one in latest.spent.items()
        if name in named or name == "pipeline"
    )
    n, peak = about.ranks, f"of {_speed(about.peak)} a rank"
    return [
        _Number("loss", f"{latest.loss:.4f}" if isfinite(latest.loss) else "not a number", lost),
        _Number("dt", time_text(history.seconds_per_step), spent),
        _Number(
            "samples a second", f"{history.samples_per_second:,.1f}", f"{history.samples_per_second / n:,.1f} a rank"
        ),
        _Number("tokens a second", f"{history.tokens_per_second:,.0f}", f"{history.tokens_per_second / n:,.0f} a rank"),
        _Number("MFU", f"{history.mfu:.1%}", peak, f"{peak}, {about.source}"),
        _Number("memory of a rank", size_text(max(held)) if held else "–", ", ".join(map(size_text, held))),
        _Number("learning rate", f"{latest.rate:.3g}", f"of {about.recipe.rate:.3g} at most"),
        _Number("norm", f"{latest.norm:.3f}", f"of all gradients; clipped at {about.recipe.clip:g}"),
        *_lost(history),
    ]


def _speed(flops: float) -> str:
    """flops: floating-point operations a second."""
    return f"{flops / 1e12:,.3g} Tflop/s" if flops >= 1e12 else f"{flops / 1e9:.3g} Gflop/s"


def _lost(history: History) -> list[_Number]:
    """Shares of the step that was recorded last."""
    lost = history.lost
    if lost is None:
        return [
            _Number("communication", "–", "no step was measured"),
            _Number("waiting", "–", "in a pipeline: bubbles"),
        ]
    when = f"of step {lost.number + 1:,}"
    return [
        _Number("communication", f"{lost.communication:.1%}", f"{when}: not hidden by computing"),
        _Number("waiting", f"{lost.waiting:.1%}", f"{when}: for ranks that had not come; in a pipeline: bubbles"),
    ]
