"""Looks a machine over before a workshop: one small function for each question, one frozen finding for each answer.

`examine(ranks)` asks them all. Nothing here changes anything, except `leftovers.end`, which has to be asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from kit.clusters.doctor import host, leftovers, sites, software, trial
from kit.clusters.doctor.finding import Finding, note, warning

Question = Callable[[], Finding]


def questions(ranks: int) -> Mapping[str, Question]:
    """What is answered without starting anything, in the order a person would ask."""
    return {
        "machine": sites.machine,
        "Python": software.python,
        "torch": software.torch,
        "its torch": sites.own_torch,
        "libraries": software.libraries,
        "JupyterLab": software.front_end,
        "checking": software.papermill,
        "plots": software.bokeh,
        "cores": lambda: host.cores(ranks),
        "memory": lambda: host.enough_memory(ranks),
        "GPUs": host.gpus,
        "links": host.links,
        "interface": host.interface,
        "plug-ins": host.plugins,
        "outside": sites.outside,
        "ports": lambda: host.ports(ranks),
        "open files": lambda: host.open_files(ranks),
        "tasks": lambda: host.tasks(ranks),
        "run folder": host.run_folder,
        "home": host.home,
        "this folder": host.working_folder,
        "batch job": lambda: host.job(ranks),
        "left-over ranks": leftovers.leftovers,
        "shared memory": leftovers.shared_memory,
    }


def examine(ranks: int, asked: Mapping[str, Question] | None = None) -> Iterator[Finding]:
    """Answers, one after the other. The ranks are started last, and not at all where torch is missing."""
    found: dict[str, Finding] = {}
    for name, question in (questions(ranks) if asked is None else asked).items():
        found[name] = answered(name, question)
        yield found[name]
    lacking = [name for name in ("Python", "torch", "libraries") if name in found and found[name].status == "problem"]
    if lacking:
        yield note(f"none were started: see {' and '.join(lacking)}").named("real ranks")
        return
    tried = trial.run(ranks)
    has_gpus = "GPUs" in found and found["GPUs"].found.startswith("GPU ")
    yield answered("backends", lambda: trial.backends(tried, has_gpus))
    yield answered("real ranks", lambda: trial.ranks(tried))


def answered(name: str, question: Question) -> Finding:
    """The answer; a question that cannot be asked on this machine is an answer too, and the others follow."""
    try:
        return question().named(name)
    except Exception as failure:
        said = f"could not be looked at ({type(failure).__name__}: {failure})"
        return warning(said, "Report it with the output of lockstep doctor --json.").named(name)
