"""Machines that are known by name, in environments made up after theirs; limits and plug-ins that are looked at."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from kit.clusters import system
from kit.clusters.doctor import host, sites
from kit.clusters.doctor.sites import SITES, Known

POLARIS = {"PBS_O_HOST": "polaris-login-02.hsn.cm.polaris.alcf.anl.gov"}
AURORA = {"PBS_O_HOST": "aurora-uan-0010.hostmgmt1000.cm.aurora.alcf.anl.gov"}
PERLMUTTER = {"NERSC_HOST": "perlmutter"}
FRONTIER = {"LMOD_SYSTEM_NAME": "frontier"}


def test_every_line_of_the_table_names_the_page_it_is_from() -> None:
    for site in SITES:
        lines = [line for name in site.__slots__ if isinstance(line := getattr(site, name), Known)]
        assert len(lines) >= 4 and site.marks
        assert all(line.said and line.source.startswith("https://") for line in lines), site.name
    assert [site.name for site in SITES] == ["Polaris", "Aurora", "Perlmutter", "Frontier"]


@pytest.mark.parametrize(
    ("environment", "node", "name"),
    [
        (POLARIS, "x3005c0s7b0n0", "Polaris"),
        ({}, "polaris-login-04", "Polaris"),
        (AURORA, "x4001c3s0b0n0", "Aurora"),
        ({}, "aurora-uan-0009", "Aurora"),
        (PERLMUTTER, "nid001234", "Perlmutter"),
        (FRONTIER, "frontier04321", "Frontier"),
        ({}, "login17", None),  # as machines anywhere are called
        ({"NERSC_HOST": "muller"}, "nid001234", None),
        ({}, "laptop", None),
    ],
)
def test_a_machine_is_told_by_its_environment_or_its_name(
    environment: Mapping[str, str], node: str, name: str | None
) -> None:
    found = sites.site(environment, node)
    assert (found and found.name) == name


@pytest.mark.parametrize(
    ("environment", "node", "status", "words"),
    [
        (POLARIS, "polaris-login-02", "warning", "8 cores and 8 GB"),
        (PERLMUTTER, "login17", "warning", "56 GB of memory"),
        (POLARIS, "x3005c0s7b0n0", "ok", "4 A100 of 40 GB"),
        ({**POLARIS, "NCCL_NET": "AWS Libfabric"}, "x3005c0s7b0n0", "note", "unset NCCL_NET"),
        (AURORA, "x4001c3s0b0n0", "ok", "12 devices for torch"),
        (FRONTIER, "frontier04321", "note", "home is read-only"),
        ({}, "laptop", "ok", "none of those"),
    ],
)
def test_a_login_node_is_no_place_for_ranks(environment: Mapping[str, str], node: str, status: str, words: str) -> None:
    found = sites.machine(environment, node)
    assert (found.status, words in found.found) == (status, True), found
    assert bool(found.fix) == (status == "warning")
    if found.fix:
        assert found.fix.startswith("Ask for a node: ")


def test_what_is_outside_is_reached_through_the_proxy_of_the_place() -> None:
    told = sites.outside(POLARIS, "x3005c0s7b0n0")
    assert told.status == "note" and "https_proxy=http://proxy.alcf.anl.gov:3128" in told.found
    assert "proxy.ccs.ornl.gov" in sites.outside(FRONTIER, "frontier04321").found
    named = {**POLARIS, "https_proxy": "http://proxy.alcf.anl.gov:3128"}
    assert sites.outside(named, "x3005c0s7b0n0").found == "through http://proxy.alcf.anl.gov:3128"
    assert sites.outside(AURORA, "aurora-uan-0009").status == "ok", "login nodes need none"
    assert sites.outside({}, "laptop").status == "ok"


@pytest.mark.parametrize(
    ("environment", "version", "status"),
    [
        (POLARIS, "2.8.0", "ok"),
        (POLARIS, "2.8.0+cu129", "ok"),
        (POLARIS, "2.6.0+cu124", "note"),
        (POLARIS, "2.13.0+cpu", "warning"),
        (FRONTIER, "2.9.0+rocm6.4", "ok"),
        (FRONTIER, "2.9.0+cu129", "warning"),
        (AURORA, "2.10.0", "ok"),
        ({}, "2.13.0+cpu", "ok"),
        (POLARIS, None, "ok"),  # that torch is missing is said elsewhere
    ],
)
def test_a_torch_that_is_not_for_the_machines_devices(
    environment: Mapping[str, str], version: str | None, status: str
) -> None:
    found = sites.own_torch(lambda name: version, environment, "x3005c0s7b0n0")
    assert found.status == status, found
    assert ("module load conda" in found.fix) == (status == "warning" and environment is POLARIS)


@pytest.mark.parametrize(
    ("environment", "library", "status", "words"),
    [
        ({}, None, "ok", "told of none"),
        ({"NCCL_NET": "Socket"}, None, "ok", "needs none"),
        ({"NCCL_NET": "IB"}, None, "ok", "needs none"),
        ({"NCCL_NET": "AWS Libfabric"}, None, "warning", "nccl does not start"),
        ({"NCCL_NET": "AWS Libfabric"}, "libnccl-net.so", "ok", "libnccl-net.so"),
        ({"NCCL_NET": "AWS Libfabric", "NCCL_NET_PLUGIN": "ofi"}, "libnccl-net-ofi.so", "ok", "libnccl-net-ofi.so"),
        ({"NCCL_NET": "AWS Libfabric"}, "librccl-net.so", "ok", "librccl-net.so"),
        ({"NCCL_NET_PLUGIN": "ofi"}, None, "note", "goes on without it"),
        ({"NCCL_NET_PLUGIN": "none"}, None, "ok", "told of none"),
    ],
)
def test_a_plugin_that_is_named_but_missing(
    environment: dict[str, str], library: str | None, status: str, words: str, tmp_path: Path
) -> None:
    if library is not None:
        (tmp_path / library).touch()
    found = host.plugins(environment, [tmp_path])
    assert (found.status, words in found.found) == (status, True), found
    named = host.plugins({**environment, "LD_LIBRARY_PATH": f"/nowhere:{tmp_path}"})
    assert named.status == status, "it is looked for where the loader is told to"


@pytest.mark.parametrize(
    ("limit", "status", "words"),
    [
        (None, "ok", "4 ranks have about 120"),
        ((10_000, 300), "ok", "10000 processes and threads are allowed"),
        ((128, 30), "problem", "ask for 2 ranks"),
        ((128, 90), "problem", "a node of a batch job"),
    ],
)
def test_a_login_nodes_limit_of_tasks(limit: tuple[int, int] | None, status: str, words: str) -> None:
    found = host.tasks(4, limit)
    assert (found.status, words in f"{found.found} {found.fix}") == (status, True), found


def test_the_tightest_limit_of_the_control_groups_counts(tmp_path: Path) -> None:
    def write(name: str, text: str) -> None:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    write("proc/self/cgroup", "0::/user.slice/user-1000.slice/session-3.scope\n")
    write("sys/fs/cgroup/user.slice/user-1000.slice/pids.max", "12\n")
    write("sys/fs/cgroup/user.slice/user-1000.slice/pids.current", "9\n")
    write("sys/fs/cgroup/user.slice/pids.max", "max\n")
    assert system.tasks(tmp_path) == (12, 9)
    write("proc/self/cgroup", "7:pids:/slurm/job_1\n3:memory:/slurm/job_1\n")
    write("sys/fs/cgroup/pids/slurm/job_1/pids.max", "10\n")
    write("sys/fs/cgroup/pids/slurm/job_1/pids.current", "8\n")
    assert system.tasks(tmp_path) == (10, 8)
