"""What PBS and Slurm say of a job: read from text they print, laid out as their manuals show it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from kit.clusters import allocation
from kit.clusters.allocation import Allocation

STARTED = "Fri Nov 20 09:00:00 2026"
QSTAT = """Job Id: 4711.pbs-01
    Job_Name = STDIN
    resources_used.mem = 812344kb
    resources_used.walltime = 00:11:50
    job_state = R
    Resource_List.walltime = 01:00:00
    stime = Fri Nov 20 09:00:00 2026
"""


def test_pbs_time_left_counts_from_the_start_when_usage_lags_behind() -> None:
    begun = time.mktime(time.strptime(STARTED, "%a %b %d %H:%M:%S %Y"))
    assert allocation.pbs_seconds_left(QSTAT, begun + 1200) == 2400
    assert allocation.pbs_seconds_left(QSTAT, begun + 60) == 3600 - 710, "what PBS has counted is more than the clock"
    assert allocation.pbs_seconds_left(QSTAT, begun - 9e6) == 3600 - 710, "a clock that cannot be right does not count"


def test_pbs_without_a_limit_or_an_answer_tells_no_end() -> None:
    assert allocation.pbs_seconds_left("", 0.0) is None
    assert allocation.pbs_seconds_left(QSTAT.replace("walltime", "cput"), 0.0) is None


def test_pbs_node_file_names_a_host_once_for_each_process() -> None:
    assert allocation.pbs_hosts("n1\nn1\nn0\nn0\n\n") == (("n1", "n0"), 4)


@pytest.mark.parametrize(
    ("short", "hosts"),
    [
        ("nid[001-003,007],login1", ("nid001", "nid002", "nid003", "nid007", "login1")),
        ("nid9", ("nid9",)),
        ("r[1-2]n[08-09]", ("r1n08", "r1n09", "r2n08", "r2n09")),
        ("", ()),
    ],
)
def test_slurm_hosts_are_written_out(short: str, hosts: tuple[str, ...]) -> None:
    assert allocation.slurm_hosts(short) == hosts


@pytest.mark.parametrize(
    ("told", "left"),
    [
        ("1-02:03:04\n", 93784.0),
        ("     59:30", 3570.0),
        ("0:45", 45.0),
        ("12", 12.0),
        ("UNLIMITED", None),
        ("NOT_SET", None),
        ("INVALID", None),
        ("", None),
    ],
)
def test_squeue_time_left(told: str, left: float | None) -> None:
    assert allocation.slurm_seconds_left(told) == left


def test_pbs_job_of_the_environment(tmp_path: Path) -> None:
    (tmp_path / "nodes").write_text("n0\nn1\n")
    answers = {("qstat", "-f", "4711.pbs-01"): QSTAT}
    told = {"PBS_JOBID": "4711.pbs-01", "PBS_NODEFILE": str(tmp_path / "nodes")}
    found = allocation.read(told, lambda command: answers[command])
    assert found is not None and (found.scheduler, found.hosts, found.slots) == ("PBS", ("n0", "n1"), 2)
    assert found.ends is not None


def test_slurm_job_of_the_environment_asks_only_when_it_must() -> None:
    told = {"SLURM_JOB_ID": "815", "SLURM_JOB_NODELIST": "nid[1-2]", "SLURM_NTASKS": "8"}
    exact = allocation.read({**told, "SLURM_JOB_END_TIME": "1795165200"}, lambda command: pytest.fail(f"{command}"))
    assert exact == Allocation("Slurm", "815", ("nid1", "nid2"), 8, 1795165200.0)
    by_squeue = allocation.read(told, lambda command: "10:00\n" if command[0] == "squeue" else None)
    silent = allocation.read(told, lambda command: None)
    assert by_squeue is not None and 590 < (by_squeue.left() or 0) <= 600
    assert silent is not None and silent.left() is None and "its end is not told" in str(silent)


def test_outside_of_a_job_there_is_none() -> None:
    assert allocation.read({"HOME": "/home/ada"}, lambda command: pytest.fail("nobody is to be asked")) is None


@pytest.mark.parametrize(
    ("length", "words"),
    [(45, "45 s"), (540, "9 min"), (7500, "2 h 05 min"), (3 * 86400, "3 days"), (0, "0 s")],
)
def test_durations_for_people(length: float, words: str) -> None:
    assert allocation.duration(length) == words


def test_the_end_is_warned_of_under_ten_minutes() -> None:
    now = time.time()
    assert not Allocation("PBS", "1", ("n0",), 1, now + 3600).warning()
    assert "this job ends in 9 min" in Allocation("PBS", "1", ("n0",), 1, now + 590).warning()
    assert Allocation("PBS", "1", ("n0",), 1, now - 5).left() == 0.0
