"""Places that are against one: a full disk, a read-only home, no home, files named like libraries, a second cluster."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kit.clusters.doctor import host
from kit.clusters.request import checked
from kit.run.live import LiveRunner
from tests.ranks.test_cluster import whole_sum

ROOT = Path(__file__).parents[2]
LAB = """
import kit

def meet():
    import html, torch, torch.distributed as dist
    x = torch.ones(2)
    dist.all_reduce(x)
    return x.tolist(), hasattr(html, "escape")

with kit.cluster(2, "cpu") as cluster:
    session = kit.step(meet)
    while session.live:  # a motion waits for some seconds, which a busy machine takes for an import
        session.finish()
    print(session.results, kit.record(meet).results, cluster.view.apply_sync(int), cluster.folder.parent, sep="|")
"""
WORKED = "[([2.0, 2.0], True), ([2.0, 2.0], True)]|[([2.0, 2.0], True), ([2.0, 2.0], True)]|[0, 0]|"


def lab(place: Path, shell: str = ":", **change: str | None) -> subprocess.CompletedProcess[str]:
    """Runs a small lab in the folder `place`, as a kernel would: its folder is not the first that is imported from.

    shell: what a shell does before, or in place of, becoming the lab.
    """
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **{name: text for name, text in change.items() if text}}
    for name, text in change.items():
        if text is None:
            environment.pop(name, None)
    command = ["sh", "-c", f'{shell}; exec "$@"', "sh", sys.executable, "-P", "-c", LAB]
    return subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True)


@pytest.fixture
def mounted(short_path: Path) -> Iterator[object]:
    """`mounted(options)`: a folder that is a file system of its own."""
    made: list[Path] = []

    def mount(options: str) -> Path:
        folder = short_path / f"place{len(made)}"
        folder.mkdir()
        tried = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "lockstep-test", folder], capture_output=True, text=True
        )
        if tried.returncode:
            pytest.skip(f"no file system can be mounted here: {tried.stderr.strip()}")
        made.append(folder)
        return folder

    yield mount
    for folder in made:
        subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.fixture
def full(mounted: object) -> Path:
    folder: Path = mounted("size=4k,mode=0777")  # type: ignore[operator]
    (folder / "filler").write_bytes(bytes(4096))
    with pytest.raises(OSError, match="No space left"):
        (folder / "more").write_bytes(b"x")
    return folder


def test_a_full_disk_where_the_run_folder_would_lie_is_passed_over(full: Path, tmp_path: Path) -> None:
    ran = lab(tmp_path, XDG_RUNTIME_DIR=str(full))
    assert ran.stdout.startswith(WORKED), ran.stderr
    assert not ran.stdout.strip().endswith(str(full))
    assert not [path for path in full.iterdir() if path.name.startswith("lockstep")], "half a folder was left"


def test_a_full_disk_that_was_asked_for_is_refused_in_words(full: Path) -> None:
    with pytest.raises(ValueError, match=r"\(No space left on device\): name a folder of your own"):
        LiveRunner(checked(2, "cpu", folder=str(full)))
    found = host.run_folder(str(full))
    assert found.status == "problem" and "No space left" in found.found
    assert "No space left" in host.home(str(full)).found


def test_a_full_home_stops_no_rank(full: Path, tmp_path: Path) -> None:
    ran = lab(tmp_path, HOME=str(full), IPYTHONDIR=None)
    assert ran.stdout.startswith(WORKED), ran.stderr


def test_a_read_only_home_stops_no_rank(mounted: object, tmp_path: Path) -> None:
    home: Path = mounted("ro")  # type: ignore[operator]
    ran = lab(tmp_path, HOME=str(home), IPYTHONDIR=None)
    assert ran.stdout.startswith(WORKED), ran.stderr
    found = host.home(str(home))
    assert found.status == "problem" and "Read-only file system" in found.found


@pytest.mark.parametrize("home", ["/no/such/home", None], ids=["missing", "unset"])
def test_no_home_stops_no_rank(tmp_path: Path, home: str | None) -> None:
    ran = lab(tmp_path, HOME=home, IPYTHONDIR=None)
    assert ran.stdout.startswith(WORKED), ran.stderr


def test_few_open_files_are_made_more_where_the_system_lets_them_be(tmp_path: Path) -> None:
    ran = lab(tmp_path, shell="ulimit -Sn 64")
    assert ran.stdout.startswith(WORKED), ran.stderr
    ran = lab(tmp_path, shell="ulimit -n 64")
    assert "a process may have 64 files open here, and the controller of 2 ranks needs 116: " in ran.stderr


def test_a_network_without_loopback_is_named(tmp_path: Path) -> None:
    ran = lab(tmp_path, shell='exec unshare --net "$@"')
    if "unshare:" in ran.stderr:
        pytest.skip(f"no network of its own can be had here: {ran.stderr.strip()}")
    assert "lo, over which ranks talk within this host, is down: bring it up" in ran.stderr


def test_a_long_name_for_temporary_files_is_passed_over(tmp_path: Path) -> None:
    long = tmp_path / ("long" * 25)
    long.mkdir()
    ran = lab(tmp_path, TMPDIR=str(long), XDG_RUNTIME_DIR=None)
    assert ran.stdout.startswith(WORKED + "/tmp"), ran.stderr
    assert "it has too long a name for a socket" in ran.stderr


def test_large_arguments_need_no_room_in_shared_memory(tmp_path: Path) -> None:
    script = """
