"""Where answers run: each rank in a process of its own, behind the strongest walls that this machine gives.

The process that judges sends text and inputs there, and reads data. It never runs a line of a learner's, nor makes an
object of what it reads. Between ranks there is the broker alone, which counts what passes.
"""

from __future__ import annotations

import json
import os
import resource
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

import psutil

from kit import resources
from kit.classroom import inert, walled
from kit.clusters.processes import how_it_ended
from kit.run.errors import RankError

if TYPE_CHECKING:
    from kit.classroom.broker import Line
    from kit.classroom.handins import Answer
    from kit.grade.checker import Watching
    from kit.grade.exercise import Runner
    from kit.trace.trace import Trace

MEMORY = 1_000_000_000  # bytes: four ranks with torch, and what they talk through
MOST_OF_A_PROCESS = 8 << 30  # bytes of address space: torch alone takes two
LARGEST_FILE = 256 << 20
STARTING = 120.0  # s until its ranks stand
GRACE = 15.0  # s beyond its deadline, for the end of a run

_BESIDE = (
    "ranks that pass data to each other by files, sockets or memory of this machine are not seen to do so, and a check"
    " of traffic counts what passes through the broker alone"
)
_LENT = (
    "an answer that loads a topic's reference implementation by a way round, where ranks need that topic themselves,"
    " has the work of others in it"
)
_FORKS = "how many processes an answer starts is not limited: they end with its deadline"


class Ranks(Protocol):
    """Where answers run, one after the other; nothing of one is there for the next."""

    def runner(self, answer: Answer, deadline: float, /) -> Runner:
        """How this answer is run until the deadline, by `time.monotonic`."""


Ground = Callable[[], AbstractContextManager[Ranks]]
"""Makes ranks for one worker."""


class Ended(Exception):
    """An answer ended what it ran on; the text is a sentence."""


class OutOfTime(Ended):
    """It was still running at its deadline."""


@dataclass(frozen=True)
class Walls:
    """What stands between learners' code and everything else. not_held: sentences, for what it does not keep out."""

    name: str
    not_held: tuple[str, ...]
    ranks: Ground


def strongest(ranks: int) -> Walls:
    """The strongest walls of this machine, for so many ranks."""
    return next((made for made in (bubblewrap(ranks), namespaces(ranks)) if made is not None), plain(ranks))


def bubblewrap(ranks: int) -> Walls | None:
    """None where this machine does not allow them."""
    return _tried("bubblewrap", ranks, _bubblewrap)


def namespaces(ranks: int) -> Walls | None:
    """Those of the kernel, by tools that every Linux has. None where this machine does not allow them."""
    return _tried("namespaces", ranks, _namespaces)


def plain(ranks: int) -> Walls:
    """Limits, and no walls: these every machine allows."""
    return Walls(
        "plain processes with limits on memory, files and time",
        (
            "answers run with your rights: they can read your files, the solutions and the other hand-ins, write where"
            " you may, and use the network (install bubblewrap, or grade in a container)",
            _BESIDE,
            _LENT,
            _FORKS,
        ),
        partial(hosted, ranks, lambda home: []),
    )


def at_once(runs: int) -> int:
    """How many answers to run at once: as far as cores and free memory allow."""
    available = psutil.virtual_memory().available // MEMORY
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return int(max(1, min(runs, cores, available)))


@contextmanager
def hosted(ranks: int, walls: Callable[[Path], list[str]]) -> Iterator[Ranks]:
    """Ranks in processes of their own. walls: the command that puts a process behind walls, with this home."""
    own = _Brokered(ranks, walls)
    try:
        yield own
    finally:
        own.end()


class _Walled:
    """One rank, behind walls of its own. The process there forks one for each run."""

    def __init__(self, rank: int, walls: Callable[[Path], list[str]]) -> None:
        self._leaving = ExitStack()
        home = Path(self._leaving.enter_context(tempfile.TemporaryDirectory(prefix="ls-")))
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._orders = self._leaving.enter_context(ours)
        with theirs:
            self._process = subprocess.Popen(
                [*walls(home), sys.executable, "-c", f"from kit.classroom import walled; walled.main({rank})"],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd=home,
                env=_environment(home),
                start_new_session=True,
                preexec_fn=_limited,
            )

    def stand(self) -> None:
        """Returns when it can be told to fork."""
        self._answer(STARTING)

    @property
    def stands(self) -> bool:
        return self._process.poll() is None

    def fork(self, preload: Sequence[str]) -> Line:
        from kit.classroom.broker import Line

        ours, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(self._orders, [json.dumps({"preload": list(preload)}).encode()], [theirs.fileno()])
        try:
            self._answer(STARTING)
        except OSError:
            ours.close()
            raise
        return Line(ours, self._lost)

    def clear(self) -> str:
        """Ends what was forked, and says how it ended if it had ended before."""
        self._orders.send(json.dumps({}).encode())
        return how_it_ended(int(self._answer(GRACE)))

    def _lost(self) -> str:
        try:
            return self.clear()
        except (OSError, ValueError, TypeError):
            self.end()
            return "all its processes ended"

    def _answer(self, seconds: float) -> Any:
        self._orders.settimeout(seconds)
        told = self._orders.recv(1 << 10)
        if not told:
            raise ConnectionError("the process that a rank is forked from is gone")
        return json.loads(told)

    def end(self) -> None:
        """Everything in there is ended with it."""
        process = self._process
        below = [] if process.poll() is not None else psutil.Process(process.pid).children(recursive=True)
        process.kill()
        for child in below:
            try:
                child.kill()
            except psutil.NoSuchProcess:
                continue
        process.wait()
        self._leaving.close()


