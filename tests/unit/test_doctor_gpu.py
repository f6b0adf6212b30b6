"""`lockstep doctor --gpu` without ranks: which steps are taken, how long, what is told of them, what is sent home."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from kit import cli
from kit.cli.gpu import process, report, trial
from kit.cli.gpu.bench import Bench
from kit.cli.gpu.facts import Doing, Done, Fact, Failure, Outcome, Place, Said
from kit.cli.gpu.step import Step
from kit.cli.gpu.steps import LABS, STEPS, labs, machine
from kit.cli.gpu.steps.communication import judge_ends
from kit.cli.gpu.steps.machine import Forks, Machine
from kit.cli.gpu.steps.training import judge_bandwidth
from kit.cli.gpu.trial import Wishes
from kit.trace.facts import Operation

FOUR = {"kind": "cuda", "devices": 4}


class Heard(Bench):
    """Hears what a step says; has no ranks."""

    def __init__(self, device: str, folder: Path, ranks: int = 2) -> None:
        self.said: list[Said] = []
        super().__init__(Place(device, ranks), folder, self.said.append)

    @property
    def failures(self) -> list[str]:
        return [one.sentence for one in self.said if isinstance(one, Failure)]


def test_the_steps_are_thirteen_in_order_and_take_five_minutes_without_the_labs() -> None:
    assert [step.number for step in (*STEPS, LABS)] == list(range(1, 14))
    assert sum(step.limit for step in STEPS) == 60 * trial.MINUTES
    assert all(step.title and step.__doc__ for step in (*STEPS, LABS))


# ------------------------------------------------------------------------------------------------------- which, where


def passing(taken: list[tuple[int, Place, float]], **facts: Any) -> trial.CarryOut:
    def carry_out(step: Step, place: Place, limit: float, folder: Path) -> Outcome:
        taken.append((step.number, place, limit))
        return Outcome(step.number, step.title, "PASS", 1.0, "fine", facts=facts if step.number == 1 else {})

    return carry_out


def run(wishes: Wishes, **facts: Any) -> tuple[list[Outcome], list[tuple[int, Place, float]]]:
    taken: list[tuple[int, Place, float]] = []
    return list(trial.run(wishes, Path("/nowhere"), passing(taken, **facts))), taken


def test_steps_run_on_what_the_first_one_found() -> None:
    outcomes, taken = run(Wishes(), **FOUR)
    assert [one.status for one in outcomes] == ["PASS"] * 12
    assert taken[0][1] == Place("auto", 1) and {place for _, place, _ in taken[1:]} == {Place("cuda", 4)}
    assert {place for _, place, _ in run(Wishes(ranks=2), **FOUR)[1][1:]} == {Place("cuda", 2)}
    assert {place for _, place, _ in run(Wishes(ranks=8), **FOUR)[1][1:]} == {Place("cuda", 4)}
    assert run(Wishes(device="cpu"), kind="cpu", devices=1)[1][-1][1] == Place("cpu", 4)


def test_one_gpu_leaves_out_what_takes_two_and_says_so() -> None:
    outcomes, taken = run(Wishes(), kind="cuda", devices=1)
    assert [number for number, _, _ in taken] == [1, 2, 3, 4, 6, 9, 10, 11, 12]
    skipped = {one.number: one.sentence for one in outcomes if one.status == "SKIP"}
    assert list(skipped) == [5, 7, 8] and set(skipped.values()) == {
        "it takes 2 ranks with a device each, and there is 1 device"
    }


@pytest.mark.parametrize("facts", [{}, {"kind": "cuda", "devices": 0}])
def test_without_torch_or_devices_the_others_are_left_out(facts: dict[str, Any]) -> None:
    outcomes, taken = run(Wishes(labs=True), **facts)
    assert len(taken) == 1 and [one.status for one in outcomes] == ["PASS"] + ["SKIP"] * 12


def test_a_step_may_use_what_those_before_it_left_over_and_no_more() -> None:
    _, taken = run(Wishes(), **FOUR)
    limits = [limit for _, _, limit in taken]
    own = [step.limit for step in STEPS]
    assert limits == [sum(own[: at + 1]) - at for at in range(len(own))]  # each took one second
    _, slowly = run(Wishes(minutes=10.0), **FOUR)
    assert slowly[0][2] == 2 * own[0]


def test_some_steps_alone_begin_with_the_first() -> None:
    assert [number for number, _, _ in run(Wishes(numbers=frozenset({5, 13})), **FOUR)[1]] == [1, 5, 13]
    assert [step.number for step in Wishes(labs=True).steps()][-1] == 13
    with pytest.raises(ValueError, match="there is no step 14: they are 1 to 13"):
        Wishes(numbers=frozenset({14})).steps()


@pytest.mark.parametrize(
    ("files", "build", "sees"),
    [
        ((), "2.13.0", False),
        (("nvidiactl",), "2.13.0", False),  # the driver is there, no GPU is
        (("nvidia0",), "2.13.0", True),
        (("kfd",), "2.9.0+rocm6.4", True),
        (("dri/renderD128",), "2.13.0+cu130", False),
        (("dri/renderD128",), "2.10.0+xpu", True),
    ],
)
def test_a_gpu_is_seen_without_torch(files: tuple[str, ...], build: str, sees: bool, tmp_path: Path) -> None:
    for name in files:
        path = tmp_path / "dev" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()

    assert trial.sees_a_gpu(tmp_path, lambda name: build) is sees

    def not_there(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    assert trial.sees_a_gpu(tmp_path, not_there) is (sees and "xpu" not in build)


def test_without_a_gpu_one_sentence_says_so_and_nothing_is_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(trial, "sees_a_gpu", lambda: False)
    monkeypatch.setattr(trial, "run", lambda *anything: pytest.fail("something was tried"))
    assert cli.main(["doctor", "--gpu"]) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err == f"lockstep doctor: {trial.NO_GPU}\n"
    assert not list(tmp_path.iterdir())


# --------------------------------------------------------------------------------------------------- what came of one


def came(said: list[Said], code: int | None, **more: Any) -> Outcome:
    return process.outcome(Forks(), said, code, 3.0, 15.0, **more)


def test_what_a_process_said_becomes_an_outcome() -> None:
    told: list[Said] = [Doing("one"), Fact("pid", 7), Done("all is well")]
    assert came(told, 0) == Outcome(2, Forks.title, "PASS", 3.0, "all is well", facts={"pid": 7})
    wrong: list[Said] = [Failure("a is wrong", "Traceback"), Fact("pid", 7), Failure("b is wrong"), Done("all")]
    failed = came(wrong, 0, printed=["last", "words"])
    assert (failed.status, failed.sentence) == ("FAIL", "a is wrong (and 1 more)")
    assert failed.facts == {"pid": 7} and failed.last_words == ("last", "words")


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (None, "it was ended after 15 s in the second reset"),
        (-11, "its process was ended by SIGSEGV in the second reset"),
        (1, "its process ended with exit code 1 in the second reset, and without a word"),
    ],
)
def test_a_process_that_hangs_or_dies_says_where_it_stood(code: int | None, words: str) -> None:
    assert came([Doing("the start"), Doing("the second reset")], code).sentence == words


def test_processes_that_outlive_a_step_are_a_failure_unless_it_was_ended_itself() -> None:
    assert came([Done("fine")], 0, stayed=(11, 12)).sentence == "processes 11, 12 outlived it and were ended"
    assert len(came([], None, stayed=(11, 12)).failures) == 1


def test_what_is_said_is_read_again_and_a_line_cut_short_is_not(tmp_path: Path) -> None:
    file = tmp_path / "said"
    told: list[Said] = [Doing("a"), Fact("path", Path("/x")), Failure("b", "c"), Done("d")]
    for message in told:
        process.say(message, file)
    whole = file.read_text()
    assert process.heard(whole) == [Doing("a"), Fact("path", "/x"), Failure("b", "c"), Done("d")]
    assert len(process.heard(whole[:-3])) == 3


# ------------------------------------------------------------------------------------------------- what is sent home


def page(*steps: Outcome, **change: Any) -> report.Page:
    facts = {
        "lockstep": "0.1.0",
        "started": "2026-11-22T10:00:00+00:00",
        "host": "x3005c0s7b0n0",
        "device": "cuda",
        "ranks": 4,
        "seconds": 94.2,
        "finished": True,
        "environment": {},
        "steps": steps,
    }
    return report.Page(**{**facts, **change})  # type: ignore[arg-type]


PASSED = Outcome(6, "collectives wait for the device", "PASS", 2.34, "right behind 100 ms of products")
FAILED = Outcome(
    *(5, "every collective", "FAIL", 12.3, "all_reduce, blocking: rank 0 recorded no end (and 1 more)"),
    failures=(Failure("all_reduce, blocking: rank 0 recorded no end"), Failure("barrier: " + "very " * 30 + "late")),
)
SKIPPED = Outcome(7, "messages, subgroups, barriers", "SKIP", 0.0, "it takes 2 ranks with a device each")


def test_the_terminal_shows_a_step_in_two_lines_and_every_failure() -> None:
    told = "\n".join(
        [report.head(12, 5.0), *(report.lines(one, 80) for one in (FAILED, PASSED, SKIPPED))]
        + ["", report.summary([FAILED, PASSED, SKIPPED], 94.2), report.send_home(Path("/x/lockstep-gpu.json"))]
    )
    assert (
        told
        == """\
