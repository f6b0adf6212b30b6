"""A session's function as a plain script that torchrun or mpiexec starts: no kit, nothing to install but torch."""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kit.probe.shipping import PerRank
from kit.run.export_sources import Sources
from kit.run.export_values import expression, is_drawn


def write(path: str | Path, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], world: int) -> Path:
    """`script` into a file; returns its path. Raises ValueError as `script` does, or where it cannot write."""
    path = Path(path)
    text = script(fn, args, kwargs, world, path.name)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ValueError(f"cannot write {path} ({error.strerror}): choose a folder that exists and is yours") from error
    return path


def script(
    fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    kwargs: dict[str, Any] | None = None,
    world: int = 4,
    file: str = "script.py",
) -> str:
    """The text of a script that calls `fn(*args, **kwargs)` on every rank.

    It holds the source of fn and of all it uses from notebooks, the learner's modules, references, imports for
    the rest, and the arguments: written out where small, random of the same shape where not (a comment says so).
    Arguments of `kit.per_rank` become a list by rank, so the script insists on `world` ranks; without them any number
    will do. A function without arguments that begins and ends its own process group is the script: nothing is put
    around it, and torchrun starts it.

    Raises ValueError for what has no text: a function without source, an object nobody can write down, code that uses
    Lockstep itself.
    """
    if not isinstance(fn, types.FunctionType) or fn.__name__ == "<lambda>":
        raise ValueError(f"only a function written with def can be exported, not {fn!r}")
    sources = Sources()
    sources.add(fn)
    arguments = _arguments(fn, args, kwargs or {}, sources)
    taken = {*sources.blocks, *sources.imports, *(argument.name for argument in arguments)}
    ours = {name: _free(name, taken) for name in ("launched", "main", "RANK", "WORLD", "DEVICE", "BACKEND")}
    definitions = list(sources.blocks.values())
    fixed = any(isinstance(value, PerRank) for value in (*args, *(kwargs or {}).values()))
    own_group = any("init_process_group" in text for text in definitions)
    own_port = _OWN_PORT if own_group and any("MASTER_PORT" in text for text in definitions) else ""
    if own_group and not arguments:
        head = f'"""torchrun --standalone --nproc-per-node={world} {file}"""'
        imports = _imports(sources, *(["import os"] if own_port else []))
        return _spaced([head, imports, *definitions, f'if __name__ == "__main__":\n{own_port}    {fn.__name__}()'])

    needed = f"from __future__ import annotations\n\n{_imports(sources, 'import os')}"
    parts = [_head(fn, world, file, fixed), needed, _LAUNCHED.format(**ours, own_port=own_port)]
    parts.append("{RANK}, {WORLD}, {DEVICE}, {BACKEND} = {launched}()".format(**ours))
    if sources.runs_code:
        parts.append("torch.manual_seed(0)  # what is made below is the same on every rank")
    parts += definitions
    parts.append(_main(fn, ours, arguments, sources, world if fixed else None, own_group))
    parts.append(f'if __name__ == "__main__":\n    {ours["main"]}()')
    return _spaced(parts)


@dataclass(frozen=True)
class _Argument:
    name: str
    texts: tuple[str, ...]  # one, or one for each rank
    by_name: bool


_RANK = "\0RANK\0"  # stands for the rank's name in a text until that name is known


def _arguments(
    fn: types.FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any], sources: Sources
) -> list[_Argument]:
    given = [(name, value, False) for name, value in zip(_positional_names(fn, len(args)), args, strict=True)]
    given += [(name, value, True) for name, value in kwargs.items()]
    arguments = []
    for number, (name, value, by_name) in enumerate(given, start=1):
        values, seed = ((value,), f"{100 * number}")
        if isinstance(value, PerRank):
            values, seed = value.values, f"{100 * number} + {_RANK}"
        texts = tuple(_text_of(each, seed, fn, sources) for each in values)
        arguments.append(_Argument(name, texts if len(set(texts)) > 1 else texts[:1], by_name))
    return arguments


def _text_of(value: Any, seed: str, fn: types.FunctionType, sources: Sources) -> str:
    """An argument as text. One without, or too large, is made as the notebook made it, when it has a name there."""
    text = expression(value, sources.add, seed)
    name = next((name for name, known in fn.__globals__.items() if known is value and not name.startswith("_")), None)
    if text is None or (is_drawn(text) and name is not None):
        text = sources.add(value, name, fn.__globals__)
    return text


def _call(arguments: list[_Argument], sources: Sources, rank: str) -> tuple[list[str], str]:
    """Lines that make the arguments, and the text between the brackets of the call."""
    lines: list[str] = []
    call: list[str] = []
    for argument in arguments:
        variable = _free(argument.name, {*sources.blocks, *sources.imports, "result"})
        texts = [text.replace(_RANK, rank) for text in argument.texts]
        if texts[0] in sources.blocks and len(texts) == 1:
            variable = texts[0]  # defined above, under its own name
        else:
            lines += [_DRAWN] if any(map(is_drawn, texts)) else []
            many = [f"{variable} = [", *(f"    {text}," for text in texts), f"][{rank}]"]
            lines += many if len(texts) > 1 else [f"{variable} = {texts[0]}"]
        call.append(f"{argument.name}={variable}" if argument.by_name else variable)
    return lines, ", ".join(call)


