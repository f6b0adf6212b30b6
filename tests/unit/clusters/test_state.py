"""The kernel's bookkeeping, and the report made of it."""

from __future__ import annotations

import threading
import time

from kit.clusters.allocation import Allocation
from kit.clusters.links import Link
from kit.clusters.processes import how_it_ended, signal_name
from kit.clusters.progress import Progress
from kit.clusters.report import Host, RankFacts, Report
from kit.clusters.state import ClusterState
from kit.protocol.messages import AllReady, ControllerLost, Forked, Found, HostLost, HostUp, RankLost, Registered

FOUND = Found("gloo", ("cpu", "cpu"), (), (), "torch 2.13.0", 1.0)


def started() -> ClusterState:
    state = ClusterState()
    for message in (HostUp(10), FOUND, Forked(0, (11, 12)), AllReady(0), Registered(1, 0), Registered(0, 1)):
        state.hear(message)
    return state


def test_the_state_says_who_is_who() -> None:
    state = started()
    assert (state.agent, state.pids, state.engines) == (10, {0: 11, 1: 12}, {0: 1, 1: 0})
    assert state.generation == state.forked == 0
    assert state.found is not None and state.found.devices == ("cpu", "cpu")


def test_a_new_generation_forgets_the_old_ones_losses() -> None:
    state = started()
    state.hear(RankLost(0, 1, "killed by SIGKILL"))
    assert state.lost == {1: "killed by SIGKILL"}
    state.hear(Forked(1, (21, 22)))
    assert (state.lost, state.engines, state.pids) == ({}, {}, {0: 21, 1: 22})
    assert (state.generation, state.forked) == (0, 1), "forked is not ready"


def test_losses_of_host_and_controller_are_kept() -> None:
    state = started()
    state.hear(ControllerLost())
    state.hear(HostLost())
    assert state.controller_lost and state.agent_lost


def test_waiting_ends_with_the_message_and_not_before() -> None:
    state = started()
    assert not state.wait_for(lambda: state.generation == 1, 0.01)
    later = threading.Timer(0.02, state.hear, (AllReady(1),))
    later.start()
    assert state.wait_for(lambda: state.generation == 1, 60)
    later.join()


def report(**changes: object) -> Report:
    facts: dict[str, object] = {
        "hosts": (Host("here<there", 2, 25 * 10**9, 20 * 10**9, (("cuda:0", "H200", 141 * 10**9),)),),
        "ranks": (
            RankFacts(0, 11, "here", "cpu", 50_000_000),
            RankFacts(1, 12, "here", "cpu", None, "killed by SIGKILL"),
        ),
        "backend": "gloo",
        "interface": "lo",
        "links": (Link("ranks 0 and 1", "TCP over lo, within this host's memory"),),
        "memory": 300_000_000,
        "software": "torch 2.13.0, Python 3.11.7",
        "generation": 0,
        "started_in": 1.52,
        "notes": ("a note",),
    }
    return Report(**{**facts, **changes})  # type: ignore[arg-type]


def test_the_report_reads_well() -> None:
    assert str(report()).splitlines() == [
        "2 ranks on 1 host, gloo · up in 1.5 s",
        "  host      here<there: 2 cores, 25 GB of memory, 20 GB free",
        "  cuda:0    H200, 141 GB",
        "  rank 0    cpu · process 11 · 50 MB",
        "  rank 1    cpu · process 12 · killed by SIGKILL",
        "  backend   gloo over lo",
        "  link      ranks 0 and 1: TCP over lo, within this host's memory",
        "  memory    300 MB for all processes of the cluster",
        "  software  torch 2.13.0, Python 3.11.7",
        "  note      a note",
    ]


def test_the_card_says_the_same_and_is_escaped() -> None:
    card = report()._repr_html_()
    for part in ("2 ranks on 1 host", "rank 1", "killed by SIGKILL", "here&lt;there", "a note"):
        assert part in card
    assert "here<there" not in card


def test_several_links_have_a_line_each() -> None:
    text = str(report(links=(Link("ranks 0 and 1", "NVLink, 18 links"), Link("ranks 0 and 2", "PCIe through the CPU"))))
    assert "ranks 0 and 1  NVLink, 18 links" in text and "ranks 0 and 2  PCIe through the CPU" in text


def test_the_card_shows_the_time_left_of_a_job_and_warns_when_it_is_short() -> None:
    long = report(job=Allocation("PBS", "4711", ("n0",), 4, time.time() + 7290))
    assert "  job       PBS job 4711 on 1 host: 2 h 01 min left" in str(long).splitlines()
    assert "time is short" not in str(long)
    short = report(job=Allocation("PBS", "4711", ("n0",), 4, time.time() + 410))
    for shown in (str(short), short._repr_html_()):
        assert "6 min left" in shown and "time is short" in shown and "save what you need now" in shown


def test_endings_in_words() -> None:
    assert how_it_ended(9) == "killed by SIGKILL"
    assert how_it_ended(3 << 8) == "exited with code 3"
    assert signal_name(40) == "signal 40"


class Terminal:
    def __init__(self, is_terminal: bool) -> None:
        self.text, self._is_terminal = "", is_terminal

    def isatty(self) -> bool:
        return self._is_terminal

    def write(self, text: str) -> int:
        self.text += text
        return len(text)

    def flush(self) -> None:
        pass


def test_progress_is_one_line_on_a_terminal_and_silence_elsewhere() -> None:
    terminal, pipe = Terminal(True), Terminal(False)
    for stream in (terminal, pipe):
        progress = Progress(stream)  # type: ignore[arg-type]
        progress.say("starting 4 ranks: importing torch")
        progress.done("4 ranks on cpu")
    assert terminal.text.startswith("\rstarting 4 ranks: importing torch · 0.0 s\r4 ranks on cpu  ")
    assert terminal.text.endswith("\n") and terminal.text.count("\n") == 1
    assert pipe.text == ""
