"""The batch job this process runs in, as its scheduler tells it: which hosts, and until when. PBS and Slurm.

Parsers take text and are pure; `allocation` asks. A scheduler that does not answer costs the end of the job, not the
rest: the environment alone names job and hosts.
"""

from __future__ import annotations

import functools
import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kit.clusters.system import Ask, ask
from kit.clusters.system import read as read_file
from kit.trace.text import counted

SHORT = 600.0  # seconds left from which a person is warned


@dataclass(frozen=True, slots=True)
class Allocation:
    scheduler: str  # 'PBS', 'Slurm'
    job: str
    hosts: tuple[str, ...]
    slots: int  # how many processes the scheduler would start, all hosts together; 0 when it does not say
    ends: float | None  # seconds since the epoch; None when there is no limit or nobody tells

    def left(self, now: float | None = None) -> float | None:
        """Seconds until the job is ended, never negative; None when that is not known."""
        return None if self.ends is None else max(0.0, self.ends - (time.time() if now is None else now))

    def __str__(self) -> str:
        left = self.left()
        end = "its end is not told" if left is None else f"{duration(left)} left"
        return f"{self.scheduler} job {self.job} on {counted(len(self.hosts), 'host')}: {end}"

    def warning(self) -> str:
        """A sentence when the end is near, else ''."""
        left = self.left()
        if left is None or left >= SHORT:
            return ""
        return f"this job ends in {duration(left)}, and everything on the ranks with it: save what you need now"


def allocation() -> Allocation | None:
    """The job this process runs in; None outside of one. The scheduler is asked once for each job."""
    variables = ("PBS_JOBID", "PBS_NODEFILE", "SLURM_JOB_ID", "SLURM_JOB_NODELIST", "SLURM_NODELIST")
    more = ("SLURM_JOB_END_TIME", "SLURM_NTASKS", "SLURM_JOB_NUM_NODES")
    return _asked_once(tuple((name, os.environ[name]) for name in (*variables, *more) if name in os.environ))


@functools.lru_cache(maxsize=4)
def _asked_once(variables: tuple[tuple[str, str], ...]) -> Allocation | None:
    return read(dict(variables), ask)


def read(environment: Mapping[str, str], answer: Ask) -> Allocation | None:
    """The allocation that `environment` names, completed by what the scheduler's commands answer."""
    if "PBS_JOBID" in environment:
        return _pbs(environment, answer)
    if "SLURM_JOB_ID" in environment:
        return _slurm(environment, answer)
    return None


def _pbs(environment: Mapping[str, str], answer: Ask) -> Allocation:
    job = environment["PBS_JOBID"]
    nodes = environment.get("PBS_NODEFILE")  # a file of the job's first host alone
    hosts, slots = pbs_hosts(read_file(Path(nodes)) if nodes else "")
    left = pbs_seconds_left(answer(("qstat", "-f", job)) or "", time.time())
    return Allocation("PBS", job, hosts, slots, None if left is None else time.time() + left)


def _slurm(environment: Mapping[str, str], answer: Ask) -> Allocation:
    job = environment["SLURM_JOB_ID"]
    hosts = slurm_hosts(environment.get("SLURM_JOB_NODELIST") or environment.get("SLURM_NODELIST", ""))
    tasks = environment.get("SLURM_NTASKS", "")
    slots = int(tasks) if tasks.isdigit() else 0
    ends = environment.get("SLURM_JOB_END_TIME", "")
    if ends.isdigit():
        return Allocation("Slurm", job, hosts, slots, float(ends))
    left = slurm_seconds_left(answer(("squeue", "--noheader", "--format=%L", f"--jobs={job}")) or "")
    return Allocation("Slurm", job, hosts, slots, None if left is None else time.time() + left)


def pbs_hosts(node_file: str) -> tuple[tuple[str, ...], int]:
    """(hosts, each once and in order; lines), of the file that $PBS_NODEFILE names: one line for each process."""
    lines = [line.strip() for line in node_file.splitlines() if line.strip()]
    return tuple(dict.fromkeys(lines)), len(lines)


def pbs_seconds_left(told: str, now: float) -> float | None:
    """Of what `qstat -f` prints; None when it names no limit.

    What PBS says was used lags behind by a minute or two, so the later of that and the time since the start counts.
    """
    facts = dict(re.findall(r"^\s*([\w.]+) = (.*?)\s*$", told, re.MULTILINE))
    limit = seconds(facts.get("Resource_List.walltime", ""))
    if limit is None:
        return None
    elapsed = [seconds(facts.get("resources_used.walltime", "")) or 0.0]
    try:
        begun = time.mktime(time.strptime(facts.get("stime", ""), "%a %b %d %H:%M:%S %Y"))
    except ValueError:
        begun = now  # this server does not tell
    if 0 <= now - begun <= limit:
        elapsed.append(now - begun)
    return max(0.0, limit - max(elapsed))


def slurm_hosts(names: str) -> tuple[str, ...]:
    """Writes out Slurm's short form: 'nid[001-003,007],login1' is nid001, nid002, nid003, nid007, login1."""
    hosts: list[str] = []
    for part in re.findall(r"(?:[^,\[]|\[[^\]]*\])+", names):
        hosts += _written_out(part.strip())
    return tuple(dict.fromkeys(filter(None, hosts)))


def _written_out(name: str) -> list[str]:
    match = re.fullmatch(r"([^\[]*)\[([^\]]*)\](.*)", name)
    if match is None:
        return [name]
    before, ranges, after = match.groups()
    numbers: list[str] = []
    for one in ranges.split(","):
        first, dash, last = one.partition("-")
        if dash and first.isdigit() and last.isdigit():
            numbers += [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]
        else:
            numbers.append(one)
    return [f"{before}{number}{rest}" for number in numbers for rest in _written_out(after)]


def slurm_seconds_left(told: str) -> float | None:
    """Of `squeue --format=%L`: '1-02:03:04', '59:30', 'UNLIMITED', 'NOT_SET', 'INVALID'."""
    return seconds(told.strip().partition("\n")[0])


def seconds(clock: str) -> float | None:
    """'1-02:03:04', '02:03:04', '03:04' (minutes and seconds) and '90' (seconds); None for anything else."""
    match = re.fullmatch(r"(?:(\d+)-)?(?:(?:(\d+):)?(\d+):)?(\d+)", clock.strip())
    if match is None:
        return None
    days, hours, minutes, rest = (int(part or 0) for part in match.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + rest)


def duration(length: float) -> str:
    """Seconds for people: '45 s', '9 min', '2 h 05 min', '3 days'."""
    if length < 60:
        return f"{length:.0f} s"
    minutes = int(length // 60)
    if minutes < 60:
        return f"{minutes} min"
    if minutes < 48 * 60:
        return f"{minutes // 60} h {minutes % 60:02d} min"
    return f"{minutes // (24 * 60)} days"
