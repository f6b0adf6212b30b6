"""`lockstep doctor` on this machine, with real ranks, and the left-over ranks that it finds and ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kit.clusters.doctor import leftovers, trial
from kit.clusters.errors import ClusterError
from kit.clusters.request import checked
from kit.run.live import LiveRunner
from tests.ranks.living import alive, until
from tests.ranks.test_cluster import whole_sum

DOCTOR = [sys.executable, "-m", "kit.cli", "doctor"]


def test_the_command_starts_real_ranks_and_leaves_nothing() -> None:
    before = set(leftovers.all_members())
    run = subprocess.run([*DOCTOR, "--json", "--ranks", "2"], capture_output=True, text=True)
    page = json.loads(run.stdout)
    found = {one["name"]: one for one in page["findings"]}
    assert run.returncode == (0 if page["ok"] else 1) and not run.stderr
    assert found["real ranks"]["status"] == "ok", found["real ranks"]
    assert "2 ranks" in found["real ranks"]["found"] and "ms" in found["real ranks"]["found"]
    assert "gloo" in found["backends"]["found"]
    ours = {member for member in set(leftovers.all_members()) - before if member.orphan}
    assert not ours


def test_an_unusable_place_is_a_problem_and_the_exit_code_says_so(tmp_path: Path) -> None:
    home = tmp_path / "gone"
    environment = {**os.environ, "HOME": str(home)}
    run = subprocess.run([*DOCTOR, "--ranks", "1"], capture_output=True, text=True, env=environment)
    assert run.returncode == 1
    assert "there is no folder" in run.stdout and "do: Before starting Jupyter" in run.stdout


def test_ranks_that_cannot_be_had_are_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOO_DEVICE_TRANSPORT", "NO_SUCH_TRANSPORT")
    found = trial.ranks(trial.run(2))
    assert found.status == "problem" and "during the start" in found.found and "gloo device" in found.found
    assert found.fix.startswith("Report it")


def test_a_living_cluster_is_no_leftover(three: LiveRunner) -> None:
    mine = [member for member in leftovers.all_members() if member.folder == str(three.folder)]
    assert {member.pid for member in mine} >= set(three.pids) and not any(member.orphan for member in mine)
    assert leftovers.end(mine) == () and alive(three.pids) == list(three.pids)


def test_ranks_that_outlived_their_kernel_are_found_and_ended() -> None:
    script = "import kit, time\nc = kit.cluster(2, 'cpu')\nprint(c.folder, *c.processes, flush=True)\ntime.sleep(60)\n"
    kernel = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert kernel.stdout is not None
    folder, *words = kernel.stdout.readline().split()
    pids = [int(word) for word in words]
    agent, ranks = pids[0], pids[-2:]
    os.kill(agent, signal.SIGSTOP)  # so that it cannot follow its kernel
    kernel.kill()
    kernel.wait()
    try:
        mine = until(lambda: [one for one in leftovers.all_members() if one.folder == folder and one.orphan])
        assert {one.pid for one in mine} >= {agent, *ranks}
        assert agent in leftovers.end(mine)
        assert until(lambda: not alive(pids)), f"still there: {alive(pids)}"
    finally:
        for pid in alive(pids):
            os.kill(pid, signal.SIGKILL)


def test_an_idle_cluster_stops_itself_and_the_next_use_starts_it_again(capfd: pytest.CaptureFixture[str]) -> None:
    with LiveRunner(checked(2, "cpu")) as cluster:
        assert cluster.idle_minutes is None
        before = cluster.processes
        assert cluster.stop_when_idle(0.02).idle_minutes == 0.02
        assert until(lambda: not cluster.running) and until(lambda: not alive(before))
        assert "without a run: the next use starts it again" in repr(cluster)
        with pytest.raises(ClusterError, match="had stopped itself after 0.02 minutes without a run"):
            _ = cluster.folder
        assert cluster.view.apply_sync(whole_sum) == [3.0, 3.0]
        assert "stopped itself after 0.02 minutes without a run: it starts again" in capfd.readouterr().err
        assert until(lambda: not cluster.running), "it watches no more after it was started again"
        cluster.reset()
        cluster.stop_when_idle(None)
        assert cluster.idle_minutes is None and cluster.running
    assert repr(cluster) == "Cluster(2 ranks, stopped)"


def test_a_cluster_that_stopped_itself_can_be_stopped() -> None:
    told: list[LiveRunner] = []
    cluster = LiveRunner(checked(1, "cpu"), on_stop=told.append)
    cluster.stop_when_idle(0.01)
    assert until(lambda: not cluster.running)
    cluster.stop()
    cluster.stop()
    assert told == [cluster] and "stopped)" in repr(cluster)
    with pytest.raises(ClusterError, match=r"kit\.cluster\(\) starts a new one"):
        cluster.reset()
