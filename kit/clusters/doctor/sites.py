"""Machines that are known: what their centres say of limits, proxies, versions and plug-ins, each line with its source.

What can be looked at is looked at (`host`, `software`); this table has what a person there needs to be told besides.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kit.clusters.doctor.finding import Finding, note, ok, warning
from kit.clusters.doctor.software import Version, installed, older


@dataclass(frozen=True, slots=True)
class Known:
    """A line of the table, and the page that says so."""

    said: str
    source: str

    def __str__(self) -> str:
        return self.said


@dataclass(frozen=True, slots=True)
class Site:
    """A machine, how it is told from others, and what is known of it. None: nothing is, or nothing is to be done."""

    name: str
    centre: str
    login: str  # what the name of a login node begins with
    marks: Mapping[str, str]  # variables of its environment, and what their value begins with
    node: Known  # one node's devices
    batch: Known  # how to ask for a node for an hour
    limits: Known | None = None  # of one person on a login node
    software: Known | None = None  # where its own torch is
    torch: tuple[str, str] | None = None  # the version of that torch, and what its build's name must have
    proxy: Known | None = None  # without which nothing outside can be reached from a node
    plugin: Known | None = None  # what its modules set, and what to do where that gets in the way
    home: Known | None = None


_ALCF = "https://docs.alcf.anl.gov"
_PROXY = Known("http://proxy.alcf.anl.gov:3128", f"{_ALCF}/aurora/getting-started-on-aurora/#proxy")

SITES = (
    Site(
        "Polaris",
        "ALCF",
        login="polaris-login",
        marks={"PBS_O_HOST": "polaris"},
        node=Known("4 A100 of 40 GB, NVLink", f"{_ALCF}/polaris/hardware-overview/machine-overview/"),
        batch=Known(
            "qsub -I -q debug -l select=1 -l walltime=1:00:00 -l filesystems=home:eagle -A PROJECT",
            f"{_ALCF}/polaris/running-jobs/",  # debug: 1 or 2 nodes, an hour at most
        ),
        limits=Known("8 cores and 8 GB of memory for each user", f"{_ALCF}/polaris/system-updates/"),  # 2024-04-22
        software=Known(
            "module use /soft/modulefiles; module load conda; conda activate (torch 2.8, NCCL 2.28.3)",
            f"{_ALCF}/polaris/system-updates/",
        ),
        torch=("2.8", "cu"),  # conda/2025-09-25, the default since 2025-10-24
        proxy=_PROXY,
        plugin=Known(
            "its conda module sets NCCL_NET='AWS Libfabric', which one node does without: "
            "unset NCCL_NET NCCL_NET_GDR_LEVEL NCCL_CROSS_NIC NCCL_COLLNET_ENABLE",
            f"{_ALCF}/polaris/applications-and-libraries/libraries/nccl/",
        ),
    ),
    Site(
        "Aurora",
        "ALCF",
        login="aurora-uan",
        marks={"PBS_O_HOST": "aurora"},
        node=Known(
            "6 Intel Max 1550 of two tiles, 12 devices for torch unless ZE_FLAT_DEVICE_HIERARCHY=COMPOSITE",
            f"{_ALCF}/aurora/data-science/frameworks/pytorch/",
        ),
        batch=Known(
            "qsub -I -q debug -l select=1 -l walltime=1:00:00 -l filesystems=home:flare -A PROJECT",
            f"{_ALCF}/aurora/running-jobs-aurora/",
        ),
        software=Known("module load frameworks", f"{_ALCF}/aurora/getting-started-on-aurora/#python-on-aurora"),
        proxy=_PROXY,
    ),
    Site(
        "Perlmutter",
        "NERSC",
        login="login",
        marks={"NERSC_HOST": "perlmutter"},
        node=Known("4 A100 of 40 or 80 GB, NVLink", "https://docs.nersc.gov/systems/perlmutter/architecture/"),
        batch=Known(
            "salloc -N 1 -C gpu -q interactive -t 1:00:00 -A PROJECT", "https://docs.nersc.gov/jobs/interactive/"
        ),
        limits=Known(
            "56 GB of memory and half of the processor time for each user",
            "https://docs.nersc.gov/policies/resource-usage/",
        ),
        software=Known("module load pytorch", "https://docs.nersc.gov/machinelearning/pytorch/"),
        torch=("2.6", "cu"),
    ),
    Site(
        "Frontier",
        "OLCF",
        login="login",
        marks={"LMOD_SYSTEM_NAME": "frontier"},
        node=Known(
            "4 MI250X of two dies, 8 devices of 64 GB", "https://docs.olcf.ornl.gov/systems/frontier_user_guide.html"
        ),
        batch=Known("salloc -N 1 -t 1:00:00 -A PROJECT", "https://docs.olcf.ornl.gov/systems/frontier_user_guide.html"),
        software=Known(
            "pip install torch, of the index for ROCm, in an environment of your own",
            "https://docs.olcf.ornl.gov/software/python/pytorch_frontier.html",
        ),
        torch=("2.6", "rocm"),
        proxy=Known(
            "http://proxy.ccs.ornl.gov:3128/",
            "https://docs.olcf.ornl.gov/software/python/pytorch_frontier.html#proxy-settings",
        ),
        home=Known(
            "home is read-only on compute nodes: work in $MEMBERWORK, and set HOME to a folder there",
            "https://warpx.readthedocs.io/en/latest/install/hpc/frontier.html",
        ),
    ),
)


def site(environment: Mapping[str, str] = os.environ, host: str = "") -> Site | None:
    """The machine this process is on; None for one that is not known."""
    name = host or platform.node()
    for known in SITES:
        if any(environment.get(mark, "").lower().startswith(value) for mark, value in known.marks.items()):
            return known
        if known.login != "login" and name.startswith(known.login):
            return known
    return None


def on_login_node(known: Site, host: str = "") -> bool:
    return (host or platform.node()).startswith(known.login)


def machine(environment: Mapping[str, str] = os.environ, host: str = "") -> Finding:
    """Which machine this is, and whether it is a place to run ranks."""
    known = site(environment, host)
    if known is None:
        return ok("none of those that are known by name")
    where = f"{known.name} ({known.centre})"
    if on_login_node(known, host):
        limits = f", {known.limits}" if known.limits else ""
        return warning(f"a login node of {where}{limits}", f"Ask for a node: {known.batch}")
    extra = [str(line) for line in (known.plugin, known.home) if line is not None]
    if known.plugin is not None and "NCCL_NET" not in environment:
        extra.remove(str(known.plugin))
    said = "; ".join([f"a node of {where}: {known.node}", *extra])
    return note(said) if extra else ok(said)


def outside(environment: Mapping[str, str] = os.environ, host: str = "") -> Finding:
    """The labs need no network; installing, and one of the texts to train on, do."""
    known = site(environment, host)
    if known is None or known.proxy is None or on_login_node(known, host):
        return ok("nothing to set: the labs need no network")
    named = environment.get("https_proxy") or environment.get("HTTPS_PROXY")
    if named:
        return ok(f"through {named}")
    return note(
        f"nodes of {known.name} reach nothing outside without a proxy, and the labs need nothing; for pip: "
        f"export http_proxy={known.proxy} https_proxy={known.proxy}"
    )


def own_torch(of: Version = installed, environment: Mapping[str, str] = os.environ, host: str = "") -> Finding:
    """The machine has a torch for its devices; another one may not be able to use them."""
    known, found = site(environment, host), of("torch")
    if known is None or known.torch is None or known.software is None or found is None:
        return ok("nothing is known of a torch of this machine's own")
    version, build = known.torch
    said = f"torch {found}, and {known.name} has one for its devices: {known.software}"
    if "+" in found and build not in found.partition("+")[2]:
        return warning(f"{said}; this build is not for them", f"Use its own: {known.software}")
    if older(found, version):
        return note(f"{said}; {version} or later")
    return ok(said)


def questions() -> Mapping[str, Callable[[], Finding]]:
    return {"machine": machine, "its torch": own_torch, "outside": outside}
