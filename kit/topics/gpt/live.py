"""A training that goes on on the ranks while the notebook stays free.

A thread of the kernel asks the ranks for about two seconds of steps at a time, and for the next ones a little before
these are through, so that no rank waits for it. Whatever a person wishes, to pause, another rate, a checkpoint, goes
with a request to all ranks alike, and so takes effect between the same two steps.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from kit.gpt.checkpoint import Checkpoints
from kit.gpt.trainer import StepReport, Trainer
from kit.run import current
from kit.run.errors import RankError
from kit.run.live import LiveRunner
from kit.run.recordings.replay_runner import ReplayRunner
from kit.topics.gpt import recorded, standing
from kit.topics.gpt.history import History, Lost, Reader
from kit.topics.gpt.recorded import Recorded
from kit.topics.gpt.run import Config, taken
from kit.topics.gpt.standing import Begun, Here, Orders, Trouble, Went

if TYPE_CHECKING:
    from kit.run.cursor import Steppable
    from kit.run.results import Recording
    from kit.run.runner import Runner

SLICE = 2.0  # s of work that ranks are asked for at a time: to ask costs them and the kernel some 15 ms of processor
AHEAD = 0.2  # s before the end of a slice that the next one is asked for
FOLLOW = 1.0  # s between looks at a file that another process writes
LOOK = 0.2  # s between looks at ranks that may have died
GRACE = 5.0  # s that others have to answer once a rank has failed or died
LEAVING = 60.0  # s that ranks have to leave a step that was stepped through
SAMPLE_EVERY = 50  # steps

State = Literal["running", "paused", "finished", "stopped", "failed"]
OVER = ("finished", "stopped", "failed")
HELD = (
    "a training has these ranks: run.stop() frees them (run.save() before keeps what was learnt), run.step_through()"
    " steps its next step, and kit.options(threads=True).record(...) needs no ranks"
)


def start(config: Config, cluster: Runner | None = None) -> Training | Recorded:
    """Begins a training on all ranks of a cluster, None: of this kernel's, and returns while it goes on.

    Where a lab's recordings stand in for ranks, it is the one that was recorded. Raises ValueError for what cannot be
    trained, and where there are no ranks; RanksHeld where another training has them.
    """
    runner = current.runner() if cluster is None else cluster
    if isinstance(runner, ReplayRunner):
        return Recorded(runner)
    ranks = runner.live
    if not isinstance(ranks, LiveRunner):
        raise ValueError(f"a training needs ranks of a cluster, and these are {runner}: kit.cluster(2) starts some")
    training = Training(config, runner, ranks)
    runner.keep(recorded.NAME, training.told)
    return training


@dataclass(frozen=True)
class Asked:
    """What the ranks have been asked for, and by when they will be through, as far as one can know."""

    orders: Orders
    tasks: list[Any]  # by rank
    due: float  # of time.monotonic()


class Training:
    """What goes on on the ranks. `history` grows; `state` says how it stands, and `trouble` why it cannot go on."""

    def __init__(self, config: Config, runner: Runner, cluster: LiveRunner) -> None:
        self._config, self._runner, self._cluster = config, runner, cluster
        self._changed = threading.Condition()
        self._listeners: list[Callable[[], object]] = []
        self._rate, self._prompt, self._saving = 1.0, "", False
        self._saved = ""
        self._session: Steppable | None = None
        self._pace = SLICE  # s of a step lately, with all that a request costs beside: samples, checkpoints, its way
        self._wish: Literal["run", "pause", "stop"] = "run"
        self.state: State = "running"
        self.trouble = ""
        self._asked: deque[Asked] = deque()  # one, or two where the first is nearly through
        self._answered = 0.0  # when they answered last, of time.monotonic()
        self._broken = ""  # why the ranks cannot be asked any more
        cluster.scheduler.hold(HELD)
        self._generation = cluster.generation
        begun = self._begun()
        self._tokenizer, self._silent, self._done = begun.tokenizer, begun.silent, begun.done
        self.history = History(begun.about)
        self._writer = History.writer(config.log or os.devnull)
        self._writer.begin(begun.about)
        self._thread = threading.Thread(target=self._drive, name="training", daemon=True)
        self._thread.start()

    def _begun(self) -> Begun:
        try:
            self._engines = self._cluster.engines
            self._client = self._cluster.client
            answers = self._ask(standing.begin, *((self._config, device) for device in self._cluster.devices))
            if isinstance(answers, Trouble):
                raise ValueError(answers.sentence)
        except BaseException:
            self._free()
            raise
        first: Begun = answers[0]
        return first

    # what a person does

    def pause(self) -> None:
        """After the steps under way, within about two seconds. Returns when it stands; nothing where it is over."""
        self._ask_for("pause")
        with self._changed:
            self._changed.wait_for(lambda: self.state != "running")

    def resume(self) -> None:
        """Goes on; a step that is being stepped through is finished first."""
        self._end_of_stepping()
        self._ask_for("run")

    def stop(self) -> None:
        """Ends it, and frees the ranks; what was learnt since the last checkpoint is gone."""
        self._end_of_stepping(finish=False)
        self._ask_for("stop")
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def save(self) -> Path:
        """Writes a checkpoint between two steps, and returns its folder. OSError where it could not be written."""
        if not self._config.checkpoints:
            raise ValueError("there is no folder for checkpoints: gpt.start(Config(checkpoints='checkpoints', ...))")
        with self._changed:
            if self.state in OVER:
                raise ValueError(f"the training is over ({self.state}), and its ranks hold it no more")
            if self._session is not None:
                raise ValueError("a step is being stepped through: run.resume() finishes it, then there is one to save")
            self._saving, self._saved, self.trouble = True, "", ""
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._saving or self.state in OVER)
            if not self._saved:
                raise OSError(self.trouble or f"the training is over ({self.state})")
            return Path(self._saved)

    def wait(self, timeout: float | None = None, step: int | None = None) -> State:
        """Until it is over, or stands, or has done so many steps; after `timeout` seconds as it is."""
        with self._changed:
            self._changed.wait_for(
                lambda: self.state != "running" or (step is not None and self.history.done >= step), timeout
            )
            return self.state

    def step_through(self) -> Steppable:
        """Pauses, and steps the very next step on the same ranks and tensors: a session before its first line.

        `resume()` finishes it and trains on from there. Raises ValueError where no step is left.
        """
        self.pause()
        if self.state != "paused":
            raise ValueError(f"the training is over ({self.state}): there is no next step. {self.trouble}".strip())
        if self._session is None:
            with self._cluster.scheduler.lending():
                self._session = self._runner.step(Trainer.step, Here())
        return self._session

    def measure(self) -> Recording:
        """Records the very next step and trains on, if it did: what of its time was lost is in `history.lost`.

        Raises ValueError where no step is left, or one is being stepped through; RankError for a step that fails.
        """
        goes_on = self.state == "running"
        if self._session is not None:
            raise ValueError("a step is being stepped through: run.resume() finishes it, then the next can be measured")
        self.pause()
        if self.state != "paused":
            raise ValueError(f"the training is over ({self.state}): there is no next step. {self.trouble}".strip())
        try:
            with self._cluster.scheduler.lending():
                recording = self._runner.record(Trainer.step, Here())
        except RankError:
            self._broken = "the step that was measured failed, and ranks may stand apart"
            raise
        finally:
            if not self._cluster.scheduler.take_back(LEAVING):
                self._broken = "the ranks did not leave the step that was measured"
        report: StepReport = recording.results[0]
        self.history.lost = Lost.of(recording.trace, report.number)
        self._writer.measured(self.history.lost)
        self._add(Went([taken(report, ())], report.number + 1))
        if goes_on:
            self._ask_for("run")
        return recording

    @property
    def rate(self) -> float:
        """A factor on the recipe's learning rate; can be set while it runs. ValueError for one below 0."""
        return self._rate

    @rate.setter
    def rate(self, factor: float) -> None:
        if not factor >= 0:
            raise ValueError(f"the rate is a factor on the recipe's, 0 or more, not {factor!r}")
        self._rate = float(factor)

    @property
    def prompt(self) -> str:
        """What samples begin with; can be set while it runs. ValueError for what the model cannot read, and where
        nothing can be sampled.
        """
        return self._prompt

    @prompt.setter
    def prompt(self, text: str) -> None:
        if self._silent or self._tokenizer is None:
            raise ValueError(self._silent or "nobody knows what these tokens are")
        self._tokenizer.encode(text)
        self._prompt = text

    def subscribe(self, callback: Callable[[], object]) -> Callable[[], None]:
        """Calls after news: steps, another state; about every other second. Returns what ends it.

        Subscribed in a notebook's cell it is called in the kernel's own thread, between cells; elsewhere in another.
        """
        return _subscribed(self._listeners, callback)

    def told(self) -> str:
        """What a recording keeps of it."""
        return recorded.text_of(self.history, self.state, self.trouble, self._saved)

    def __repr__(self) -> str:
        return self.history.words(self.state, self.trouble)

    # what goes on

    def _ask_for(self, wish: Literal["run", "pause", "stop"]) -> None:
        with self._changed:
            if self.state in OVER:
                return
            self._wish = wish
            if wish == "run":
                self.state, self.trouble = "running", ""
            self._changed.notify_all()

    def _end_of_stepping(self, finish: bool = True) -> None:
        """What was stepped belongs to the training; a step that is broken off has changed nothing or all."""
        session, self._session = self._session, None
        if session is None or self.state in OVER:
            return
        if finish:
            try:
                if session.ended is None:
                    session.finish()
                report: StepReport = session.results[0]
            except RuntimeError:  # NotFinished is one
                self._broken = "the step that was stepped through was broken off, and ranks may stand apart"
            else:
                self._add(Went([taken(report, ())], report.number + 1))
        if not self._cluster.scheduler.take_back(LEAVING):
            self._broken = "the ranks did not leave the step that was stepped through"

    def _drive(self) -> None:
        try:
            with self._writer:
                while self._goes_on():
                    continue
        except Exception as error:  # nothing may leave a person waiting
            what = self._what_was_lost() if self._gone else f"{type(error).__name__}: {error}"
            self._over("failed", self._lost(what))

    def _goes_on(self) -> bool:
        """Until something is wished that the ranks must be asked for; whether there is more after it."""
        if not self._asked:
            with self._changed:
                if self._wish == "pause" and self.state == "running":
                    self._set("paused")
                self._changed.wait_for(lambda: self._wish != "pause" or self._saving, LOOK)
                wish, saving = self._wish, self._saving
            if self._broken or self._gone:
                return self._over("failed", self._lost(self._broken or self._what_was_lost()))
            if wish == "stop":
                return self._over("stopped")
            if wish == "pause" and not saving:
                return True
            self._answered = time.monotonic()
            self._request(0 if wish == "pause" else self._slice, saving)
        orders = self._asked[0].orders
        answers = self._answers(self._asked[0].tasks, self._ask_ahead)
        self._asked.popleft()
        if isinstance(answers, Trouble):
            for ahead in self._asked:
                self._answers(ahead.tasks)  # void, and where a rank has begun on it none the less, forked anew
            return self._over("failed", self._lost(answers.sentence))
        began, self._answered = self._answered, time.monotonic()
        went = [answer.steps for answer in answers]
        if went[0]:
            self._pace = (self._answered - began) / len(went[0])
        memory = [sum((step.memory for step in same), ()) for same in zip(*went, strict=True)]
        first = answers[0]
        self._add(replace(first, steps=[replace(s, memory=m) for s, m in zip(first.steps, memory, strict=True)]))
        with self._changed:
            self._saving = self._saving and not (orders.save and (first.saved or first.trouble))
            if first.trouble:
                self._wish, self.trouble = "pause", first.trouble
            self._changed.notify_all()
        over = self._done >= self._config.recipe.steps and not self._saving and not self._asked
        return self._over("finished") if over else True

    @property
    def _slice(self) -> int:
        """Steps in about that time."""
        return max(1, int(SLICE / self._pace))

    def _request(self, steps: int, save: bool, ahead: bool = False) -> None:
        orders = Orders(steps, self._rate, self._prompt, 0 if self._silent else SAMPLE_EVERY, save, ahead)
        begins = self._asked[0].due if ahead else time.monotonic()
        tasks = self._send(standing.go, *((orders,) for _ in self._engines))
        self._asked.append(Asked(orders, tasks, begins + steps * self._pace))

    def _ask_ahead(self) -> float:
        """Asks for the next steps if it is time, and nobody wishes anything else; seconds until there may be more."""
        with self._changed:
            if len(self._asked) > 1 or self._wish != "run" or self._saving:
                return LOOK
        under_way = self._asked[0]
        if self._done + under_way.orders.steps >= self._config.recipe.steps:
            return LOOK
        early = under_way.due - AHEAD - time.monotonic()
        if early <= 0:
            self._request(self._slice, save=False, ahead=True)
            return LOOK
        return min(early, LOOK)

    def _add(self, went: Went) -> None:
        with self._changed:
            for step in went.steps:
                self.history.append(step)
                self._writer.append(step)
            self._done, self._saved = went.done, went.saved or self._saved
            self._changed.notify_all()
        self._tell()

    def _ask(self, function: Callable[..., Any], *arguments: tuple[Any, ...]) -> list[Any] | Trouble:
        return self._answers(self._send(function, *arguments))

    def _send(self, function: Callable[..., Any], *arguments: tuple[Any, ...]) -> list[Any]:
        return [
            self._client[engine].apply_async(function, *own)
            for engine, own in zip(self._engines, arguments, strict=True)
        ]

    def _answers(self, tasks: list[Any], meanwhile: Callable[[], float] = lambda: LOOK) -> list[Any] | Trouble:
        """What each rank answers, or what the first answered that could not. meanwhile: called again and again, gives
        seconds until it wants to be called once more.
        """
        patience = GRACE
        while patience > 0 and (waiting := [task for task in tasks if not task.ready()]):
            if self._gone:
                return Trouble(self._what_was_lost())
            wait = meanwhile()
            waiting[0].wait(wait)
            if any(isinstance(_answer(task), Trouble) for task in tasks if task.ready()):
                patience -= wait
        answers = [_answer(task) for task in tasks if task.ready()]
        if self._gone:
            return Trouble(self._what_was_lost())
        failed = next((answer for answer in answers if isinstance(answer, Trouble)), None)
        if len(answers) < len(tasks):  # they wait for the one that failed, and would for ever
            self._cluster.reset()
        return answers if failed is None else failed

    @property
    def _gone(self) -> bool:
        """Whether a rank is not there any more, or another in its place."""
        return bool(self._cluster.lost) or self._cluster.generation != self._generation or not self._cluster.running

    def _what_was_lost(self) -> str:
        lost = self._cluster.lost
        if lost:
            who = ", ".join(f"rank {rank} was lost ({how})" for rank, how in sorted(lost.items()))
            return f"{who} in step {self._done} or soon after it"
        return "the ranks were forked anew, and what stood on them is gone"

    def _lost(self, what: str) -> str:
        """What happened, and how one goes on."""
        folder = self._config.checkpoints
        if not folder:
            return f"{what}. Nothing was saved: gpt.start(...) begins anew; checkpoints='folder' keeps what is learnt"
        newest = Checkpoints(Path(folder), self.history.about.model, "", "").newest()
        if newest is None:
            return f"{what}. There is no checkpoint in {folder} yet: gpt.start(...) begins anew"
        return f"{what}. The newest checkpoint is {newest}: gpt.start(replace(config, resume=True)) goes on from it"

    def _over(self, state: State, trouble: str = "") -> bool:
        """The ranks are free by the time that somebody hears of it."""
        try:
            self._free()
        finally:
            with self._changed:
                self.trouble = trouble
                self._set(state)
        return False

    def _set(self, state: State) -> None:
        self.state = state
        self._changed.notify_all()
        self._tell()

    def _tell(self) -> None:
        for listener in tuple(self._listeners):
            listener()

    def _free(self) -> None:
        """Where the ranks still stand, the model's memory is given back."""
        if not self._gone:
            self._ask(standing.leave, *(() for _ in self._engines))
        if self._cluster.generation == self._generation:
            self._cluster.scheduler.free()


