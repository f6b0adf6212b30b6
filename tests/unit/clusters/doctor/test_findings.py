"""Each question, asked of machines as they come: what is found, how bad it is, and what to do."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from kit.clusters.allocation import Allocation
from kit.clusters.doctor import host, leftovers, software, trial
from kit.clusters.doctor.finding import problem
from kit.clusters.doctor.leftovers import Member
from kit.clusters.doctor.trial import Trial
from kit.clusters.system import Ask

GB = 1_000_000_000
GOOD = {
    "torch": "2.13.0+cpu",
    "bokeh": "3.9.2",
    "jupyter_bokeh": "4.1.0",
    **dict.fromkeys(software.NEEDED, "99"),
}


def test_a_complaint_without_a_fix_cannot_be_made() -> None:
    with pytest.raises(TypeError, match="fix"):
        problem("not installed")  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("running", "system", "status"),
    [((3, 11, 7), "linux", "ok"), ((3, 10, 12), "linux", "problem"), ((3, 13, 0), "darwin", "problem")],
)
def test_python(running: tuple[int, ...], system: str, status: str) -> None:
    assert software.python(running, system).status == status


@pytest.mark.parametrize(
    ("versions", "status", "words"),
    [
        ({"torch": "2.13.0+cpu"}, "ok", "2.13.0"),
        ({"torch": "99.1"}, "note", "torch 99.1 was never tried with Lockstep; tried: "),
        ({"torch": "2.6.0"}, "problem", "2.8 or newer"),
        ({}, "problem", "not"),
    ],
)
def test_torch(versions: dict[str, str], status: str, words: str) -> None:
    found = software.torch(versions.get)
    assert found.status == status and words in found.found
    assert (status == "problem") == bool(found.fix)


def test_libraries_names_what_is_missing_and_what_is_old_in_one_command() -> None:
    assert software.libraries(GOOD.get).status == "ok"
    worse = {**GOOD, "ipywidgets": "7.7", "psutil": None}
    found = software.libraries(worse.get)
    assert found.status == "problem" and "not here: psutil" in found.found and "too old: ipywidgets 7.7" in found.found
    assert "'psutil>=5.9' 'ipywidgets>=8.1.5'" in found.fix


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({}, "ok"),
        ({"bokeh": "2.4.3"}, "warning"),
        ({"jupyter_bokeh": "3.0.7"}, "warning"),
        ({"bokeh": None}, "warning"),
    ],
)
def test_plots_and_their_carrier_are_of_one_age(change: dict[str, str | None], status: str) -> None:
    assert software.bokeh({**GOOD, **change}.get).status == status


def server(root: Path, lab: str | None, **parts: str) -> software.Server:
    names = {"widgets": software.WIDGETS, "bokeh": software.BOKEH, "anywidget": software.ANYWIDGET}
    for part, version in parts.items():
        folder = root / "share/jupyter/labextensions" / names[part]
        folder.mkdir(parents=True)
        (folder / "package.json").write_text(json.dumps({"version": version}))
    if lab:
        (root / f"lib/python3.12/site-packages/jupyterlab-{lab}.dist-info").mkdir(parents=True)
        (root / "lib/python3.12/site-packages/jupyterlab_pygments-0.3.0.dist-info").mkdir(parents=True)
    return software.environment(root, pid=7)


@pytest.fixture
def no_shared_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(software, "_shared", list)
    monkeypatch.setattr(software, "installed", {"jupyter_bokeh": "4.1.0"}.get)


@pytest.mark.usefixtures("no_shared_parts")
@pytest.mark.parametrize(
    ("lab", "parts", "status", "words"),
    [
        ("4.6.6", {"widgets": "5.0.16", "bokeh": "4.1.0"}, "ok", "no anywidget (not needed)"),
        ("4.6.6", {"widgets": "5.0.16", "bokeh": "4.1.0", "anywidget": "0.9"}, "ok", "anywidget 0.9"),
        ("4.6.6", {"widgets": "5.0.16"}, "warning", "no jupyter_bokeh: the panels use pictures"),
        ("4.6.6", {"widgets": "5.0.16", "bokeh": "3.0.7"}, "warning", "jupyter_bokeh 3.0.7 where the kernel has 4.1.0"),
        ("4.6.6", {"bokeh": "4.1.0"}, "problem", "without the part that shows ipywidgets"),
        ("3.6.8", {"widgets": "5.0.16", "bokeh": "4.1.0"}, "warning", "older than 4.4"),
        (None, {}, "problem", "has no jupyterlab"),
    ],
)
def test_front_end_of_a_server(tmp_path: Path, lab: str, parts: dict[str, str], status: str, words: str) -> None:
    found = software.front_end([server(tmp_path, lab, **parts)])
    assert (found.status, words in found.found) == (status, True), found
    assert "the running server 7" in found.found
    assert (str(tmp_path) in found.fix) == (status != "ok"), "the fix is for the server's environment, not this one"


@pytest.mark.usefixtures("no_shared_parts")
def test_the_worst_server_decides_and_no_server_is_a_problem(tmp_path: Path) -> None:
    good = server(tmp_path / "good", "4.6.6", widgets="5.0.16", bokeh="4.1.0")
    bad = server(tmp_path / "bad", "4.6.6")
    assert software.front_end([good, bad]).status == software.front_end([bad, good]).status == "problem"
    assert software.front_end([]).status == "problem"


def test_memory_is_held_against_what_is_needed() -> None:
    assert host.enough_memory(4, (16 * GB, 12 * GB)).status == "ok"
    assert host.enough_memory(4, (2 * GB, int(1.8 * GB))).status == "ok", "Binder's limit is enough for the labs"
    assert host.enough_memory(4, (2 * GB, int(1.1 * host.need(4)))).status == "warning"
    little = host.enough_memory(16, (2 * GB, host.need(8)))
    assert little.status == "problem" and "ask for 8 ranks" in little.fix
    assert "a larger machine" in host.enough_memory(2, (GB, GB // 4)).fix


def test_cores() -> None:
    assert host.cores(4, 8).status == "ok"
    assert "take turns" in host.cores(4, 1).found


CARDS = "0, GPU-aa, NVIDIA A100-SXM4-40GB, 40960, {used}\n1, GPU-bb, NVIDIA A100-SXM4-40GB, 40960, 3\n"


def smi(used: str, apps: str = "") -> Ask:
    return lambda command: apps if "compute-apps" in command[1] else CARDS.format(used=used)


def test_gpus_and_who_else_uses_them() -> None:
    assert host.gpus(smi("3"), Path("/nowhere")).status == "ok"
    free = host.gpus(smi("3"))
    assert free.status == "ok" and "GPU 1: NVIDIA A100-SXM4-40GB, 3 of 40960 MB in use" in free.found
    little = host.gpus(smi("600", "GPU-aa, 4711, 590\n"))
    assert little.status == "note" and "process 4711 on GPU 0 (590 MB)" in little.found
    busy = host.gpus(smi("30000", "GPU-aa, 4711, 29900\n"))
    assert busy.status == "warning" and "GPU 0" in busy.fix and "CUDA_VISIBLE_DEVICES" in busy.fix
    assert host.gpus(smi("[N/A]")).status == "ok"


def test_gpus_that_nvidia_smi_does_not_tell_of(tmp_path: Path) -> None:
    def silent(command: tuple[str, ...], seconds: float = 4.0) -> None:
        return None

    assert host.gpus(silent, tmp_path).status == "note"
    for number, gpu in enumerate(("0", "0", "51234", "40213")):  # two processors, two GPUs
        node = tmp_path / "sys/class/kfd/kfd/topology/nodes" / str(number)
        node.mkdir(parents=True)
        (node / "gpu_id").write_text(f"{gpu}\n")
    amd = host.gpus(silent, tmp_path)
    assert amd.status == "ok" and amd.found.startswith("GPU 0 to 1, of AMD: torch's build for ROCm")
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/nvidia0").touch()
    broken = host.gpus(silent, tmp_path)
    assert broken.status == "warning" and broken.found.startswith("GPU 0: ") and "--gpus all" in broken.fix


def test_what_nccl_left_in_shared_memory(tmp_path: Path) -> None:
    (tmp_path / "somebody-elses").write_bytes(b"x")
    assert leftovers.shared_memory(tmp_path, living=False).status == "ok"
    for name in ("nccl-aB3xyz", "nccl-cD4xyz"):
        (tmp_path / name).write_bytes(bytes(1_000_000))
    found = leftovers.shared_memory(tmp_path, living=False)
    assert found.status == "warning" and "nccl-aB3xyz" in found.found and "2 MB" in found.found
    assert found.fix.endswith(f"rm {tmp_path}/nccl-*")
    assert leftovers.shared_memory(tmp_path, living=True).status == "ok", "they may be on their way"


def test_links_are_grouped_by_kind() -> None:
    assert host.links({}).status == "note"
    found = host.links({(0, 1): "NVLink, 4 links", (1, 0): "NVLink, 4 links", (0, 2): "PCIe through the CPU"})
    assert found.found == "NVLink, 4 links: GPUs 0-1; PCIe through the CPU: GPUs 0-2"


@pytest.mark.parametrize(
    ("up", "environment", "status"),
    [
        ({"lo": True, "eth0": True}, {}, "ok"),
        ({"lo": True}, {"GLOO_SOCKET_IFNAME": "eth0"}, "note"),
        ({"lo": True}, {"NCCL_P2P_DISABLE": "1"}, "note"),
        ({"lo": False, "eth0": True}, {}, "problem"),
        ({"eth0": True}, {}, "problem"),
    ],
)
def test_interface(up: dict[str, bool], environment: dict[str, str], status: str) -> None:
    assert host.interface(up, environment).status == status


def test_ports_can_be_listened_on_here_and_an_address_that_is_not_ours_is_a_problem() -> None:
    assert host.ports(4).status in ("ok", "warning")
    assert host.ports(4, "192.0.2.1").status == "problem"  # an address of the documentation, never this host's


def test_run_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = host.run_folder(str(tmp_path))
    assert (found.status, "mode 700" in found.found) == ("ok", True) or "too long a name" in found.found
    assert not list(tmp_path.iterdir()), "it was not removed"
    long = tmp_path / ("x" * 100)
    long.mkdir()
    refused = host.run_folder(str(long))
    assert "too long a name" in refused.found and refused.fix.startswith("Name a folder of your own")
    assert host.run_folder(str(tmp_path / "gone")).status == "problem"


def test_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert host.home(str(tmp_path)).status in ("ok", "warning")
    gone = host.home(str(tmp_path / "gone"))
    assert gone.status == "problem" and "JUPYTER_RUNTIME_DIR" in gone.fix
    monkeypatch.setattr(host, "why_not_writable", lambda folder: "Read-only file system")
    for name in ("JUPYTER_RUNTIME_DIR", "IPYTHONDIR"):
        monkeypatch.delenv(name, raising=False)
    assert host.home(str(tmp_path)).status == "problem"
    for name in ("JUPYTER_RUNTIME_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(name, "/tmp")
    assert host.home(str(tmp_path)).status == "note"


@pytest.mark.parametrize("name", ["torch.py", "html.py", "kit.py"])
def test_a_file_that_hides_a_library_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "mine.py").touch()
    assert host.working_folder(tmp_path).status == "ok"
    (tmp_path / name).touch()
    found = host.working_folder(tmp_path)
    assert found.status == "warning" and f"Rename {name}" in found.fix


def test_leftovers_are_named_and_how_to_end_them() -> None:
    mine, other = Member(11, "/tmp/lockstep-a", False), Member(12, "/tmp/lockstep-b", True)
    assert leftovers.leftovers([]).found == "none; no cluster of yours runs"
    assert leftovers.leftovers([mine]).found == "none; 1 cluster of yours runs"
    found = leftovers.leftovers([mine, other])
    assert found.status == "warning" and "kill -9 12" in found.fix and "11" not in found.fix


def test_only_our_own_command_lines_are_recognised() -> None:
    boot = "/opt/x/kit/clusters/boot.py"
    agent = ["python", "-P", boot, "agent", "/tmp/lockstep-a/agent.json", "77"]
    controller = ["python", "-P", boot, "controller", "1", "--profile-dir=/tmp/lockstep-a/profile"]
    assert leftovers.folder_of(agent) == leftovers.folder_of(controller) == "/tmp/lockstep-a"
    for other in ([], ["vim", boot], ["python", "boot.py", "agent", "x"], ["python", boot, "dance", "/tmp/x/y"]):
        assert leftovers.folder_of(other) is None, other


def test_a_number_that_belongs_to_another_process_by_now_is_not_killed() -> None:
    assert leftovers.end([Member(os.getpid(), "/tmp/lockstep-gone", True), Member(1, "/tmp/lockstep-gone", True)]) == ()


def allocated(**change: object) -> Allocation:
    facts = {"scheduler": "PBS", "job": "4711", "hosts": ("n0",), "slots": 4, "ends": 1e12, **change}
    return Allocation(**facts)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("found", "status", "words"),
    [
        (None, "ok", "none"),
        (allocated(), "ok", "PBS job 4711 on 1 host"),
        (allocated(ends=None), "note", "its end is not told"),
        (allocated(ends=0.0), "warning", "0 s left"),
        (allocated(hosts=("n0", "n1")), "note", "the 4 ranks of a cluster live on this host alone"),
        (allocated(hosts=("n7", "n8")), "warning", "this host is n0.site"),
    ],
)
def test_batch_job(found: Allocation | None, status: str, words: str) -> None:
    said = host.job(4, lambda: found, host="n0.site")
    assert (said.status, words in said.found) == (status, True), said


TRIED = Trial(4, 1.4, 0.0009, True, "gloo", ("cpu",) * 4, "torch 2.13.0+cpu", ("gloo",))


def test_real_ranks() -> None:
    from dataclasses import replace

    assert trial.ranks(TRIED).found == "4 ranks on cpu up in 1.4 s; an all-reduce over gloo takes 0.9 ms"
    assert trial.ranks(replace(TRIED, right=False)).status == "problem"
    refused = trial.ranks(Trial(4, refusal="rank 1 was lost during the start:\nRuntimeError: no device"))
    assert refused.status == "problem" and "RuntimeError: no device" in refused.found and "--json" in refused.fix
    assert trial.backends(TRIED).status == "ok"
    assert trial.backends(TRIED, has_gpus=True).status == "warning", "a GPU that this build of torch cannot use"
    assert trial.backends(replace(TRIED, backends=())).status == "problem"
    assert trial.backends(Trial(4, refusal="no")).status == "note"