12 steps, each in a process of its own; 5 minutes at most.
 5  FAIL   12.3 s  every collective
        - all_reduce, blocking: rank 0 recorded no end
        - barrier: very very very very very very very very very very very very
          very very very very very very very very very very very very very very
          very very very very late
 6  PASS    2.3 s  collectives wait for the device
        right behind 100 ms of products
 7  SKIP        -  messages, subgroups, barriers
        it takes 2 ranks with a device each

1 passed, 1 failed (step 5), 1 skipped (step 7). (94 s)
All of it, with what was measured, is in /x/lockstep-gpu.json: send that file home. It names the host, and nobody."""
    )


def test_of_many_failures_the_first_are_shown() -> None:
    many = Outcome(5, "every collective", "FAIL", 1.0, "0", tuple(Failure(str(number)) for number in range(40)))
    told = report.lines(many).splitlines()
    assert (
        len(told) == 7
        and told[1:3] == ["        - 0", "        - 1"]
        and told[-1].endswith("and 35 more, which are in the file")
    )


def test_the_file_has_a_schema_and_all_that_was_found(tmp_path: Path) -> None:
    target = report.written(page(FAILED, PASSED), tmp_path / "home.json")
    told = json.loads(target.read_text())
    assert (told["schema"], told["version"], told["ok"], told["ranks"]) == ("lockstep-gpu", 1, False, 4)
    assert [one["status"] for one in told["steps"]] == ["FAIL", "PASS"]
    assert told["steps"][0]["failures"][0]["sentence"] == "all_reduce, blocking: rank 0 recorded no end"
    assert page(PASSED, SKIPPED).ok
    with pytest.raises(ValueError, match="name another file with --to"):
        report.written(page(), tmp_path / "gone" / "home.json")


def test_neither_secrets_nor_names_are_sent_home() -> None:
    kept = report.kept(
        {
            "NCCL_NET": "AWS Libfabric",
            "CUDA_VISIBLE_DEVICES": "0,1",
            "TORCH_NCCL_TRACE": "1",
            "OMP_NUM_THREADS": "8",
            "HOME": "/home/alice",
            "WANDB_API_KEY": "1",
            "TORCH_HUB_TOKEN": "2",
            "SSH_AUTH_SOCK": "/x",
            "PATH": "/bin",
        }
    )
    assert set(kept) == {"NCCL_NET", "CUDA_VISIBLE_DEVICES", "TORCH_NCCL_TRACE", "OMP_NUM_THREADS"}
    facts = {"/home/alice/x": ["/home/alice/lib", "/lus/eagle/alice/venv", "malice", ("/scratch/alice",)]}
    assert report.without_names(facts, home="/home/alice", user="alice") == {
        "~/x": ["~/lib", "/lus/eagle/USER/venv", "malice", ["/scratch/USER"]]
    }
    assert report.without_names("/x/alice", home="/", user="") == "/x/alice"


def test_the_command_writes_the_file_after_every_step_and_its_exit_code_says_whether_all_is_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    target, seen, first = tmp_path / "home.json", [], Outcome(1, "the machine", "PASS", 1.0, "4 x A100", facts=FOUR)

    def outcomes(wishes: Wishes, folder: Path) -> Any:
        for outcome in (first, PASSED, FAILED):
            yield outcome
            seen.append(json.loads(target.read_text()))

    monkeypatch.setattr(trial, "run", outcomes)
    command = ["doctor", "--gpu", "--device", "cpu", "--to", str(target)]
    assert cli.main(command) == 1
    assert [len(one["steps"]) for one in seen] == [1, 2, 3] and not any(one["finished"] for one in seen)
    told = json.loads(target.read_text())
    assert told["finished"] and (told["device"], told["ranks"]) == ("cuda", 4)
    out = capsys.readouterr().out
    assert "1 failed (step 5)" in out and str(target) in out
    assert cli.main([*command, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["steps"][0]["sentence"] == "4 x A100"
    monkeypatch.setattr(trial, "run", lambda wishes, folder: iter([first, SKIPPED]))
    assert cli.main(command) == 0


@pytest.mark.parametrize("arguments", [["--steps", "two"], ["--steps", "14"], ["--minutes", "0"], ["--device", "tpu"]])
def test_nonsense_is_exit_code_two(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code = cli.main(["doctor", "--gpu", "--device", "cpu", *arguments])
    except SystemExit as ended:
        code = int(ended.code or 0)
    assert code == 2 and capsys.readouterr().err


# ----------------------------------------------------------------------------------- steps that need no ranks to fail


def test_a_gpu_that_torch_does_not_see_and_one_that_may_not_compute_are_failures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = "0, GPU-1, NVIDIA A100, 570.1, Prohibited, Disabled, Enabled, 40960, 3\n"
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(machine.nvidia_cards, "__defaults__", (lambda command: row,))
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    bench = Heard("cuda", tmp_path)
    Machine().run(bench)
    assert bench.failures[0] == "GPU 0 may not compute: its compute mode is Prohibited"
    assert "sees no cuda device" in bench.failures[1]
    assert bench.failures[2] == "nvidia-smi lists 1 GPU and torch sees 0"


def test_nvidia_smi_is_read() -> None:
    cards = (
        "0, GPU-1, NVIDIA A100, 570.1, Default, Disabled, Enabled, 40960, 312",
        "1, GPU-2, x, y, z, a, b, 9, [N/A]",
    )
    told: dict[str, str] = {
        "--query-gpu": "\n".join(cards),
        "--query-compute-apps": "77, GPU-1\n78, GPU-2\n78, GPU-1\n",
    }

    def answer(command: tuple[str, ...], seconds: float = 4.0) -> str | None:
        return told[command[1].partition("=")[0]]

    assert [card["name"] for card in machine.nvidia_cards(answer)] == ["NVIDIA A100", "x"]
    assert machine.used_memory(answer) == {"0": 312}
    assert machine.contexts(answer) == {77: {"GPU-1"}, 78: {"GPU-1", "GPU-2"}}
    assert machine.nvidia_cards(lambda command, seconds=4.0: None) == []


def operation(issued: int, ended: int | None) -> Operation:
    return Operation(0, 0, "all_reduce", "0", (0, 1), "0/c/0", None, (), 4, issued=issued, ended=ended)


@pytest.mark.parametrize(
    ("device", "ended", "words"),
    [
        ("cuda", 1_950, None),  # called at 1000 by the last rank, returned at 2000: 5 % early
        ("cuda", 1_700, "x: its recorded end is off by 30% of its duration, not 20%"),
        ("cpu", 1_700, None),  # on the CPU's own clock any end before the return will do
        ("cpu", 2_100, "x: rank 0 recorded an end 0.00 ms after it had returned"),
        ("cuda", 2_100, None),  # a device's clock is another one
        ("cuda", 2_300, "x: its recorded end is off by 30% of its duration, not 20%"),
        ("cuda", 400, "x: rank 0 recorded an end before its beginning"),
    ],
)
def test_ends_are_judged_by_each_ranks_own_clock(device: str, ended: int, words: str | None, tmp_path: Path) -> None:
    bench = Heard(device, tmp_path)
    known = [[operation(500, ended)], [operation(1_000, ended)]]
    judge_ends(bench, "x", known, [[(500, 2_000)], [(1_000, 2_000)]])
    assert bench.failures == ([words] if words else [])


@pytest.mark.parametrize(
    ("best", "beside", "sheet", "words"),
    [
        (230e9, 235e9, 300e9, ""),
        (230e9, None, None, ""),
        (100e9, 235e9, None, "nccl-tests measure 235 GB/s here"),
        (320e9, None, 300e9, "more than the 300 GB/s of the data sheet"),
        (120e9, None, 300e9, "less than half of the data sheet's 300 GB/s"),
    ],
)
def test_bandwidth_is_judged_by_nccl_tests_and_the_data_sheet(
    best: float, beside: float | None, sheet: float | None, words: str, tmp_path: Path
) -> None:
    bench = Heard("cuda", tmp_path)
    judge_bandwidth(bench, best, beside, sheet)
    assert [words in said for said in bench.failures] == ([True] if words else [])


def checked_labs(as_expected: bool) -> Callable[..., subprocess.CompletedProcess[str]]:
    lab = {
        "lab": "00_ranks",
        "as_expected": as_expected,
        "passed": 3,
        "failed": 0,
        "no_check_ran": 0,
        "seconds": 9.0,
        "trouble": None if as_expected else "a cell ran longer than 120 s",
        "exercises": [],
    }

    def run(command: list[str], **more: Any) -> subprocess.CompletedProcess[str]:
        told = {"as_expected": as_expected, "notebooks": 1, "labs": [lab]}
        Path(command[command.index("--json") + 1]).write_text(json.dumps(told))
        return subprocess.CompletedProcess(command, 0 if as_expected else 1, "", "")

    return run


def test_labs_that_are_not_as_expected_are_failures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(labs.subprocess, "run", checked_labs(True))
    bench = Heard("cuda", tmp_path)
    assert LABS.run(bench) == "1 notebook, every check passed" and not bench.failures
    monkeypatch.setattr(labs.subprocess, "run", checked_labs(False))
    LABS.run(bench)
    assert bench.failures[0] == "00_ranks: a cell ran longer than 120 s"
    (tmp_path / "labs.json").unlink()
    monkeypatch.setattr(
        labs.subprocess, "run", lambda command, **more: subprocess.CompletedProcess(command, 2, "", "no papermill")
    )
    with pytest.raises(RuntimeError, match="wrote no report: no papermill"):
        LABS.run(bench)