_PACKING = threading.Lock()  # what travels by value is registered with cloudpickle, for all threads


class _Brokered:
    """Ranks that reach nobody but the broker; as many as are asked for stand until the end."""

    backend = "a broker between ranks behind walls"

    def __init__(self, ranks: int, walls: Callable[[Path], list[str]]) -> None:
        self._walls = walls
        self._ranks: list[_Walled] = []
        self._first = ranks

    @property
    def devices(self) -> tuple[str, ...]:
        return ("cpu",) * max(self._first, len(self._ranks))

    def runner(self, answer: Answer, deadline: float) -> Runner:
        limit = deadline - time.monotonic()

        def run(asked: Callable[..., Any], world: int, arguments: Sequence[tuple[Any, ...]]) -> tuple[Any, Trace]:
            if deadline <= time.monotonic():
                raise OutOfTime(_out_of_time(limit))
            watching = cast("Watching", asked.watching)  # type: ignore[attr-defined]
            function = walled.OnARank(answer, watching.drive, watching.members)
            return self._run(function, world, arguments, deadline, limit)

        return run

    def _run(
        self, function: walled.OnARank, world: int, arguments: Sequence[tuple[Any, ...]], deadline: float, limit: float
    ) -> tuple[Any, Trace]:
        from kit.classroom.broker import Broker
        from kit.probe.shipping import PerRank, pack
        from kit.run.call import Call, describe
        from kit.run.record import conclude
        from kit.run.scheduler import task_of

        call = Call(function, tuple(PerRank(column) for column in zip(*arguments, strict=True)))
        with _PACKING:
            package = pack(*call, world)
        meta = describe(self, package, call, world, links=None)
        standing = self._standing(max(world, self._first))[:world]
        lines: list[Line] = []
        try:
            for rank in standing:
                lines.append(rank.fork(package.preload))
            broker = Broker(package, task_of(package, 1, "record", world), lines, meta)
            position = broker.run(deadline)
        except OSError as problem:
            self.end()
            raise Ended("it ended the process that it ran in") from problem
        finally:
            for line in lines:
                line.socket.close()
            self._clear(standing)
        if position is None:
            raise RankError(_out_of_time(limit), broker.recorder.trace())
        trace = conclude(broker.recorder, position, {}, call, False).trace
        try:
            return [inert.decode(broker.results[rank]) for rank in range(world)], trace
        except (inert.Refused, KeyError) as problem:
            raise Ended("what came back is no result") from problem

    def _standing(self, count: int) -> list[_Walled]:
        """So many ranks; those that were ended, and all with them, stand anew."""
        if not all(rank.stands for rank in self._ranks):
            self.end()
        begun = len(self._ranks)
        self._ranks += [_Walled(rank, self._walls) for rank in range(begun, count)]
        try:
            for rank in self._ranks[begun:]:
                rank.stand()
        except OSError as problem:
            self.end()
            raise RuntimeError("no ranks could be started: lockstep doctor looks for the cause") from problem
        return self._ranks

    def _clear(self, ranks: Sequence[_Walled]) -> None:
        try:
            for rank in ranks:
                rank.clear()
        except (OSError, ValueError, TypeError):
            self.end()

    def end(self) -> None:
        ranks, self._ranks = self._ranks, []
        for rank in ranks:
            rank.end()


def _out_of_time(limit: float) -> str:
    return f"it was still running after {limit:.0f} s and was ended"


# ---------------------------------------------------------------------------------------------------------- walls


