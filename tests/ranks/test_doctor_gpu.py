"""The steps of `lockstep doctor --gpu` on CPU ranks: each passes, and each is made to fail once and says so; and the
command, where nothing can be had.
"""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kit.cli.gpu import process
from kit.cli.gpu.bench import ON_CPU, Bench, Scale, learners_copy
from kit.cli.gpu.facts import Fact, Failure, Place, Said
from kit.cli.gpu.step import Step
from kit.cli.gpu.steps import STEPS, communication, machine
from kit.cli.gpu.steps.communication import Collectives, Faults, Messages, Race
from kit.cli.gpu.steps.machine import Devices, Forks, Starts
from kit.cli.gpu.steps.sharing import Sharing
from kit.cli.gpu.steps.training import Scripts, Size, Training
from kit.run.live import LiveRunner
from tests.clusters import NEVER
from tests.ranks.living import alive, until

DOCTOR = [sys.executable, "-m", "kit.cli", "doctor", "--gpu"]


class Tried(Bench):
    """On the ranks that other tests have, too; hears what a step says."""

    verdict_within = NEVER

    def __init__(self, cluster: LiveRunner, folder: Path, scale: Scale | None = None) -> None:
        self.said: list[Said] = []
        super().__init__(Place("cpu", cluster.size), folder, self.said.append, NEVER, scale)
        self._cluster = cluster

    @contextmanager
    def cluster(self, ranks: int | None = None) -> Iterator[LiveRunner]:
        yield self._cluster

    @property
    def failures(self) -> list[str]:
        return [one.sentence for one in self.said if isinstance(one, Failure)]

    @property
    def facts(self) -> dict[str, Any]:
        return {one.name: one.value for one in self.said if isinstance(one, Fact)}


@pytest.fixture
def bench(cluster_of: Callable[[int], LiveRunner], tmp_path: Path) -> Tried:
    return Tried(cluster_of(2), tmp_path)