def _positional_names(fn: types.FunctionType, count: int) -> list[str]:
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [name for name, parameter in inspect.signature(fn).parameters.items() if parameter.kind in kinds]
    return [names[i] if i < len(names) else f"argument_{i}" for i in range(count)]


def _free(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    return name


# ------------------------------------------------------------------------------------------ the script's own parts

_DRAWN = "# The real numbers were too many to write here: random ones of the same shape and dtype."


def _head(fn: types.FunctionType, world: int, file: str, fixed: bool) -> str:
    ranks = f"{world} ranks" if fixed else f"{world} ranks, or any other number"
    return f'''"""{fn.__name__} on {ranks}. Written by Lockstep, which it does not need.

    torchrun --standalone --nproc-per-node={world} {file}
    mpiexec -n {world} python {file}

On several hosts set MASTER_ADDR to the name of the first one (torchrun does it by itself).
"""'''


def _imports(sources: Sources, *more: str) -> str:
    named: dict[str, list[str]] = {}  # what is imported from a module
    for line in {*more, *sources.imports.values()}:
        module, found, name = line.partition(" import ")
        named.setdefault(module, []).extend([name] if found else [])
    whole = (f"{module} import {', '.join(sorted(names))}" if names else module for module, names in named.items())
    lines = sorted(whole, key=lambda line: (line.startswith("from "), line))
    standard = [line for line in lines if line.split()[1].split(".")[0] in sys.stdlib_module_names]
    others = [line for line in lines if line not in standard]
    return "\n".join([*standard, "", *others])


_OWN_PORT = """    os.environ.pop("TORCHELASTIC_USE_AGENT_STORE", None)  # rank 0 opens the port that the code names
"""
_LAUNCHED = '''def {launched}():
    """Rank, world size, device and backend. torchrun, OpenMPI, MPICH and its kin tell them by different names."""

    def told(*names, default):
        return next((int(os.environ[name]) for name in names if name in os.environ), default)

    rank = told("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", default=0)
    world = told("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", default=1)
    mpi_ranks = "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "PMI_LOCAL_RANK", "PALS_LOCAL_RANKID"
    mpi_sizes = "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "PMI_LOCAL_SIZE", "PALS_LOCAL_SIZE"
    local_rank = told("LOCAL_RANK", *mpi_ranks, default=rank)
    local_size = told("LOCAL_WORLD_SIZE", *mpi_sizes, default=world)
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world), LOCAL_RANK=str(local_rank))
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29500")
{own_port}
    for kind, backend in (("cuda", "nccl"), ("xpu", "xccl")):
        accelerator = getattr(torch, kind)
        if accelerator.is_available() and accelerator.device_count() >= local_size:  # one for every rank of this host
            accelerator.set_device(local_rank)
            device = torch.device(kind, local_rank)
            torch.set_default_device(device)
            return rank, world, device, backend
    return rank, world, torch.device("cpu"), "gloo"'''


def _main(
    fn: types.FunctionType,
    ours: dict[str, str],
    arguments: list[_Argument],
    sources: Sources,
    insists_on: int | None,
    own_group: bool,
) -> str:
    rank, world, device, backend = (ours[name] for name in ("RANK", "WORLD", "DEVICE", "BACKEND"))
    made, call = _call(arguments, sources, rank)
    lines = []
    if insists_on is not None:
        words = f"the arguments are for {insists_on} ranks, not {{{world}}}: see the top of this file"
        lines += [f"if {world} != {insists_on}:", f'    raise SystemExit(f"{words}")']
    if not own_group:
        lines.append(f"dist.init_process_group({backend}, rank={rank}, world_size={world})")
    if made:
        lines += ["torch.manual_seed(0)  # the ranks begin alike", *made]
    spoken = f"{fn.__name__} on {{{world}}} ranks ({{{backend}}}, {{{device}.type}}); rank 0 has {{result}}"
    lines += [f"result = {fn.__name__}({call})", f"if {rank} == 0:", f'    print(f"{spoken}")']
    if not own_group:
        lines.append("dist.destroy_process_group()")
    return "\n".join([f"def {ours['main']}():", *(f"    {line}" for line in lines)])


def _spaced(parts: list[str]) -> str:
    """Two empty lines around definitions, none between constants that stand together."""
    text = parts[0].rstrip()
    for before, part in zip(parts, parts[1:], strict=False):
        single = "\n" not in before and "\n" not in part
        defines = any(text.startswith(("def ", "class ", "@", "if __name__")) for text in (before, part))
        if part.startswith(("from __future__", "torch.manual_seed")):
            gap = "\n\n"
        elif single:
            gap = "\n"
        else:
            gap = "\n\n\n" if defines else "\n\n"
        text += gap + part.strip("\n")
    return text + "\n"
