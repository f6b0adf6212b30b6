"""Another user of the host: cannot look into the run folder, join the ranks' group, read along or drive the cluster."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from kit.clusters.errors import ClusterError
from kit.clusters.request import checked
from kit.run import current
from kit.run.live import LiveRunner
from tests.ranks import besieged
from tests.ranks.living import alive, until
from tests.ranks.strangers import answer, begin
from tests.ranks.test_cluster import whole_sum

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")


@pytest.fixture(scope="module")
def cluster() -> Iterator[LiveRunner]:
    with LiveRunner(checked(3, "cpu")) as started:
        started.view.apply_sync(int)
        yield started


@pytest.fixture
def strangers() -> Iterator[list[subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []
    yield started
    for process in started:
        process.kill()
        process.wait()


def works(cluster: LiveRunner) -> bool:
    return cluster.view.apply_sync(whole_sum) == [6.0, 6.0, 6.0]


def ports(cluster: LiveRunner) -> list[int]:
    found = {
        connection.laddr.port
        for pid in cluster.processes
        for connection in psutil.Process(pid).net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    }
    assert len(found) >= cluster.size + 5, "the ranks and the controller listen somewhere"
    return sorted(found)


def test_the_run_folder_and_the_processes_are_closed(cluster: LiveRunner) -> None:
    body = """
    def tried(act, *arguments):
        try:
            act(*arguments)
        except PermissionError:
            return "refused"
        except OSError as problem:
            return type(problem).__name__
        return "done"

    folder = told["folder"]
    attempts = {
        "list": tried(os.listdir, folder),
        "settings": tried(open, folder + "/agent.json"),
        "keys": tried(os.listdir, folder + "/profile/security"),
        "meeting point": tried(open, folder + "/" + told["world"], "r+"),
        "new file": tried(open, folder + "/mine", "w"),
        "socket": tried(socket.socket(socket.AF_UNIX).connect, folder + "/kernel.sock"),
        "rename": tried(os.rename, folder, folder + "x"),
    }
    for pid in told["pids"]:
        attempts[f"kill {pid}"] = tried(os.kill, pid, signal.SIGKILL)
        attempts[f"environment of {pid}"] = tried(open, f"/proc/{pid}/environ")
        attempts[f"memory of {pid}"] = tried(open, f"/proc/{pid}/mem", "rb")
        attempts[f"descriptors of {pid}"] = tried(os.listdir, f"/proc/{pid}/fd")
    print(json.dumps(attempts))
    """
    world = next(path.name for path in cluster.folder.iterdir() if path.name.startswith("world-"))
    told = {"folder": str(cluster.folder), "world": world, "pids": list(cluster.pids)}
    attempts = answer(begin("import socket, signal", body, **told))
    assert attempts and set(attempts.values()) == {"refused"}, attempts
    assert alive(cluster.pids) == list(cluster.pids) and works(cluster)


def test_no_key_lies_in_a_command_line(cluster: LiveRunner) -> None:
    """Every user of a host sees every command line."""
    (engine, client) = sorted((cluster.folder / "profile/security").glob("*.json"))
    secrets = {json.loads(file.read_text())[name] for file in (engine, client) for name in ("key", "curve_serverkey")}
    assert len(secrets) == 2 and all(len(secret) >= 40 for secret in secrets)
    shown = " ".join(" ".join(psutil.Process(pid).cmdline()) for pid in cluster.processes)
    assert not any(secret in shown for secret in secrets)


def test_who_subscribes_to_every_port_hears_nothing(cluster: LiveRunner, strangers: list[Any]) -> None:
    body = """
    context = zmq.Context()
    ears = []
    for port in told["ports"]:
        ear = context.socket(zmq.SUB)
        ear.setsockopt(zmq.SUBSCRIBE, b"")
        ear.setsockopt(zmq.LINGER, 0)
        ear.connect(f"tcp://127.0.0.1:{port}")
        ears.append(ear)
    time.sleep(0.5)
    print("listening", flush=True)
    sys.stdin.readline()
    heard = sum(len(part) for ear in ears while_polling(ear) for part in ear.recv_multipart())
    print(json.dumps(heard))
    """
    body = body.replace("while_polling(ear)", "for _ in iter(lambda: ear.poll(100), 0)")
    stranger = begin("import time, zmq, zmq.backend", body, ports=ports(cluster))
    strangers.append(stranger)
    assert stranger.stdout is not None and stranger.stdout.readline() == "listening\n"
    cluster.view.apply_sync(lambda: print("a rank's secret " * 10))
    assert answer(stranger) == 0
    assert works(cluster)


def test_messages_with_a_guessed_key_start_nothing(cluster: LiveRunner, tmp_path: Any) -> None:
    tmp_path.chmod(0o777)
    body = """
    from jupyter_client.session import Session
    context = zmq.Context()
    for port in told["ports"]:
        for key in (b"", b"secret"):
            for kind in ("apply_request", "execute_request", "shutdown_request", "unregistration_request"):
                mouth = context.socket(zmq.DEALER)
                mouth.setsockopt(zmq.SNDTIMEO, 200)
                mouth.connect(f"tcp://127.0.0.1:{port}")
                code = f"open({told['mark']!r}, 'w')"
                try:
                    Session(key=key).send(mouth, kind, {"code": code, "id": 0, "silent": False, "restart": False})
                except zmq.Again:  # refused before all of it was on its way
                    pass
    time.sleep(1.0)
    print(json.dumps(True), flush=True)
    os._exit(0)  # what was not taken must not be waited for
    """
    imports = "import time, zmq, jupyter_client.session, encodings.idna"
    pids, told = cluster.pids, {"ports": ports(cluster), "mark": str(tmp_path / "mark")}
    assert answer(begin(imports, body, **told)) is True
    assert not (tmp_path / "mark").exists()
    assert cluster.pids == pids and cluster.lost == {} and works(cluster)


NOISE = """
held = []
for port in told["ports"]:
    for words in (b"", bytes(8), bytes(4096), b"GET / HTTP/1.0\\r\\n\\r\\n", b"\\xff" * 64):
        caller = socket.socket()
        try:
            caller.connect(("127.0.0.1", port))
            caller.sendall(words)
            held.append(caller)
        except OSError:
            continue
