"""All questions, in the order a person would ask them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from kit.cluster.doctor import frontend, job, leftovers, machine, network, places, software, trial
from kit.cluster.doctor.finding import Finding

Question = Callable[[], Finding]


def quick(ranks: int) -> Mapping[str, Question]:
    """What is answered without starting anything."""
    return {
        "Python": software.python,
        "torch": software.torch,
        "libraries": software.libraries,
        "JupyterLab": frontend.front_end,
        "plots": software.bokeh,
        "cores": lambda: machine.cores(ranks),
        "memory": lambda: machine.enough_memory(ranks),
        "GPUs": machine.gpus,
        "links": machine.links,
        "interface": network.interface,
        "ports": network.ports,
        "run folder": places.run_folder,
        "home": places.home,
        "this folder": places.working_folder,
        "batch job": lambda: job.job(ranks),
        "left-over ranks": leftovers.leftovers,
    }


def examine(ranks: int, questions: Mapping[str, Question] | None = None) -> Iterator[Finding]:
    """Answers, one after the other. The ranks are started last, and not at all where torch is missing."""
    found: dict[str, Finding] = {}
    for name, question in (quick(ranks) if questions is None else questions).items():
        found[name] = answered(name, question)
        yield found[name]
    lacking = [name for name in ("Python", "torch", "libraries") if name in found and found[name].status == "problem"]
    if lacking:
        yield Finding("real ranks", "note", f"none were started: see {' and '.join(lacking)}")
        return
    tried = trial.run(ranks)
    has_cards = "GPUs" in found and found["GPUs"].found.startswith("GPU ")
    yield answered("backends", lambda: trial.backends(tried, lambda: has_cards))
    yield answered("real ranks", lambda: trial.ranks(tried))


def answered(name: str, question: Question) -> Finding:
    """The answer; a question that cannot be asked on this machine is an answer too, and the others follow."""
    try:
        return question()
    except Exception as problem:
        said = f"could not be looked at ({type(problem).__name__}: {problem})"
        return Finding(name, "warning", said, "Report it with the output of lockstep doctor --json.")
