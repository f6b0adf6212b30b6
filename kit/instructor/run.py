"""Run notebooks through papermill, each in a process of its own, as many at once as the machine can take."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

import psutil

from kit.instructor import processes, trouble
from kit.instructor.notebooks import Notebook
from kit.instructor.outcome import Outcome, no_ranks, read_verdicts

MEMORY_OF_A_LAB = 1_500_000_000  # bytes: kernel with torch, controller, agent and four ranks, with room to spare
GRACE = 10.0  # seconds in which everything a kernel started must be gone after it


@dataclass(frozen=True)
class Settings:
    """How to run a notebook. Limits in seconds; `ranks` None leaves the notebook's own number."""

    solutions: bool = False
    ranks: int | None = None
    cell_limit: float = 120.0
    lab_limit: float = 600.0
    keep: Path | None = None  # a folder for the notebooks as they were run


def parallel(notebooks: int) -> int:
    """How many notebooks to run at once: as far as cores and free memory allow."""
    available = psutil.virtual_memory().available // MEMORY_OF_A_LAB
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return int(max(1, min(notebooks, cores, available)))


def run_all(notebooks: Sequence[Notebook], settings: Settings, at_once: int | None = None) -> Iterator[Outcome]:
    """Run the notebooks and yield each outcome as it comes. Leaving early ends what still runs."""
    with (
        tempfile.TemporaryDirectory(prefix="lockstep-check-") as scratch,
        ThreadPoolExecutor(at_once or parallel(len(notebooks))) as pool,
    ):
        folders = {notebook: Path(scratch) / str(number) for number, notebook in enumerate(notebooks)}
        futures = [pool.submit(run, notebook, settings, folders[notebook]) for notebook in notebooks]
        try:
            for future in as_completed(futures):
                yield future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for folder in folders.values():
                processes.end(str(folder / "verdicts.jsonl"))
            raise


def run(notebook: Notebook, settings: Settings, folder: Path) -> Outcome:
    """Run one notebook with `folder` (made here) for its files; whatever outlives it is ended.

    The notebook runs in an empty working folder, so that what it writes goes away with it.
    """
    if notebook.unreadable:
        return Outcome(notebook, (), notebook.unreadable, 0.0, settings.solutions)
    side_file, executed, log = folder / "verdicts.jsonl", folder / "executed.ipynb", folder / "papermill.log"
    work = folder / "work"
    work.mkdir(parents=True)
    begun = time.monotonic()
    with log.open("wb") as out:
        process = subprocess.Popen(
            _command(notebook, settings, executed, work),
            cwd=work,
            env=_environment(settings, side_file, folder),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        code = _wait(process, settings.lab_limit, str(side_file))
    seconds = time.monotonic() - begun
    left = _clear(str(side_file)) if code == 0 else processes.end(str(side_file))
    if settings.keep is not None and executed.exists():
        shutil.copyfile(executed, settings.keep / f"{notebook.name.replace('/', '-')}.ipynb")
    stopped = trouble.sentence(code, settings.lab_limit, settings.cell_limit, executed, log)
    return Outcome(
        notebook=notebook,
        verdicts=read_verdicts(notebook, side_file, ended=stopped is None),
        trouble=stopped or no_ranks(side_file),
        seconds=seconds,
        solutions=settings.solutions,
        left=left if code == 0 else 0,
    )


def _wait(process: subprocess.Popen[bytes], limit: float, mark: str) -> int | None:
    """The exit code, or None when the run was ended at its limit."""
    try:
        return process.wait(timeout=limit)
    except subprocess.TimeoutExpired:
        processes.end(mark)
        process.wait()
        return None


def _clear(mark: str) -> int:
    return processes.end(mark) if processes.wait_gone(mark, GRACE) else 0


def _command(notebook: Notebook, settings: Settings, executed: Path, work: Path) -> list[str]:
    command = [sys.executable, "-m", "papermill", str(notebook.path), str(executed), "--no-progress-bar"]
    command += [
        "--kernel",
        "python3",
        "--cwd",
        str(work),
        "--execution-timeout",
        str(max(1, round(settings.cell_limit))),
    ]
    if settings.ranks is not None:
        command += ["--parameters", "ranks", str(settings.ranks)]
    return command


def _environment(settings: Settings, side_file: Path, folder: Path) -> dict[str, str]:
    environment = {name: value for name, value in os.environ.items() if name != "LOCKSTEP_SOLUTIONS"}
    environment[processes.MARK] = str(side_file)
    environment["IPYTHONDIR"] = str(folder / "ipython")  # a person's start-up files must not change a verdict
    if settings.solutions:
        environment["LOCKSTEP_SOLUTIONS"] = "1"
    return environment