print("said", flush=True)
sys.stdin.readline()
print(json.dumps(len(held)))
"""


def test_noise_on_every_port_harms_nothing(cluster: LiveRunner, strangers: list[Any]) -> None:
    stranger = begin("import socket", NOISE, ports=ports(cluster))
    strangers.append(stranger)
    assert stranger.stdout is not None and stranger.stdout.readline() == "said\n"
    assert works(cluster)

    def subgroup() -> float:
        import torch
        import torch.distributed as dist

        pair = dist.new_group([0, 1])
        x = torch.ones(1)
        if dist.get_rank() < 2:
            dist.all_reduce(x, group=pair)
        return float(x)

    assert cluster.view.apply_sync(subgroup) == [2.0, 2.0, 1.0], "a new group while a stranger stays connected"
    assert answer(stranger) > 0
    assert cluster.lost == {} and works(cluster)


def test_who_names_the_right_number_while_a_group_forms_stops_neither_a_start_nor_a_reset() -> None:
    """gloo itself lets such a one in. The group is given up then, and another one made."""
    siege = subprocess.run([sys.executable, "-m", "tests.ranks.besieged"], capture_output=True, text=True, cwd=ROOT)
    if siege.returncode == besieged.NOT_PERMITTED:
        pytest.skip("this root may not make a network of its own")
    assert siege.returncode == 0, siege.stderr
    outcomes, came_in = json.loads(siege.stdout.splitlines()[-1])
    assert outcomes == [[3.0] * 3] * besieged.CLUSTERS
    assert came_in > 0, "it never got to try"


INTRUDER = """
import os, sys
sys.path.append({root!r})
import kit.probe.peers as peers

def strangers(inodes, user):
    for name in os.listdir({folder!r}):
        try:
            os.unlink(os.path.join({folder!r}, name))
            return {{65534}}
        except FileNotFoundError:
            continue
    return set()

peers.strangers = strangers
"""


@pytest.fixture
def intrusions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """`intrusions(3)`: the next three ranks that join a group find a stranger in it; of clusters begun from now on."""
    folder = tmp_path / "intrusions"
    folder.mkdir()
    (tmp_path / "sitecustomize.py").write_text(INTRUDER.format(root=str(ROOT), folder=str(folder)))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)

    def expect(count: int) -> None:
        for file in folder.iterdir():
            file.unlink(missing_ok=True)
        for number in range(count):
            (folder / str(number)).touch()

    return expect


def test_a_group_that_a_stranger_got_into_is_made_again(
    intrusions: Callable[[int], None], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    intrusions(3)
    cluster = current.start_or_join(2, "cpu")
    try:
        first = cluster.generation
        assert first > 1 and cluster.view.apply_sync(whole_sum) == [3.0, 3.0]
        intrusions(1)
        assert cluster.reset().generation > first + 1 and cluster.record(whole_sum).results == [3.0, 3.0]
        intrusions(1000)
        with pytest.raises(ClusterError, match=r"another user of this host \(number 65534\).* So it went 8 times"):
            cluster.reset()
        assert "ended and not come up again: the next use starts it again" in repr(cluster)
        intrusions(0)
        assert current.start_or_join(2, "cpu", replay="00_ranks") is cluster, "the set-up cell finds real ranks"
        assert cluster.record(whole_sum).results == [3.0, 3.0]
    finally:
        cluster.stop()


def test_a_group_with_a_stranger_in_it_is_given_up(cluster: LiveRunner) -> None:
    """What the system's table would show is put in its place: the moment itself cannot be hit on purpose."""

    def intruded() -> str:
        import kit.probe.peers as peers

        real, peers.strangers = peers.strangers, lambda inodes, user: {65534} if inodes else set()
        try:
            import torch.distributed as dist

            dist.new_group([0, 1, 2])
        except PermissionError as refused:
            return str(refused)
        finally:
            peers.strangers = real
        return "nothing was noticed"

    said = cluster.view.apply_sync(intruded)
    assert all("another user of this host (number 65534)" in one for one in said), said
    cluster.reset()
    assert until(lambda: works(cluster))