import kit, torch
with kit.cluster(2, "cpu"):
    print(kit.record(lambda x: float(x.sum()), torch.ones(500_000)).results)
"""
    place = 'mount -t tmpfs -o size=16k small /dev/shm && exec "$@"'
    command = ["unshare", "--mount", "sh", "-c", place, "sh", sys.executable, "-P", "-c", script]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    if "mount" in ran.stderr or "unshare" in ran.stderr:
        pytest.skip(f"no file system can be mounted here: {ran.stderr.strip()}")
    assert ran.stdout == "[500000.0, 500000.0]\n", ran.stderr


def test_files_named_like_libraries_are_not_imported(tmp_path: Path) -> None:
    for name in ("html.py", "torch.py", "numpy.py", "zmq.py"):
        (tmp_path / name).write_text("raise SystemExit('the wrong one')\n")
    ran = lab(tmp_path)
    assert ran.stdout.startswith(WORKED), ran.stderr


def test_a_notebook_beside_such_files_works(tmp_path: Path) -> None:
    import nbclient
    import nbformat

    for name in ("html.py", "torch.py"):
        (tmp_path / name).write_text("raise SystemExit('the wrong one')\n")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(LAB)])
    nbclient.NotebookClient(notebook, timeout=240, resources={"metadata": {"path": str(tmp_path)}}).execute()
    said = "".join(output.get("text", "") for output in notebook.cells[0].outputs)
    assert WORKED in said


def test_two_clusters_at_once_do_not_meet() -> None:
    with LiveRunner(checked(2, "cpu")) as one, LiveRunner(checked(3, "cpu")) as other:
        assert one.folder != other.folder and not set(one.processes) & set(other.processes)
        both = one.view.apply_async(whole_sum), other.view.apply_async(whole_sum)
        assert [asked.get() for asked in both] == [[3.0] * 2, [6.0] * 3]
        before = other.pids
        one.reset()
        assert other.pids == before and other.view.apply_sync(whole_sum) == [6.0] * 3
        one.stop()
        assert other.running and other.view.apply_sync(whole_sum) == [6.0] * 3


def test_a_rank_that_died_before_the_first_run_is_not_waited_for(capsys: pytest.CaptureFixture[str]) -> None:
    import signal

    from tests.ranks.living import until

    with LiveRunner(checked(2, "cpu")) as cluster:
        os.kill(cluster.pids[1], signal.SIGKILL)
        assert until(lambda: cluster.lost)
        assert cluster.record(whole_sum).results == [3.0, 3.0]
    assert "rank 1 died (killed by SIGKILL)" in capsys.readouterr().out