@pytest.mark.parametrize("step", [Collectives(), Race(), Messages(), Faults()], ids=lambda step: str(step.number))
def test_steps_pass_on_ranks_whose_groups_have_the_manners_of_nccl(
    step: Step, three_on_nccl: LiveRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their device's clock is not the host's; how far off it is, a busy machine cannot say."""
    monkeypatch.setattr(communication, "COLLECTIVES", ("all_reduce",))
    bench = Tried(three_on_nccl, tmp_path, replace(ON_CPU, end_within=math.inf))
    assert step.run(bench) and not bench.failures


@pytest.mark.parametrize("step", STEPS[1:], ids=lambda step: str(step.number))
def test_each_step_passes_on_cpu_ranks(step: Step, bench: Tried, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(communication, "COLLECTIVES", ("all_reduce", "gather"))
    monkeypatch.setattr("kit.cli.gpu.steps.sharing.COLLECTIVES", ("all_reduce", "scatter"))
    if step.number == Training.number:
        ways = ("DistributedDataParallel", "ZeroStage3", "fully_shard")
        bench.programs.WAYS = {way: bench.programs.WAYS[way] for way in ways}
    assert step.run(bench) and not bench.failures
    assert bench.facts


# what is wrong, as a learner would have written it: it runs on the ranks


def on_another_device(kind: str) -> dict[str, str]:
    return {"in the function": "cuda:0"}


def forked_too_late(kind: str) -> dict[str, Any]:
    import os

    return {"pid": os.getpid(), "parent": os.getppid(), "in a bad fork": True}


def never_summed(kind: str, *anything: Any) -> dict[str, Any]:
    return {"right": False, "got": [1.0], "expected": [3.0], "seconds": [0.0], "launched": 0.0, "done": 0.0}


def all_come(kind: str) -> None:
    import torch
    import torch.distributed as dist

    dist.all_reduce(torch.ones(1))


def raises(kind: str, *anything: Any) -> None:
    raise TypeError("expected a 'cuda' device type for generator but found 'cpu'")


def dies(kind: str, *anything: Any) -> None:
    import os
    import signal

    os.kill(os.getpid(), signal.SIGKILL)


def holds_more(kind: str, nbytes: int) -> dict[str, Any]:
    import torch

    held = [torch.zeros(nbytes // 4) for _ in range(8)]
    return {"right": bool(held), "allocator": None}


WRONG: list[tuple[Step, dict[str, Any], str]] = [
    (Forks(), {"about": forked_too_late}, "rank 0 was forked after its device was in use"),
    (Devices(), {"current_devices": on_another_device}, "rank 0 in the function stands on cuda:0, not on cpu"),
    (Starts(), {"sums": never_summed}, "all_reduce after the start: rank 0 has [1.0] where [3.0] is right"),
    (Race(), {"race": never_summed}, "an all-reduce behind 100 ms of products, stepped: rank 0 has [1.0]"),
    (Messages(), {"batched": raises}, "batch_isend_irecv: RankError: rank 0 failed"),
    (Faults(), {"leaves": all_come}, "a rank leaves: nobody noticed"),
    (Size(), {"holds": holds_more}, "rank 0 held 16 MB, and kit.memory says 64 MB"),
    (Sharing(), {"batched": dies}, "batch_isend_irecv: no refusal, but RankError: rank "),
    (Scripts(), {"loaded": raises}, "expected a 'cuda' device type for generator"),
]


@pytest.mark.parametrize(("step", "programs", "words"), WRONG, ids=[str(step.number) for step, _, _ in WRONG])
def test_each_step_is_made_to_fail_once_and_says_so(
    step: Step, programs: dict[str, Any], words: str, bench: Tried, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kit.cli.gpu.steps.sharing.COLLECTIVES", ())
    monkeypatch.setattr(machine, "RESETS", 0)
    own = vars(learners_copy(bench.folder))
    bench.__dict__["programs"] = SimpleNamespace(**{**own, **programs})
    step.run(bench)
    assert any(words in said for said in bench.failures), bench.failures


def test_a_collective_with_wrong_values_is_named_and_the_others_are_tried(
    bench: Tried, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(communication, "COLLECTIVES", ("all_reduce", "broadcast"))
    right = bench.programs.prepared
    bench.programs.prepared = lambda kind, name, share: _spoilt(right, kind, name, share)
    Collectives().run(bench)
    told = [said for said in bench.failures if "where" in said]
    assert len(told) == 4 and all(said.startswith("all_reduce, ") for said in told), bench.failures


def _spoilt(right: Callable[..., Any], kind: str, name: str, share: int) -> Any:
    launch, out, expected = right(kind, name, share)
    return launch, out, expected + (name == "all_reduce")


def test_training_without_communication_is_found_out(bench: Tried) -> None:
    programs = bench.programs
    programs.WAYS = {"no averaging": programs.plain}
    Training().run(bench)
    assert any(said.startswith("no averaging, recorded: the loss of step 1 is") for said in bench.failures)
    assert "no averaging: no byte was recorded that rank 0 sent" in bench.failures


def test_a_device_held_by_the_agent_and_files_left_behind_are_failures(
    bench: Tried, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "device_files", lambda pid: ["/dev/nvidia0"])
    monkeypatch.setattr(machine, "RESETS", 0)
    monkeypatch.setattr(machine, "TO_GIVE_BACK", -1.0)
    files, used = iter([set(), {"nccl-Xy12"}]), iter([{"0": 10}, {"0": 900}, {"0": 600}, {"0": 600}])
    monkeypatch.setattr(machine, "shared_files", lambda: next(files))
    monkeypatch.setattr(machine, "used_memory", lambda: next(used))
    Forks().run(bench)
    Starts().run(bench)
    assert bench.failures == [
        "the host agent holds /dev/nvidia0: what it forks cannot use the device",
        "GPU 0 holds 590 MB more than before, with all ranks ended",
        "left in /dev/shm: nccl-Xy12",
    ]


# ----------------------------------------------------------------------------------------------------- its processes


def test_a_step_whose_time_is_over_is_ended_with_all_it_started(tmp_path: Path) -> None:
    found = process.carry_out(Forks(), Place("cpu", 1), 0.05, tmp_path / "2")
    assert (found.status, found.number) == ("FAIL", 2)
    assert found.sentence.startswith("it was ended after 0 s")


def test_what_a_step_started_ends_with_it() -> None:
    program = (
        "import subprocess; child = subprocess.Popen(['sleep', '100']); print(child.pid, flush=True); child.wait()"
    )
    leader = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, start_new_session=True)
    assert leader.stdout is not None
    child = int(leader.stdout.readline())
    process._end(leader)
    assert leader.returncode is not None and until(lambda: not alive([child]))


def broken_torch(folder: Path, text: str) -> dict[str, str]:
    """An environment whose torch is `text`."""
    (folder / "torch").mkdir()
    (folder / "torch/__init__.py").write_text(text)
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])}


@pytest.mark.parametrize(
    ("torch", "words"),
    [
        ("raise ImportError('libcudart.so.12: cannot open shared object file')", "ImportError: libcudart.so.12"),
        (
            "import os; os.kill(os.getpid(), 11)",
            f"its process was ended by {signal.Signals(11).name} in importing torch",
        ),
    ],
)
def test_where_torch_cannot_be_had_the_report_says_so(torch: str, words: str, tmp_path: Path) -> None:
    target = tmp_path / "home.json"
    command = [*DOCTOR, "--device", "cpu", "--to", str(target)]
    run = subprocess.run(command, capture_output=True, text=True, env=broken_torch(tmp_path, torch))
    page = json.loads(target.read_text())
    first, *others = page["steps"]
    assert (run.returncode, page["ok"], page["finished"], run.stderr) == (1, False, True, "")
    assert first["status"] == "FAIL" and words in first["sentence"] and first["facts"]["host"]["cores"]
    assert {one["status"] for one in others} == {"SKIP"} and len(others) == 11
    assert "11 skipped" in run.stdout and str(target) in run.stdout
