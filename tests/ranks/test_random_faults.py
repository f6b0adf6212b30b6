"""Random kills, stops and delays at random moments: no hang, no orphan, no wrong result, and the right rank is named.

A dozen sessions with a fresh seed in every run; `--sessions 200 --seed S` takes more, or the same again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from kit.clusters.request import checked
from kit.run.live import LiveRunner
from kit.run.session import Session
from tests.ranks.living import until
from tests.ranks.random_programs import PROGRAMS, plain, serial
from tests.ranks.random_sessions import MARK, Fault, Plan, draw, marked

SENTENCES = (RuntimeError, ConnectionError)  # what a call may raise when it says what happened


class Clusters:
    """One for each size of the world, kept until a session has shown a fault in it."""

    def __init__(self) -> None:
        self.made: dict[int, LiveRunner] = {}
        self.folders: set[Path] = set()

    def of(self, world: int) -> LiveRunner:
        if world not in self.made:
            self.made[world] = LiveRunner(checked(world, "cpu"))
        return self.made[world]

    def orphans(self) -> set[int]:
        """Processes that no cluster knows."""
        known = {pid for cluster in self.made.values() for pid in cluster.processes}
        return marked(os.environ[MARK]) - known

    def stop(self, world: int) -> None:
        if world in self.made:
            self.made.pop(world).stop()


@pytest.fixture(scope="module")
def clusters() -> Iterator[Clusters]:
    os.environ[MARK] = f"{os.getpid()}-{time.monotonic_ns()}"
    made = Clusters()
    try:
        yield made
        for world in list(made.made):
            made.stop(world)
        assert until(lambda: not made.orphans()), f"still there: {made.orphans()}"
        assert until(lambda: not [folder for folder in made.folders if folder.exists()]), made.folders
    finally:
        del os.environ[MARK]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    options = metafunc.config.option
    number = options.sessions or (200 if options.full_matrix else 12)
    seed = options.seed or os.urandom(4).hex()
    metafunc.parametrize(("number", "seed"), [(n, seed) for n in range(number)], ids=map(str, range(number)))


def test_a_session(clusters: Clusters, number: int, seed: str) -> None:
    plan = draw(f"{seed} {number}")
    cluster = clusters.of(plan.world)
    conduct = Conduct(cluster, plan)
    try:
        conduct.play()
        print(f"{plan.mode}, {plan.fault}, {plan.moment}: the run {conduct.outcome}")  # -rP shows it
        clusters.folders.add(cluster.folder)
        assert until(lambda: not clusters.orphans()), f"nobody's: {clusters.orphans()}"
    except BaseException as failure:
        again = f"python3 tests '{__file__}::test_a_session[{number}]' --seed {seed} --sessions {number + 1}"
        failure.add_note(f"{plan}\nThe same session again: {again}")
        clusters.stop(plan.world)
        raise


class Conduct:
    """How one session goes, and what is demanded of it."""

    def __init__(self, cluster: LiveRunner, plan: Plan) -> None:
        self.cluster = cluster
        self.plan = plan
        self.fault = Fault(cluster, plan)
        self.session: Session | None = None
        self.said: list[str] = []  # by exceptions
        self.results: list[torch.Tensor] | None = None
        self.outcome = ""

    def play(self) -> None:
        run = self.step if self.plan.mode == "step" else self.record
        run()
        self.fault.over()
        self.judge()
        self.outcome = "told what befell it" if self.results is None else "came to its end"
        self.recover()
        assert self.cluster.record(plain).results == [float(self.plan.world)] * self.plan.world

    def attempt(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """What the call returns; None when it says instead what has happened."""
        try:
            return call(*args, **kwargs)
        except SENTENCES as sentence:
            self.said.append(str(sentence))
            return None

    # stepped and recorded

    def step(self) -> None:
        plan = self.plan
        self.befalls("start")
        self.session = self.attempt(self.cluster.step, PROGRAMS[plan.program], *plan.arguments)
        for number, (how, ranks, timeout) in enumerate(plan.motions):
            if self.session is None or not self.session.live:
                break
            if number == plan.at:
                self.befalls("during")
                if plan.moment == "between":
                    self.befalls("between")
                    self.fault.over()
                if plan.moment == "waiting":
                    self.wait_and_strike()
            self.attempt(getattr(self.session, how), ranks=ranks, timeout=timeout)
        if plan.moment != "reset":
            self.fault.soon()  # after a run that was quicker
            self.fault.over()
        self.finish()

    def wait_and_strike(self) -> None:
        """Some ranks go ahead until they wait; one of those is hit, or whoever was drawn."""
        assert self.session is not None
        some = [r for r in range(self.plan.world) if r != self.plan.victim]
        self.attempt(self.session.finish, ranks=some, timeout=1.0)
        waiting = [s.rank for s in self.session.state if s.phase == "waiting"]
        if waiting and self.plan.at % 2:
            self.fault.victim = waiting[0]
        self.befalls("waiting")
        self.fault.over()

    def befalls(self, moment: str) -> None:
        if self.plan.moment == moment:
            self.fault.soon()

    def finish(self) -> None:
        """To the end, or until it is said why there is none."""
        session = self.session
        for _ in range(20):
            if session is None or session.ended is not None or self.finished():
                break
            if self.fault.kind != "pause" and self.fault.words in str(session.state):
                break
            self.attempt(session.finish, timeout=3.0)
        if session is not None and self.finished():
            self.results = session.results

    def finished(self) -> bool:
        return self.session is not None and all(s.phase == "finished" for s in self.session.state)

    def record(self) -> None:
        plan = self.plan
        if plan.moment == "between":
            self.befalls("between")
            self.fault.over()
        self.befalls("during")
        self.befalls("waiting")
        recording = self.attempt(self.cluster.record, PROGRAMS[plan.program], *plan.arguments)
        if recording is not None:
            self.results = recording.results

    # demands

    def judge(self) -> None:
        plan = self.plan
        if self.results is not None:
            wanted = serial(plan.program, plan.world, plan.arguments[0])
            assert all(map(torch.equal, self.results, wanted)), "a wrong result"
            return
        told = "\n".join([*self.said, *self.position()])
        assert self.fault.kind not in ("none", "delay"), f"nothing has happened, and it does not end:\n{told}"
        assert plan.moment != "reset", f"nothing had happened yet, and it does not end:\n{told}"
        assert plan.fault != "pause" or plan.mode == "record", f"it has gone on, the run has not:\n{told}"
        assert self.fault.words in told, f"nobody says '{self.fault.words}':\n{told}"

    def position(self) -> list[str]:
        return [str(self.session.state), str(self.session.ended)] if self.session is not None else []

    def recover(self) -> None:
        """Resets, hit by the fault where that was drawn, and then whole."""
        plan, session = self.plan, self.session
        whole = session.reset if plan.recovery == "session" and session is not None else self.cluster.reset
        if plan.moment == "reset":
            self.said.clear()
            self.fault.soon()
            self.attempt(whole)
            self.fault.over()
            assert all(self.fault.words in sentence for sentence in self.said), self.said
        elif plan.recovery == "none":
            self.said.clear()
            self.attempt(self.cluster.record, plain)
            assert all(self.fault.words in sentence for sentence in self.said), self.said
            return
        whole()
        if session is not None and whole == session.reset:
            self.fault.kind, self.results = "none", None
            self.finish()
            self.judge()
