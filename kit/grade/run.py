"""Run notebooks through papermill, each in a process of its own, as many at once as the machine can take."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from kit.grade.answers import SOLUTIONS
from kit.grade.marks import SIDE_FILE, collect, without_ranks
from kit.grade.report import Outcome
from kit.grade.words import on_one_line, shown
from kit.resources import OWN_LABS

if TYPE_CHECKING:
    from kit.grade.notebooks import Notebook

MEMORY_OF_A_LAB = 1_500_000_000  # bytes: kernel with torch, controller, agent and four ranks, with room to spare
SAID = "verdicts.jsonl"  # in a notebook's folder: what its checks said
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
        futures = [pool.submit(_outcome, notebook, settings, folders[notebook]) for notebook in notebooks]
        try:
            for future in as_completed(futures):
                yield future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for folder in folders.values():
                end(str(folder / SAID))
            raise


def _outcome(notebook: Notebook, settings: Settings, folder: Path) -> Outcome:
    """As `run`; where the machine fails, a full disk for instance, that is one notebook's trouble and not the end."""
    try:
        return run(notebook, settings, folder)
    except OSError as problem:
        end(str(folder / SAID))
        words = on_one_line(f"it could not be run here ({problem})")
        marks = collect(folder / SAID, notebook.exercises, ended=False)
        return Outcome(notebook, marks, words, 0.0, settings.solutions)


def run(notebook: Notebook, settings: Settings, folder: Path) -> Outcome:
    """Run one notebook with `folder` (made here) for its files; whatever outlives it is ended.

    The notebook runs in an empty working folder, so that what it writes goes away with it.
    """
    if notebook.unreadable:
        return Outcome(notebook, (), notebook.unreadable, 0.0, settings.solutions)
    side_file, executed, log = folder / SAID, folder / "executed.ipynb", folder / "papermill.log"
    work, copied = folder / "work", folder / "notebook.ipynb"
    work.mkdir(parents=True)
    shutil.copyfile(notebook.path, copied)  # under a name that papermill can read
    begun = time.monotonic()
    with log.open("wb") as out:
        process = subprocess.Popen(
            _command(copied, settings, executed, work),
            cwd=work,
            env=_environment(notebook, settings, side_file, folder),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        code = _wait(process, settings.lab_limit, str(side_file))
    seconds = time.monotonic() - begun
    left = _clear(str(side_file)) if code == 0 else end(str(side_file))
    if settings.keep is not None and executed.exists():
        shutil.copyfile(executed, settings.keep / f"{notebook.name.replace('/', '-')}.ipynb")
    stopped = why_it_stopped(code, settings.lab_limit, settings.cell_limit, executed, log)
    marks = collect(side_file, notebook.exercises, ended=stopped is None)
    return Outcome(
        notebook=notebook,
        marks=marks,
        trouble=stopped or without_ranks(marks),
        seconds=seconds,
        solutions=settings.solutions,
        left=left if code == 0 else 0,
    )


def _wait(process: subprocess.Popen[bytes], limit: float, mark: str) -> int | None:
    """The exit code, or None when the run was ended at its limit."""
    try:
        return process.wait(timeout=limit)
    except subprocess.TimeoutExpired:
        end(mark)
        process.wait()
        return None


def _clear(mark: str) -> int:
    return end(mark) if wait_gone(mark, GRACE) else 0


def _command(notebook: Path, settings: Settings, executed: Path, work: Path) -> list[str]:
    command = [sys.executable, "-m", "kit.grade.execute", str(notebook), str(executed), str(work)]
    command += ["--cell-limit", str(settings.cell_limit)]
    if settings.ranks is not None:
        command += ["--ranks", str(settings.ranks)]
    return command


def _environment(notebook: Notebook, settings: Settings, side_file: Path, folder: Path) -> dict[str, str]:
    environment = {name: value for name, value in os.environ.items() if name != SOLUTIONS}
    environment[SIDE_FILE] = str(side_file)
    environment[OWN_LABS] = os.pathsep.join(map(str, notebook.homes))
    environment["IPYTHONDIR"] = str(folder / "ipython")  # a person's start-up files must not change a verdict
    if settings.solutions:
        environment[SOLUTIONS] = "1"
    return environment


# ------------------------------------------------------------------------------------- the processes of one run
#
# They are told from all others by an environment variable that only they inherited, and ended by id.


def of_run(mark: str) -> list[psutil.Process]:
    """Every live process that inherited the side file `mark`: the notebook's kernel, its controller, agent and ranks.

    Parentage would not do: an orphan has another parent, and controllers start sessions of their own.
    """
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(SIDE_FILE) == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.Error, OSError):
            continue  # gone meanwhile, or another user's
    return found


def wait_gone(mark: str, seconds: float) -> list[psutil.Process]:
    """Give the processes of a run time to go by themselves; those that have not."""
    deadline = time.monotonic() + seconds
    while (left := of_run(mark)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return left


def end(mark: str) -> int:
    """Kill every process of a run, those it forks meanwhile included; how many there were."""
    ended: set[int] = set()
    for _ in range(50):
        left = of_run(mark)
        if not left:
            break
        for process in left:
            ended.add(process.pid)
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        psutil.wait_procs(left, timeout=1.0)
    return len(ended)


# ------------------------------------------------------------------------------------- why a notebook stopped

_PREVIEW = re.compile(r"Here is a preview of the cell contents:\n-+\n(?P<line>.*)")


def why_it_stopped(code: int | None, lab_limit: float, cell_limit: float, executed: Path, log: Path) -> str | None:
    """What stopped the notebook, in one sentence; None when nothing did.

    The exit code decides: after a time-out or the death of a kernel the saved notebook claims completion.

    code: exit code, None when it was ended at `lab_limit`. Limits in seconds. executed: the notebook as
    papermill saved it, which may be missing. log: what papermill printed.
    """
    if code == 0:
        return None
    if code is None:
        return f"the notebook was still running after {lab_limit:g} s and was ended (--lab-limit)"
    said = shown(log.read_text(encoding="utf-8", errors="replace"))
    if "CellTimeoutError" in said:
        return f"a cell ran longer than {cell_limit:g} s and was ended (--cell-limit){_which_cell(said)}"
    if "DeadKernelError" in said or "Kernel died" in said:
        return "the kernel died"
    if code < 0:
        return f"the run was ended by signal {-code}"
    return _error_in(executed) or _last_words(said)


def _which_cell(said: str) -> str:
    match = _PREVIEW.search(said)
    return f": '{match['line'].strip()}'" if match else ""


def _error_in(executed: Path) -> str | None:
    """The first error among the outputs of the notebook, with the number that JupyterLab shows beside the cell."""
    if not executed.exists():
        return None
    try:
        cells = json.loads(executed.read_bytes())["cells"]
    except ValueError:  # it was cut short, as on a full disk: papermill's last words must do
        return None
    for cell in cells:
        for output in cell.get("outputs", []):
            if output["output_type"] == "error":
                words = on_one_line(output["evalue"])
                raised = on_one_line(output["ename"])
                return f"cell [{cell['execution_count']}] raises {raised}{': ' if words else ''}{words}"
    return None


def _last_words(said: str) -> str:
    lines = [line for line in said.splitlines() if line.strip()]
    return f"papermill stopped: {lines[-1].strip()}" if lines else "papermill stopped without a word"
