"""Where answers run: in a process of their own for each worker, behind the strongest walls that this machine gives.

The process that judges sends text and inputs there, and reads data. It never runs a line of a learner's, nor makes an
object of what it reads.
"""

from __future__ import annotations

import os
import resource
import select
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol, cast

import cloudpickle
import psutil

from kit import resources
from kit.classroom import host, inert
from kit.run.errors import RankError
from kit.trace.trace import Trace

if TYPE_CHECKING:
    from kit.classroom.handins import Answer
    from kit.grade.checker import Watching
    from kit.grade.exercise import Runner

MEMORY = 1_000_000_000  # bytes: four ranks with torch, and what they talk through
MOST_OF_A_PROCESS = 8 << 30  # bytes of address space: torch alone takes two
LARGEST_FILE = 256 << 20
STARTING = 120.0  # s until its ranks stand
GRACE = 15.0  # s beyond its deadline, for the end of a run

_FORGEABLE = (
    "the ranks of an answer count their own messages: one that rewrites what counts them in its own process could"
    " pass a check of traffic"
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
            _FORGEABLE,
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
    """Ranks in a process of their own. walls: the command that puts a process behind walls, with this home."""
    with tempfile.TemporaryDirectory(prefix="ls-") as home:
        own = _Hosted(ranks, walls(Path(home)), Path(home))
        try:
            yield own
        finally:
            own.end()


class _Hosted:
    def __init__(self, ranks: int, walls: Sequence[str], home: Path) -> None:
        self._command = [*walls, sys.executable, "-c", f"from kit.classroom import host; host.main({ranks})"]
        self._home = home
        self._process: subprocess.Popen[bytes] | None = None

    def runner(self, answer: Answer, deadline: float) -> Runner:
        limit, fresh = deadline - time.monotonic(), True

        def run(asked: Callable[..., Any], world: int, arguments: Sequence[tuple[Any, ...]]) -> tuple[Any, Trace]:
            nonlocal fresh
            left = deadline - time.monotonic()
            if left <= 0:
                raise OutOfTime(f"it was still running after {limit:.0f} s and was ended")
            watching = cast("Watching", asked.watching)  # type: ignore[attr-defined]
            request = host.Request(answer, watching.drive, watching.members, world, arguments, fresh, left)
            fresh = False
            return self._run(request, deadline, limit)

        return run

    def _run(self, request: host.Request, deadline: float, limit: float) -> tuple[Any, Trace]:
        process = self._running()
        try:
            head, parts = self._exchange(process, cloudpickle.dumps(request), deadline + GRACE)
        except TimeoutError as problem:
            self.end()
            raise OutOfTime(f"it was still running after {limit:.0f} s and was ended") from problem
        except (OSError, inert.Refused) as problem:
            self.end()
            raise Ended("it ended the process that it ran in") from problem
        if "fault" in head:
            self.end()
            raise RuntimeError(str(head["fault"]))
        trace = self._trace(parts[0])
        if head["sentence"] is not None and time.monotonic() >= deadline:
            raise RankError(f"it was still running after {limit:.0f} s and was ended", trace)
        if head["sentence"] is not None:
            raise RankError(str(head["sentence"]), trace)
        return [inert.decode(part) for part in parts[1:]], trace

    def _trace(self, data: bytes) -> Trace:
        path = self._home.parent / f"{self._home.name}.trace"
        try:
            path.write_bytes(data)
            return Trace.load(path)
        except ValueError as problem:
            raise inert.Refused("what came back is no trace") from problem
        finally:
            path.unlink(missing_ok=True)

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd=self._home,
                env=_environment(self._home),
                start_new_session=True,
                preexec_fn=_limited,
            )
            try:
                self._read(self._process, time.monotonic() + STARTING)
            except (OSError, inert.Refused) as problem:
                self.end()
                raise RuntimeError("no ranks could be started: lockstep doctor looks for the cause") from problem
        return self._process

    def _exchange(
        self, process: subprocess.Popen[bytes], data: bytes, deadline: float
    ) -> tuple[dict[str, Any], list[bytes]]:
        assert process.stdin is not None
        process.stdin.write(host.LENGTH.pack(len(data)) + data)
        process.stdin.flush()
        return self._read(process, deadline)

    def _read(self, process: subprocess.Popen[bytes], deadline: float) -> tuple[dict[str, Any], list[bytes]]:
        assert process.stdout is not None
        (length,) = host.LENGTH.unpack(_exactly(process.stdout, host.LENGTH.size, deadline))
        if length > inert.MOST:
            raise inert.Refused(f"an answer of {length / 1e6:,.0f} MB is not read")
        return host.opened(_exactly(process.stdout, length, deadline))

    def end(self) -> None:
        """Everything in there is ended with it."""
        process, self._process = self._process, None
        if process is None:
            return
        children = [] if process.poll() is not None else psutil.Process(process.pid).children(recursive=True)
        process.kill()
        for child in children:
            try:
                child.kill()
            except psutil.NoSuchProcess:
                continue
        process.wait()
        for stream in (process.stdin, process.stdout):
            assert stream is not None
            try:
                stream.close()
            except OSError:  # what had not been sent yet
                continue


def _exactly(stream: IO[bytes], size: int, deadline: float) -> bytes:
    """So many bytes of a pipe. TimeoutError at the deadline, EOFError where there are no more."""
    parts, missing = [], size
    while missing:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([stream], [], [], left)[0]:
            raise TimeoutError
        part = os.read(stream.fileno(), min(missing, 1 << 20))
        if not part:
            raise ConnectionError("the process that answers run in is gone")
        parts.append(part)
        missing -= len(part)
    return b"".join(parts)


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
        command = [*walls(Path(home)), sys.executable, "-c", "import kit.classroom.host"]
        if shutil.which(command[0]) is None:
            return None
        done = subprocess.run(command, env=_environment(Path(home)), capture_output=True, stdin=subprocess.DEVNULL)
    return Walls(name, (_FORGEABLE, _LENT, _FORKS), partial(hosted, ranks, walls)) if done.returncode == 0 else None


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
_SIOCSIFFLAGS = 0x8914
_LOOPBACK = (
    f"import fcntl, socket, struct; fcntl.ioctl(socket.socket(), {_SIOCSIFFLAGS}, struct.pack('16sh14x', b'lo', 1))"
)


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
        f"{shlex.quote(sys.executable)} -c {shlex.quote(_LOOPBACK)}",
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