def _environment(home: Path) -> dict[str, str]:
    own = os.pathsep.join(str(folder.labs) for folder in resources.own())
    return {
        resources.OWN_LABS: own or str(home),
        "PATH": os.defpath,
        "HOME": str(home),
        "TMPDIR": str(home),
        "LANG": "C.UTF-8",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def _limited() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MOST_OF_A_PROCESS, MOST_OF_A_PROCESS))
    resource.setrlimit(resource.RLIMIT_FSIZE, (LARGEST_FILE, LARGEST_FILE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _tried(name: str, ranks: int, walls: Callable[[Path], list[str]]) -> Walls | None:
    with tempfile.TemporaryDirectory(prefix="ls-") as home:
        command = [*walls(Path(home)), sys.executable, "-c", "import kit.classroom.walled"]
        if shutil.which(command[0]) is None:
            return None
        done = subprocess.run(command, env=_environment(Path(home)), capture_output=True, stdin=subprocess.DEVNULL)
    return Walls(name, (_LENT, _FORKS), partial(hosted, ranks, walls)) if done.returncode == 0 else None


@dataclass(frozen=True)
class _Seen:
    """What there is inside, for reading alone: Python, what is installed for it, and kit without solutions."""

    links: dict[str, str]
    shown: tuple[str, ...]
    hidden: tuple[str, ...]  # files of those shown
    emptied: tuple[str, ...]  # folders of those shown


def _seen() -> _Seen:
    package = Path(resources.__file__).parent
    system = ("/usr", "/lib", "/lib64", "/bin", "/etc/ld.so.cache")
    python = [sys.prefix, sys.base_prefix, *(path for path in sys.path if path and "site-packages" in path)]
    labs = [str(path) for folder in resources.own() for path in (*folder.notebooks(), folder.topics)]
    carried = package / "_carried" / "labs"
    return _Seen(
        {path: os.readlink(path) for path in system if os.path.islink(path)},
        tuple(
            dict.fromkeys(
                [path for path in system if os.path.exists(path) and not os.path.islink(path)]
                + [*python, str(package), *labs]
            )
        ),
        tuple(str(path) for path in _secrets(package)),
        (str(carried),) if carried.is_dir() else (),
    )


def _bubblewrap(home: Path) -> list[str]:
    seen = _seen()
    return [
        *("bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--clearenv"),
        *(word for name, value in _environment(home).items() for word in ("--setenv", name, value)),
        *("--setenv", "TMPDIR", "/tmp"),  # short, as names of sockets have to be
        *(word for path, to in seen.links.items() for word in ("--symlink", to, path)),
        *("--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"),
        *(word for path in seen.shown for word in ("--ro-bind", path, path)),
        *(word for path in seen.hidden for word in ("--ro-bind", os.devnull, path)),
        *(word for path in seen.emptied for word in ("--tmpfs", path)),
        *("--tmpfs", str(home), "--chdir", str(home), "--"),
    ]


_DEVICES = ("null", "zero", "full", "random", "urandom")


def _namespaces(home: Path) -> list[str]:
    """A root of its own is built in namespaces of its own, by who may do so there; then nobody may any more."""
    seen, root = _seen(), str(home)

    def at(path: str) -> str:
        return shlex.quote(root + path)

    def shown(source: str, path: str) -> list[str]:
        made = (
            f"mkdir -p {at(path)}" if os.path.isdir(source) else f"mkdir -p {at(os.path.dirname(path))}; : > {at(path)}"
        )
        return [f"[ -e {at(path)} ] || {{ {made}; }}", f"mount --bind {shlex.quote(source)} {at(path)}"]

    def read_only(path: str) -> str:
        return f"mount -o remount,bind,ro,nosuid,nodev {at(path)}"

    def empty(path: str) -> list[str]:
        return [f"mkdir -p {at(path)}", f"mount -t tmpfs -o size=1g none {at(path)}"]

    environment = {**_environment(home), "TMPDIR": "/tmp"}
    build = [
        "mount --make-rprivate /",
        f"mount -t tmpfs -o size=1m,mode=755 none {at('')}",
        *(f"ln -s {shlex.quote(to)} {at(path)}" for path, to in seen.links.items()),
        f"mkdir {at('/proc')} {at('/old')}",
        f"mount -t proc none {at('/proc')}",
        *(line for name in _DEVICES for line in shown(f"/dev/{name}", f"/dev/{name}")),
        *empty("/dev/shm"),
        *empty("/tmp"),
        *(line for path in seen.shown for line in (*shown(path, path), read_only(path))),
        *(line for path in seen.hidden for line in (*shown(os.devnull, path), read_only(path))),
        *(line for path in seen.emptied for line in empty(path)),
        *empty(root),
        f"cd {at('')}",
        "pivot_root . old",
        "umount -l /old",
        "mount -o remount,bind,ro /",
        f"cd {shlex.quote(root)}",
        # the first process of all stays a shell, which buries those whom others leave behind
        "exec setpriv --bounding-set=-all --inh-caps=-all --no-new-privs env -i "
        + " ".join(shlex.quote(f"{name}={value}") for name, value in environment.items())
        + ' sh -c \'"$@"; exit $?\' sh "$@"',
    ]
    own = (
        "--user",
        "--map-root-user",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount",
        "--net",
        "--ipc",
        "--uts",
        "--cgroup",
    )
    return ["unshare", *own, "sh", "-ec", "PATH=$PATH:/usr/sbin:/sbin\n" + "\n".join(build), "sh"]


def _secrets(package: Path) -> list[Path]:
    """Files of kit that say what is right, and that no rank needs."""
    unused = package / "topics" / "collectives" / "reference"
    return sorted([*package.glob("topics/*/mistakes.py"), *unused.glob("[!_]*.py")])