class Joined:
    """A training that another process takes, as its file tells of it: `lockstep train --log FILE`."""

    def __init__(self, path: str | Path) -> None:
        self._reader = Reader(path)
        self._reader.history  # noqa: B018  # there is one
        self._listeners: list[Callable[[], object]] = []
        self._end = threading.Event()
        self.trouble = ""
        threading.Thread(target=self._follow, name="follow a training", daemon=True).start()

    @property
    def history(self) -> History:
        return self._reader.history

    @property
    def state(self) -> State:
        """Whether it still runs is not known from its file: 'running' as long as steps are left."""
        if self.trouble:
            return "failed"
        if self.history.done >= self.history.about.recipe.steps:
            return "finished"
        return "stopped" if self._end.is_set() else "running"

    def subscribe(self, callback: Callable[[], object]) -> Callable[[], None]:
        """As of a training on this kernel's ranks."""
        return _subscribed(self._listeners, callback)

    def leave(self) -> None:
        """Follows it no more; it goes on."""
        self._end.set()

    def _follow(self) -> None:
        while not self._end.wait(FOLLOW) and self.state == "running":
            try:
                news = self._reader.read()
            except ValueError as error:
                news, self.trouble = True, str(error)
            if news:
                for listener in tuple(self._listeners):
                    listener()

    def __repr__(self) -> str:
        return self.history.words(self.state, self.trouble)


def join(path: str | Path) -> Joined:
    """Follows a run of `lockstep train --log FILE`. Raises ValueError for a file that is no history."""
    return Joined(path)


def _answer(task: Any) -> Any:
    try:
        return task.get()
    except Exception as error:  # of ipyparallel, for what cannot be sent, or for an engine that is gone
        return Trouble(f"a rank could not be asked: {error}")


def _subscribed(listeners: list[Callable[[], object]], callback: Callable[[], object]) -> Callable[[], None]:
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        listener = callback
    else:

        def listener() -> object:
            return loop.call_soon_threadsafe(callback)

    listeners.append(listener)
    return lambda: listeners.remove(listener) if listener in listeners else None
