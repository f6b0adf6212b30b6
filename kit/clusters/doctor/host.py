"""The machine under the ranks: cores, memory, GPUs, the network within it, its folders, the batch job it is lent to."""

from __future__ import annotations

import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import psutil

from kit.clusters import needs
from kit.clusters.allocation import Allocation, allocation
from kit.clusters.doctor.finding import Finding, note, ok, problem, sentence, warning
from kit.clusters.errors import Lacking
from kit.clusters.folder import RunFolder
from kit.clusters.links import INTERFACE, gpu_topology
from kit.clusters.request import LOOPBACK, RANK_BYTES
from kit.clusters.system import Ask, ask, memory, read
from kit.clusters.system import tasks as task_limit
from kit.trace.text import counted, size_text

# Measured, shares of shared pages included: tests/benchmarks/bench_cluster.py and the card of a cluster say more.
LAB_SERVER = 150_000_000
KERNEL = 200_000_000  # with the widgets, plots and torch's values in it
AGENT = 260_000_000  # torch imported once, the controller and its heart monitor
OPTIMIZER = 75_000_000  # torch._dynamo, which the first optimizer loads
BUSY = 0.1  # the part of a GPU's memory from which somebody else's use matters
_WISHES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "GLOO_DEVICE_TRANSPORT", "NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE")
# counted: 11 of a cluster and 12 of each rank on the CPU; JupyterLab, a kernel, a shell; with CUDA 8 more of a rank
TASKS, TASKS_PER_RANK = 40, 20
BUILT_IN_NETWORKS = ("", "ib", "socket")  # of nccl itself
ROOM = 50_000_000  # bytes that notebooks, their checkpoints and a cluster's files want
LIBRARIES = frozenset(
    ("torch", "numpy", "kit", "bokeh", "ipywidgets", "ipyparallel", "ipykernel", "IPython", "jupyter_bokeh", "zmq")
    + ("tornado", "traitlets", "psutil", "cloudpickle", "mermaid", "papermill", "nbformat")
)


def cores(ranks: int, count: int | None = None) -> Finding:
    usable = len(os.sched_getaffinity(0)) if count is None else count
    found = counted(usable, "core")
    if usable < ranks:
        return note(f"{found} for {ranks} ranks: they take turns, so times say little about speed")
    return ok(f"{found} for {ranks} ranks")


def need(ranks: int) -> int:
    """Bytes that JupyterLab, one notebook and its ranks want."""
    return LAB_SERVER + KERNEL + AGENT + OPTIMIZER + ranks * RANK_BYTES


def enough_memory(ranks: int, has: tuple[int, int] | None = None) -> Finding:
    """Against what is free, and against the limit of a container or a batch job where there is one."""
    total, available = has or memory()
    wanted = need(ranks)
    found = (
        f"{available / 1e9:.1f} of {total / 1e9:.1f} GB free; JupyterLab, a notebook and {ranks} ranks take about "
        f"{wanted / 1e9:.1f} GB"
    )
    if available < wanted:
        spare = available - need(0)
        fewer = f"ask for {max(1, spare // RANK_BYTES)} ranks" if spare > RANK_BYTES else "use a larger machine"
        return problem(found, f"Close other notebooks and programs, or {fewer}.")
    if available < 1.3 * wanted:
        return warning(found, "Keep one notebook open at a time: each has ranks of its own.")
    return ok(found)


