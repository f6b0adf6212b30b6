"""Recordings in the place of a cluster: they answer what a lab asks, in its order, and say what they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kit.clusters.errors import ClusterError, Unavailable
from kit.clusters.links import Link
from kit.run.errors import NoRanks, NotFinished, RankError
from kit.run.recordings import index, replay_runner, values
from kit.run.recordings.cell import digest
from kit.run.recordings.replay_runner import ReplayRunner, reason
from kit.run.runner import SweepPlan

WHY = "ports are denied: ask for one."
MEET = index.load("00_ranks").calls("step", "meet", "", "")[0].source


def of_lab(name: str, text: str) -> Callable[..., Any]:
    """A function with a text of its own, as a cell of a notebook has."""
    import linecache

    file = f"<{name}-{digest(text)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    names: dict[str, Any] = {"__name__": "__main__"}
    exec("import torch\nimport torch.distributed as dist", names)
    exec(compile(text, file, "exec"), names)
    return names[name]


@pytest.fixture
def ranks() -> ReplayRunner:
    return ReplayRunner(index.load("00_ranks"), WHY)


@pytest.fixture
def collectives() -> ReplayRunner:
    return ReplayRunner(index.load("01a_collectives"), WHY)


def in_cell(monkeypatch: pytest.MonkeyPatch, found: ReplayRunner, cell: str, execution: str = "1") -> None:
    monkeypatch.setattr(replay_runner, "running", lambda: (found.recordings.cells[cell], execution))


# what it says


def test_every_answer_says_what_it_is_when_it_was_made_why_and_what_to_do(ranks: ReplayRunner) -> None:
    session = ranks.step(of_lab("meet", MEET))
    meta = session.trace.meta
    assert session.about.startswith(f"A recording, made on {meta.started[:10]} with 4 ranks (gloo, cpu; ")
    assert f"torch {dict(meta.versions)['torch']}" in session.about
    assert f"because there is no cluster here: {WHY} 'lockstep doctor'" in session.about
    assert "of yours" not in session.about


def test_a_function_that_was_changed_is_told_apart(ranks: ReplayRunner) -> None:
    mine = of_lab("meet", MEET.replace("10.0**rank", "2.0**rank"))
    assert ranks.step(mine).about.endswith("It shows the lab's version of meet, not yours.")


def test_other_arguments_are_told_apart(ranks: ReplayRunner) -> None:
    deal = of_lab("deal", ranks.recordings.calls("record", "deal", "", "")[0].source)
    assert "arguments" not in ranks.record(deal, list(range(12))).about
    assert ranks.record(deal, list(range(9))).about.endswith(
        "It shows the call with the lab's arguments: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]."
    )


def test_panels_and_words_say_it_too(ranks: ReplayRunner, capsys: pytest.CaptureFixture[str]) -> None:
    session = ranks.step(of_lab("meet", MEET))
    assert session.about in session.panel().text()
    recording = ranks.record(of_lab("who", "def who(): pass"))
    assert recording.about in recording.panel().text()
    assert recording.about in capsys.readouterr().out


def test_what_was_printed_and_returned_is_shown_as_by_ranks(
    ranks: ReplayRunner, capsys: pytest.CaptureFixture[str]
) -> None:
    recording = ranks.record(of_lab("hello", "def hello(): pass"))
    assert capsys.readouterr().out.count("] I am process ") == 4
    assert recording.results == [None] * 4
    assert "rank 3: I am 3 of 4" in repr(ranks.record(of_lab("who", "def who(): pass")))


def test_a_recorded_failure_is_raised_with_its_trace(ranks: ReplayRunner) -> None:
    with pytest.raises(RankError, match="rank 1 finished without it") as failed:
        ranks.record(of_lab("leaves_early", "def leaves_early(x): pass"), 1)
    assert failed.value.trace.meta.function == "leaves_early"
    assert "A recording" in failed.value.panel().text()


def test_the_report_holds_what_labs_read(ranks: ReplayRunner) -> None:
    report = ranks.report()
    assert report.links[0].kind.startswith("TCP") and len(report.devices) == ranks.size == 4
    assert ranks.sentence in str(report) and "Recordings, made on" in report._repr_html_()


def test_a_sweep_is_answered_and_its_panel_says_so() -> None:
    sweep = ReplayRunner(index.load("01b_collectives"), WHY).sweep(SweepPlan())
    assert sweep.of("all_reduce") and sweep.fit("send").latency > 0
    assert WHY in sweep.plot().text()


# what it cannot answer


def test_what_the_lab_does_not_do_needs_ranks(ranks: ReplayRunner) -> None:
    with pytest.raises(NoRanks, match=r"mine needs ranks: lab 00_ranks has no recording of it, .* ports are denied"):
        ranks.step(of_lab("mine", "def mine(): pass"))
    with pytest.raises(
        AttributeError, match="cluster.view needs ranks, and there is no cluster here: ports are denied"
    ):
        _ = ranks.view


# which recording


def test_a_cell_finds_its_own(collectives: ReplayRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    from kit.topics.collectives.reference import ring_all_reduce

    for cell, motions in (("step-half-run", "to_line"), ("step-hold-run", "finish")):
        in_cell(monkeypatch, collectives, cell)
        assert collectives.step(ring_all_reduce).trace.positions[1].motion.startswith(motions)


def test_calls_of_one_cell_come_in_order_and_again_when_it_runs_again(
    ranks: ReplayRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    throw = of_lab("throw", ranks.recordings.calls("record", "throw", "", "")[0].source)
    short = ranks.recordings.calls("record", "throw", "1, 100", ranks.recordings.cells["measure-message-run"])
    assert len(short) == 5
    for execution in ("1", "2"):
        in_cell(monkeypatch, ranks, "measure-message-run", execution)
        taken = [ranks.record(throw, 1, 100).results for _ in range(6)]
        assert taken == [list(entry.results or ()) for entry in (*short, short[-1])]
        assert ranks.record(throw, 1_000_000, 10).trace.meta.started != ""


def test_an_edited_cell_still_finds_the_function(ranks: ReplayRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_runner, "running", lambda: (digest("edited"), "1"))
    sessions = [ranks.step(of_lab("meet", MEET)) for _ in range(3)]
    walks = [[position.motion for position in session.trace.positions][:2] for session in sessions]
    assert walks == [["start", "step"], ["start", "to_collective"], ["start", "to_collective"]]


# going through it


def test_motions_go_where_they_led(ranks: ReplayRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    in_cell(monkeypatch, ranks, "step-alone-run")
    pair = ranks.step(of_lab("meet", MEET))
    assert pair.position == 0 and not pair.live
    assert all(state.operation == "all_reduce" for state in pair.to_collective())
    assert pair.step(ranks=[0])[0].phase == "waiting"
    for rank in (1, 2, 3):
        pair.step(ranks=[rank])
    assert pair.state[0].phase == "paused"
    assert all(state.phase == "finished" for state in pair.finish())
    assert pair.finish() is pair.state and pair.results == [1111.0] * 4


def test_a_motion_that_was_not_made_goes_one_position_on(ranks: ReplayRunner) -> None:
    walk = ranks.step(of_lab("meet", MEET))
    walk.into()
    assert walk.position == 1
    walk.finish()
    assert walk.position == len(walk.trace.positions) - 1


def test_reset_goes_to_what_the_lab_did_after_it(collectives: ReplayRunner) -> None:
    stuck = collectives.step(of_lab("all_send_first", "def all_send_first(x): pass"))
    assert "Deadlock" in str(stuck.finish())
    with pytest.raises(NotFinished):
        _ = stuck.results
    assert all(state.phase == "paused" for state in stuck.reset())
    assert stuck.reset() is stuck.state and stuck.position == 0


def test_a_panel_steps_through_it_and_says_that_nobody_is_held(ranks: ReplayRunner) -> None:
    panel = ranks.step(of_lab("meet", MEET)).panel()
    assert panel.status == "replay" and "finished" in str(panel.finish())
    panel.reset()
    panel.hold(2)
    assert panel.step() is panel.session.trace.positions[1]
    assert "nobody is held back" in panel._transport.notice.value


def test_export_writes_the_learner_s_function(ranks: ReplayRunner, tmp_path: Any) -> None:
    text = ranks.step(of_lab("meet", MEET.replace("10.0**rank", "2.0**rank"))).export(tmp_path / "meet.py").read_text()
    assert "2.0**rank" in text and "kit" not in text.split("def meet")[1]


# reasons


@pytest.mark.parametrize(
    ("problem", "words"),
    [
        (Unavailable("a cluster needs Linux"), "a cluster needs Linux"),
        (ClusterError("the agent ended:\nlong\nOSError: no room"), "the agent ended (OSError: no room)"),
        (ClusterError("Traceback (most recent call last):\n  File\nImportError: libx.so"), "ImportError: libx.so"),
        (OSError(), "OSError"),
    ],
)
def test_a_long_account_becomes_a_sentence(problem: Exception, words: str) -> None:
    assert reason(problem) == words
    assert ReplayRunner.in_place_of_ranks("00_ranks", problem).no_ranks_because == f"{words}."


def test_a_lab_that_has_none_says_both() -> None:
    with pytest.raises(
        ValueError, match="ports are denied; nor can recordings stand in: there are no recordings of lab"
    ):
        ReplayRunner.in_place_of_ranks("77_nothing", Unavailable("ports are denied"))


# results as JSON


def test_results_come_back_as_they_were() -> None:
    import json

    import torch

    kept = [None, True, 3, 2.5, "a", [1, (2, "b")], {"x": (1,), 2: None}, float("inf")]
    assert values.decode(json.loads(json.dumps(values.encode(kept)))) == kept
    tensor = torch.tensor([[1.5, 2.0], [float("nan"), -0.0]], dtype=torch.bfloat16)
    again = values.decode(json.loads(json.dumps(values.encode(tensor))))
    assert again.dtype == tensor.dtype and torch.equal(again.nan_to_num(), tensor.nan_to_num())
    assert repr(values.decode(values.encode(torch.zeros(1000)))) == "1000 of float32 (not kept in the recording)"
    link = Link("0, 1", "NVLink")
    assert values.decode(json.loads(json.dumps(values.encode([link])))) == [link]


def test_a_result_that_nobody_wrote_is_refused() -> None:
    with pytest.raises(ValueError, match="a result is written as"):
        values.decode({"pickle": "gASV"})
    with pytest.raises(ValueError, match="do not fill"):
        values.decode({"tensor": [1.0], "shape": [2], "dtype": "float32"})
    for name, why in (
        ("subprocess:Popen", "none of Lockstep's modules"),
        ("kit.clusters.links:sys", "no dataclass"),
        ("kit.clusters.links:Link", "cannot be made here"),
        ("kit.nothing:Link", "cannot be made here"),
    ):
        with pytest.raises(ValueError, match=why):
            values.decode({"of": name, "fields": {"args": ["true"]}})
