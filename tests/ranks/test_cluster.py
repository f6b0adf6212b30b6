"""A cluster's ordinary life, with real processes: start, use, join, reset, stop."""

from __future__ import annotations

import itertools
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

import kit
from kit.clusters.errors import ClusterError
from kit.clusters.request import checked
from kit.run import current
from kit.run.live import LiveRunner
from tests.ranks.living import alive, until

RANKS = 3


@pytest.fixture(scope="module")
def cluster() -> Iterator[LiveRunner]:
    with LiveRunner(checked(RANKS, "cpu")) as started:
        yield started


def whole_sum() -> float:
    import torch
    import torch.distributed as dist

    x = torch.tensor([float(dist.get_rank() + 1)])
    dist.all_reduce(x)
    return float(x)


def environment() -> dict[str, str]:
    import os

    return dict(os.environ)


def drawn() -> tuple[float, float, float]:
    import random

    import numpy
    import torch

    return random.random(), float(numpy.random.rand()), float(torch.rand(1))


def test_engines_whose_registration_the_client_did_not_hear_of_are_asked_for(cluster: LiveRunner) -> None:
    handlers = cluster.client._notification_handlers
    hears, handlers["registration_notification"] = handlers["registration_notification"], lambda message: None
    try:
        cluster.reset()
        assert cluster.view.apply_sync(whole_sum) == [6.0, 6.0, 6.0]
    finally:
        handlers["registration_notification"] = hears


def test_the_ranks_are_processes_in_one_group(cluster: LiveRunner) -> None:
    assert len(set(cluster.pids)) == cluster.size == RANKS
    assert alive(cluster.pids) == list(cluster.pids)
    assert cluster.view.apply_sync(whole_sum) == [6.0, 6.0, 6.0]
    assert cluster.backend == "gloo" and cluster.devices == ("cpu",) * RANKS


def test_view_has_the_ranks_in_order_whatever_the_engines_are_called(cluster: LiveRunner) -> None:
    told = cluster.view.apply_sync(environment)
    assert [each["RANK"] for each in told] == ["0", "1", "2"]
    assert [each["LOCAL_RANK"] for each in told] == ["0", "1", "2"]
    assert {each["WORLD_SIZE"] for each in told} == {each["LOCAL_WORLD_SIZE"] for each in told} == {"3"}
    assert {each["MASTER_ADDR"] for each in told} == {"127.0.0.1"}
    assert len({each["MASTER_PORT"] for each in told}) == 1
    assert {each["GLOO_SOCKET_IFNAME"] for each in told} == {"lo"}
    assert [os.getpid() != pid for pid in cluster.pids]
    assert cluster.view.apply_sync(os.getpid) == list(cluster.pids)


def test_every_rank_draws_its_own_numbers(cluster: LiveRunner) -> None:
    for numbers in zip(*cluster.view.apply_sync(drawn), strict=True):
        assert len(set(numbers)) == RANKS


def test_a_module_beside_the_notebook_can_be_imported_on_the_ranks(cluster: LiveRunner) -> None:
    assert cluster.view.apply_sync(os.getcwd) == [os.getcwd()] * RANKS
    imported = cluster.view.apply_sync(lambda: __import__("tests.ranks.living", fromlist=["until"]).__name__)
    assert imported == ["tests.ranks.living"] * RANKS


def test_the_agent_is_one_thread_that_holds_no_device(cluster: LiveRunner) -> None:
    agent = psutil.Process(cluster.pids[0]).parent()
    assert agent is not None and agent.num_threads() == 1
    assert agent.pid in cluster.processes


def sockets(pid: int) -> set[str]:
    found = set()
    for entry in os.scandir(f"/proc/{pid}/fd"):
        target = os.readlink(entry.path)
        if target.startswith("socket:"):
            found.add(target)
    return found


def test_no_process_holds_a_copy_of_anothers_socket(cluster: LiveRunner) -> None:
    """One copy too many and a rank would not see its agent die."""
    agent = psutil.Process(cluster.pids[0]).ppid()
    held = {pid: sockets(pid) for pid in (agent, *cluster.pids)}
    for one, other in itertools.combinations(held, 2):
        assert not held[one] & held[other], f"{one} and {other} share a socket"
    assert all(held.values())


def test_nothing_listens_beyond_this_host(cluster: LiveRunner) -> None:
    listening = [
        connection.laddr.ip
        for pid in cluster.processes
        for connection in psutil.Process(pid).net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    ]
    assert listening and set(listening) <= {"127.0.0.1", "::1"}


def test_the_run_folder_is_private(cluster: LiveRunner) -> None:
    assert stat.S_IMODE(cluster.folder.stat().st_mode) == 0o700


def test_reset_gives_new_processes_and_a_working_group(cluster: LiveRunner) -> None:
    before, generation, engines = cluster.pids, cluster.generation, cluster.engines
    assert cluster.reset() is cluster
    assert not set(before) & set(cluster.pids) and not alive(before)
    assert cluster.generation == generation + 1
    assert cluster.view.apply_sync(whole_sum) == [6.0, 6.0, 6.0]
    assert until(lambda: not set(engines) & set(cluster.client.ids)), "dead engines are listed as living"


