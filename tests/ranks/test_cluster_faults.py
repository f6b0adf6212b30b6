"""What breaks, on purpose: ranks, the controller, the agent and the kernel are killed or stopped, and nothing hangs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from kit.clusters.errors import ClusterError
from kit.clusters.request import checked
from kit.protocol.messages import ControllerLost, HostLost, Move, RankLost, RankResumed, RankSuspended
from kit.run.live import LiveRunner
from tests.ranks.living import Listener, alive, until
from tests.ranks.test_cluster import whole_sum

RANKS = 2
KERNEL = "import kit, time\nc = kit.cluster(2, 'cpu')\nprint(*c.processes, flush=True)\ntime.sleep(60)\n"


@pytest.fixture(scope="module")
def started() -> Iterator[LiveRunner]:
    with LiveRunner(checked(RANKS, "cpu")) as cluster:
        yield cluster


@pytest.fixture
def cluster(started: LiveRunner) -> LiveRunner:
    """A whole cluster for each test, whatever the one before has done to it."""
    if started.lost or not started.running:
        started.reset()
    return started


def works(cluster: LiveRunner) -> bool:
    return cluster.view.apply_sync(whole_sum) == [3.0] * RANKS


def controller_of(cluster: LiveRunner) -> psutil.Process:
    return next(
        process for pid in cluster.processes if (process := psutil.Process(pid)) and "controller" in process.cmdline()
    )


@pytest.mark.parametrize(
    ("end", "words"),
    [
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "killed by SIGKILL"),
        (lambda: os._exit(3), "exited with code 3"),
        (os.abort, "killed by SIGABRT"),
    ],
    ids=["kill", "exit", "abort"],
)
def test_a_rank_that_ends_is_named_at_once_and_reset_brings_it_back(
    cluster: LiveRunner, end: object, words: str
) -> None:
    listener = Listener(cluster.connection)
    asked = cluster.client[cluster.engines[1]].apply_async(end)
    told = listener.wait(RankLost)
    assert (told.rank, told.detail) == (1, words)
    assert cluster.lost == {1: words}
    with pytest.raises(Exception, match="died while running"):
        asked.get()  # ipyparallel's own answer, long before its heartbeats would have noticed
    with pytest.raises(ClusterError, match=rf"rank 1 was lost \({words}\): reset\(\)"):
        _ = cluster.view
    assert words in str(cluster.report())
    cluster.reset()
    assert cluster.lost == {} and works(cluster)


def test_a_stopped_rank_is_seen_and_goes_on(cluster: LiveRunner) -> None:
    listener = Listener(cluster.connection)
    os.kill(cluster.pids[0], signal.SIGSTOP)
    told = listener.wait(RankSuspended)
    assert (told.rank, told.detail) == (0, "stopped by SIGSTOP")
    os.kill(cluster.pids[0], signal.SIGCONT)
    assert listener.wait(RankResumed).rank == 0
    assert works(cluster)


def test_a_stopped_rank_does_not_hold_up_reset(cluster: LiveRunner) -> None:
    before = cluster.pids
    os.kill(before[0], signal.SIGSTOP)
    cluster.reset()
    assert not alive(before) and works(cluster)


def test_a_rank_in_a_long_call_does_not_hold_up_reset(cluster: LiveRunner) -> None:
    cluster.client[cluster.engines[0]].apply_async(lambda: sum(range(10**11)))
    cluster.reset()
    assert works(cluster)


def test_what_a_rank_started_goes_with_it(cluster: LiveRunner) -> None:
    def start() -> int:
        import subprocess

        return subprocess.Popen(["sleep", "600"], start_new_session=True).pid

    sleepers = cluster.view.apply_sync(start)
    assert alive(sleepers) == sleepers
    cluster.reset()
    assert not alive(sleepers)


def test_a_killed_controller_is_said_and_the_next_use_starts_all_again(
    cluster: LiveRunner, capfd: pytest.CaptureFixture[str]
) -> None:
    listener = Listener(cluster.connection)
    controller = controller_of(cluster)
    heart_monitor = [child.pid for child in controller.children()]
    before, generation = cluster.pids, cluster.generation
    controller.kill()
    listener.wait(ControllerLost)
    assert heart_monitor and until(lambda: not alive(heart_monitor)), "its heart monitor lives on"
    assert not cluster.running and "the next use starts it again" in repr(cluster)
    assert works(cluster)
    assert "controller was lost" in capfd.readouterr().err
    assert not alive(before) and cluster.generation > generation


def test_a_killed_agent_takes_the_ranks_along_and_reset_starts_all_again(
    cluster: LiveRunner, capfd: pytest.CaptureFixture[str]
) -> None:
    listener = Listener(cluster.connection)
    before = cluster.processes
    agent = psutil.Process(cluster.pids[0]).parent()
    assert agent is not None
    agent.kill()
    listener.wait(HostLost)
    assert until(lambda: not alive(cluster.pids))
    with pytest.raises(ConnectionError, match=r"kit\.cluster\(\)|reset\(\)"):
        cluster.connection.send(Move(1, 1, (0,), "step", 0))
    cluster.reset()
    assert "host agent was lost" in capfd.readouterr().err
    assert not alive(before) and works(cluster)


def kernel() -> tuple[subprocess.Popen[str], list[int]]:
    """A process that has a cluster and sleeps, and everything that runs for it."""
    process = subprocess.Popen([sys.executable, "-c", KERNEL], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    pids = [int(pid) for pid in process.stdout.readline().split()]
    assert len(pids) == 5
    return process, pids


def folder_of(agent: int) -> Path:
    return Path(psutil.Process(agent).cmdline()[-2]).parent


def test_a_killed_kernel_leaves_nothing() -> None:
    process, pids = kernel()
    folder = folder_of(pids[0])
    assert folder.is_dir()
    process.kill()
    process.wait()
    assert until(lambda: not alive(pids)), f"still there: {alive(pids)}"
    assert until(lambda: not folder.exists())


def test_kernel_and_agent_killed_together_leave_nothing() -> None:
    process, pids = kernel()
    os.kill(pids[0], signal.SIGKILL)
    process.kill()
    process.wait()
    assert until(lambda: not alive(pids)), f"still there: {alive(pids)}"


def test_a_killed_kernel_takes_a_stopped_rank_along() -> None:
    process, pids = kernel()
    os.kill(pids[-1], signal.SIGSTOP)
    process.kill()
    process.wait()
    assert until(lambda: not alive(pids)), f"still there: {alive(pids)}"


def test_a_paused_kernel_keeps_its_cluster() -> None:
    process, pids = kernel()
    process.send_signal(signal.SIGSTOP)
    time.sleep(1.0)
    try:
        assert alive(pids) == pids
    finally:
        process.kill()
        process.wait()
    assert until(lambda: not alive(pids))


def test_an_interrupted_start_leaves_nothing() -> None:
    script = (
        "import kit, os, psutil, signal, threading, time\n"
        "def interrupt():\n"
        "    while not psutil.Process().children():\n"
        "        time.sleep(0.01)\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "threading.Thread(target=interrupt).start()\n"
        "try:\n"
        "    kit.cluster(2, 'cpu')\n"
        "except KeyboardInterrupt:\n"
        "    from kit.run import current\n"
        "    print('interrupted', current.held(), *(p.pid for p in psutil.Process().children(True)))\n"
        "    os._exit(0)\n"  # so that nothing but the interrupt can have ended them
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert run.stdout.startswith("interrupted None"), run.stderr
    left = [int(pid) for pid in run.stdout.split()[2:]]
    assert until(lambda: not alive(left)), f"still there: {alive(left)}"


def test_without_torch_the_refusal_names_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "torch.py").write_text("raise ModuleNotFoundError(\"No module named 'torch'\", name='torch')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(ValueError, match="the ranks need torch, which is not installed: run `.* -m pip install torch`"):
        LiveRunner(checked(2))


def test_a_gpu_that_is_not_there_is_refused_in_words() -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with pytest.raises(ValueError, match="no such accelerator was found by torch .* Write device='auto'"):
        LiveRunner(checked(2, "cuda"))
    with pytest.raises(ValueError, match="write backend='auto'"):
        LiveRunner(checked(2, backend="nccl"))


def test_ranks_that_cannot_start_say_why_and_leave_nothing(short_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOO_DEVICE_TRANSPORT", "NO_SUCH_TRANSPORT")
    before = {process.pid for process in psutil.Process().children(recursive=True)}
    with pytest.raises(ClusterError, match="during the start"):
        LiveRunner(checked(2, "cpu", folder=str(short_path)))
    after = {process.pid for process in psutil.Process().children(recursive=True)}
    assert not alive(after - before) and not list(short_path.iterdir())