def gpus(answer: Ask = ask, root: Path = Path("/")) -> Finding:
    """Which GPUs there are; of NVIDIA's, which processes hold their memory. root: where dev and sys are looked for."""
    told = answer(
        ("nvidia-smi", "--query-gpu=index,uuid,name,memory.total,memory.used", "--format=csv,noheader,nounits")
    )
    if told is None:
        return _others(root)
    cards = _cells(told)
    if not cards:
        return note("nvidia-smi lists no GPU: ranks compute on the CPU, over gloo")
    users = answer(("nvidia-smi", "--query-compute-apps=gpu_uuid,pid,used_memory", "--format=csv,noheader,nounits"))
    words = [f"GPU {index}: {name}, {used} of {total} MB in use" for index, _, name, total, used in cards]
    number = {card[1]: card[0] for card in cards}
    busy = [f"process {pid} on GPU {number.get(uuid, '?')} ({used} MB)" for uuid, pid, used in _cells(users or "")]
    full = [index for index, _, _, total, used in cards if _share(used, total) > BUSY]
    found = "; ".join([*words, f"others: {', '.join(busy)}" if busy else "no other process computes on them"])
    if full:
        fix = f"End what uses GPU {', '.join(full)}, or leave it out with CUDA_VISIBLE_DEVICES."
        return warning(found, fix)
    return note(found) if busy else ok(found)


def _others(root: Path) -> Finding:
    """What nvidia-smi does not tell of: those whose driver does not answer, and AMD's, as the kernel lists them."""
    mute = sorted(path.name for path in (root / "dev").glob("nvidia[0-9]*"))
    if mute:
        return warning(
            f"GPU {', '.join(name.removeprefix('nvidia') for name in mute)}: there are files for them in /dev, and "
            "nvidia-smi is not here or gets no answer: ranks compute on the CPU, over gloo",
            "Run nvidia-smi and read what it says; in a container, start it with its GPUs (--gpus all, --nv).",
        )
    nodes = (root / "sys/class/kfd/kfd/topology/nodes").glob("*/gpu_id")  # 0 for a CPU
    amd = sum(read(node).strip() not in ("", "0") for node in nodes)
    if amd:
        return ok(f"GPU 0 to {amd - 1}, of AMD: torch's build for ROCm calls them cuda, and their nccl is RCCL")
    return note("nvidia-smi is not here or finds none: ranks compute on the CPU, over gloo")


def _share(used: str, total: str) -> float:
    try:
        return float(used) / float(total)
    except (ValueError, ZeroDivisionError):  # '[N/A]' on machines where the CPU's memory is the GPU's
        return 0.0


def _cells(table: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split(",")] for line in table.splitlines() if "," in line]


def links(topology: dict[tuple[int, int], str] | None = None) -> Finding:
    pairs = gpu_topology() if topology is None else topology
    if not pairs:
        return note("no two GPUs to link: ranks meet in this host's memory, over lo")
    kinds: dict[str, list[str]] = {}
    for (one, other), kind in sorted(pairs.items()):
        if one < other:
            kinds.setdefault(kind, []).append(f"{one}-{other}")
    return ok("; ".join(f"{kind}: GPUs {', '.join(where)}" for kind, where in kinds.items()))


def interface(found: Mapping[str, bool] | None = None, environment: Mapping[str, str] = os.environ) -> Finding:
    """gloo and nccl are told to use loopback; by themselves they may choose one that leaves the machine.

    found: which interfaces there are, and whether they are up.
    """
    up = found if found is not None else {name: stats.isup for name, stats in psutil.net_if_stats().items()}
    others = ", ".join(sorted(set(up) - {INTERFACE})) or "none"
    if not up.get(INTERFACE):
        state = "is down" if INTERFACE in up else "does not exist"
        fix = f"Bring it up as the administrator: ip link set {INTERFACE} up."
        return problem(f"{INTERFACE} {state}; others: {others}", fix)
    said = f"gloo and nccl take {INTERFACE}, which stays on this host; others: {others}"
    wishes = [f"{name}={environment[name]}" for name in _WISHES if name in environment]
    unheard = [wish for wish in wishes if "IFNAME" in wish]
    if unheard:
        return note(f"{said}; inside a cluster {' and '.join(unheard)} is overruled")
    if wishes:
        return note(f"{said}; the ranks inherit {' and '.join(wishes)}")
    return ok(said)


def open_files(ranks: int) -> Finding:
    try:
        limit = needs.open_files(ranks)
    except Lacking as refused:
        return problem(refused.found, sentence(refused.fix))
    return ok(f"a process may have {limit} open")