def test_what_the_ranks_had_to_load_the_next_generation_shares(cluster: LiveRunner) -> None:
    def first_optimizer() -> tuple[bool, bool]:
        import sys

        import torch

        before = "torch._dynamo" in sys.modules
        torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
        return before, "torch._dynamo" in sys.modules

    fresh = cluster.client[cluster.engines[0]].apply_sync(first_optimizer)
    assert fresh == (False, True), "torch no longer loads it lazily: is it still worth a line of its own?"
    cluster.reset()
    assert cluster.view.apply_sync(first_optimizer) == [(True, True)] * RANKS


def test_report_says_what_there_is(cluster: LiveRunner) -> None:
    report = cluster.report()
    assert [rank.pid for rank in report.ranks] == list(cluster.pids)
    assert report.backend == "gloo" and report.interface == "lo" and report.devices == ("cpu",) * RANKS
    assert report.memory > sum(rank.memory or 0 for rank in report.ranks) > 0
    assert report.hosts[0].cores == len(os.sched_getaffinity(0))
    for part in (str(report), report._repr_html_()):
        assert "rank 2" in part and "gloo over lo" in part and "torch" in part
    assert set(cluster._repr_mimebundle_()) == {"text/plain", "text/html"}


def test_stop_leaves_nothing() -> None:
    cluster = LiveRunner(checked(2, "cpu"))
    processes, folder = cluster.processes, cluster.folder
    assert len(processes) == 5  # agent, controller, its heart monitor, two ranks
    assert cluster.client.ids
    cluster.stop()
    assert not alive(processes) and not folder.exists() and not cluster.running
    cluster.stop()
    assert "stopped" in repr(cluster)
    for use in (cluster.reset, cluster.report, lambda: cluster.client, lambda: cluster.record(whole_sum)):
        with pytest.raises(ClusterError, match=r"kit\.cluster\(\) starts a new one"):
            use()


def test_a_second_call_joins_and_with_stops_only_what_it_started() -> None:
    assert current.held() is None
    with kit.cluster(2, "cpu") as mine:
        assert current.held() is mine
        with kit.cluster() as joined:
            assert joined is mine
        assert mine.running, "the inner `with` stopped what the outer one had started"
        assert kit.cluster(ranks=2) is mine
        for wish in ({"ranks": 3}, {"device": "cuda"}, {"backend": "nccl"}):
            with pytest.raises(ValueError, match=r"leave \w+ out to join it"):
                kit.cluster(**wish)
    assert not mine.running and current.held() is None


def test_with_stops_when_the_block_raises() -> None:
    with pytest.raises(KeyError), LiveRunner(checked(1, "cpu")) as cluster:
        raise KeyError("from the block")
    assert not cluster.running


def test_a_script_that_just_ends_takes_its_cluster_along_and_never_loads_torch() -> None:
    script = (
        "import sys, kit\n"
        "cluster = kit.cluster(2, 'cpu')\n"
        "assert not {'torch', 'bokeh', 'ipywidgets'} & set(sys.modules), 'heavy modules in the kernel'\n"
        "print(*cluster.processes)\n"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert not run.stderr, "progress belongs on a terminal or in a notebook"
    pids = [int(pid) for pid in run.stdout.split()]
    assert len(pids) == 5 and not alive(pids)


def test_the_package_itself_is_light() -> None:
    script = (
        "import sys, kit, kit.clusters\n"
        "assert callable(kit.cluster) and callable(kit.check)\n"
        "print(sorted({'torch', 'ipyparallel', 'IPython', 'numpy'} & set(sys.modules)))\n"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert run.stdout.strip() == "[]", run.stderr


def test_two_kernels_have_two_clusters(cluster: LiveRunner) -> None:
    script = "import kit\nwith kit.cluster(2, 'cpu') as c:\n    print(*c.processes)\n"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert not {int(pid) for pid in run.stdout.split()} & set(cluster.processes)
    assert alive(cluster.processes) == list(cluster.processes)
    assert cluster.view.apply_sync(whole_sum) == [6.0, 6.0, 6.0]


def test_in_a_notebook_progress_is_one_line_and_the_cluster_a_card() -> None:
    import nbclient
    import nbformat

    cells = ["import kit\nc = kit.cluster(1, 'cpu')", "c", "c.stop()"]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    nbclient.NotebookClient(notebook, timeout=240).execute()
    start, card, stop = (cell.outputs for cell in notebook.cells)
    assert [output["output_type"] for output in start] == ["display_data"]
    assert start[0]["data"]["text/plain"].startswith("1 rank on cpu, gloo")
    assert "process" in card[0]["data"]["text/html"]
    assert not stop


def test_a_rank_stays_in_the_folder_that_its_code_went_to(cluster: LiveRunner, tmp_path: Path) -> None:
    """Its engine registers at any moment after the start, and once took it back."""
    cluster.reset()
    assert cluster.record(os.chdir, str(tmp_path)).results == [None] * RANKS
    assert cluster.view.apply_sync(os.getcwd) == [str(tmp_path)] * RANKS
    cluster.reset()
    assert cluster.view.apply_sync(os.getcwd) == [os.getcwd()] * RANKS