def tasks(ranks: int, limit: tuple[int, int] | None | Literal["look"] = "look") -> Finding:
    """Processes and threads: login nodes often allow a hundred or so."""
    found = task_limit() if limit == "look" else limit
    need = TASKS + TASKS_PER_RANK * ranks
    if found is None:
        return ok(f"as many as wanted; {ranks} ranks have about {need} threads")
    most, used = found
    said = f"{most} processes and threads are allowed, {used} are there; JupyterLab and {ranks} ranks have about {need}"
    if most - used < need:
        fewer = (most - used - TASKS) // TASKS_PER_RANK
        ask_for = f"ask for {counted(fewer, 'rank')}" if fewer > 0 else "work on a node of a batch job"
        return problem(said, f"End other programs of yours, or {ask_for}.")
    return ok(said)


def plugins(environment: Mapping[str, str] = os.environ, folders: Sequence[Path] | None = None) -> Finding:
    """A network that nccl is told to use and that no library here has: it then refuses to start, on one host too."""
    network, plugin = environment.get("NCCL_NET", ""), environment.get("NCCL_NET_PLUGIN", "")
    if network.lower() in BUILT_IN_NETWORKS and plugin.lower() in ("", "none"):
        return ok("nccl is told of none" if not network else f"NCCL_NET={network} needs none")
    named = f"NCCL_NET={network!r}" if network else f"NCCL_NET_PLUGIN={plugin!r}"
    # NVIDIA, NCCL user guide, NCCL_NET_PLUGIN: a suffix, or the name of a library; RCCL looks for its own name first
    names = [f"{library}-net{end}.so" for library in ("libnccl", "librccl") for end in (f"-{plugin}", "", "-ofi")]
    places = _library_folders(environment) if folders is None else folders
    there = [place / name for place in places for name in (plugin, *names) if name and (place / name).is_file()]
    if there:
        return ok(f"{named}: {there[0]}")
    if not network:
        return note(f"{named}, and no such library is here: nccl goes on without it")
    return warning(
        f"{named}, and none of {', '.join(names[1:2])} or its like is in LD_LIBRARY_PATH: nccl does not start",
        "Within one host it is not needed: unset NCCL_NET NCCL_NET_PLUGIN. Or add its folder to LD_LIBRARY_PATH.",
    )


def _library_folders(environment: Mapping[str, str]) -> list[Path]:
    """Where the loader looks, as far as names tell: what ldconfig keeps lies in the usual ones."""
    named = [Path(entry) for entry in environment.get("LD_LIBRARY_PATH", "").split(os.pathsep) if entry]
    usual = ("/usr/local/lib", "/usr/lib64", "/lib64", "/usr/lib", f"/usr/lib/{platform.machine()}-linux-gnu")
    return [*named, *map(Path, usual)]


def ports(ranks: int, address: str = LOOPBACK) -> Finding:
    """Listens on loopback and talks to itself, as controller and ranks do."""
    try:
        needs.ports(ranks, address)
    except Lacking as refused:
        return problem(refused.found, sentence(refused.fix))
    first, last = _range()
    found = f"listening on {address} works; ports are taken from {first} to {last}"
    if last - first < 200:
        fix = "Widen the range as the administrator: sysctl net.ipv4.ip_local_port_range='32768 60999'."
        return warning(found, fix)
    return ok(found)


def _range() -> tuple[int, int]:
    with open("/proc/sys/net/ipv4/ip_local_port_range") as file:
        first, last = file.read().split()
    return int(first), int(last)


def run_folder(parent: str | None = None) -> Finding:
    """Makes one as a cluster would, and removes it."""
    try:
        folder = RunFolder(parent)
    except Lacking as refused:
        return problem(refused.found, sentence(refused.fix))
    try:
        mode = folder.path.stat().st_mode & 0o777
        length = len(os.fsencode(folder.socket))
        free = shutil.disk_usage(folder.path).free
    finally:
        folder.remove()
    where = str(folder.path.parent)
    found = f"{where}: mode {mode:o}, {size_text(free)} free, a socket's path has {length} of 107 characters"
    if mode != 0o700:
        fix = "Use a folder on a file system that keeps modes: kit.cluster(folder='/tmp')."
        return problem(f"{found}; others could look into it", fix)
    if free < ROOM:
        fix = f"Make room in {where}, or set TMPDIR to a folder with some."
        return warning(found, fix)
    return ok(found)


def home(path: str | None = None) -> Finding:
    """Jupyter keeps connection files, settings and the trust of notebooks in the home folder."""
    folder = Path(path if path is not None else os.path.expanduser("~"))
    fix = (
        "Before starting Jupyter: export HOME=$(mktemp -d), or set JUPYTER_RUNTIME_DIR, JUPYTER_DATA_DIR, "
        "JUPYTER_CONFIG_DIR and IPYTHONDIR to folders that can be written to."
    )
    if not folder.is_absolute() or not folder.is_dir():
        return problem(f"there is no folder {str(folder)!r}", fix)
    refusal = why_not_writable(folder)
    if refusal:
        redirected = all(os.environ.get(name) for name in ("JUPYTER_RUNTIME_DIR", "IPYTHONDIR"))
        found = f"{folder} cannot be written to ({refusal})"
        if redirected:
            return note(f"{found}; JUPYTER_RUNTIME_DIR and IPYTHONDIR lead elsewhere")
        return problem(found, fix)
    free = shutil.disk_usage(folder).free
    if free < ROOM:
        return warning(f"{folder}: {size_text(free)} free", f"Make room in {folder}.")
    return ok(f"{folder}: can be written to, {size_text(free)} free")


def working_folder(folder: Path | None = None) -> Finding:
    """Notebooks import from the folder they lie in first: a torch.py there hides torch from them."""
    try:
        here = folder or Path.cwd()
    except FileNotFoundError:
        return problem("it was deleted", "Change to a folder that exists: cd")
    hiding = sorted(name for name in here.iterdir() if _hides(name)) if os.access(here, os.R_OK) else []
    if hiding:
        names = ", ".join(path.name for path in hiding)
        fix = f"Rename {names}: notebooks in this folder would import it instead of the library of that name."
        return warning(f"{here} holds {names}", fix)
    refusal = why_not_writable(here)
    if refusal:
        fix = "Work in another folder: lockstep lab --dir FOLDER."
        return warning(f"{here} cannot be written to ({refusal})", fix)
    return ok(f"{here}: can be written to, hides no library")


def _hides(path: Path) -> bool:
    if path.suffix == ".py":
        return path.stem in LIBRARIES or path.stem in sys.stdlib_module_names
    is_package = path.is_dir() and (path / "__init__.py").exists()
    # the checkout of Lockstep itself is a folder one works in
    return is_package and (path.name in LIBRARIES - {"kit"} or path.name in sys.stdlib_module_names)


def why_not_writable(folder: Path) -> str:
    """'' when a file can be made and filled there, else the system's reason. Asking is not enough on a full disk."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"lockstep" * 8192)
            file.flush()
    except OSError as refused:
        return refused.strerror or type(refused).__name__
    return ""


def job(ranks: int, ask: Callable[[], Allocation | None] = allocation, host: str = platform.node()) -> Finding:
    found = ask()
    if found is None:
        return ok("none: neither PBS nor Slurm started this")
    said = str(found)
    if found.slots:
        said += f"; it offers {found.slots} processes"
    if found.warning():
        return warning(said, f"Ask for a new one: {found.warning()}.")
    short = {name.partition(".")[0] for name in found.hosts}
    if found.hosts and host.partition(".")[0] not in short:
        fix = f"Start Jupyter on a host of the job ({', '.join(found.hosts[:3])}): this one is not part of it."
        return warning(f"{said}; this host is {host}", fix)
    if len(found.hosts) > 1:
        return note(f"{said}; the {ranks} ranks of a cluster live on this host alone")
    if found.ends is None:
        return note(said)
    return ok(said)
