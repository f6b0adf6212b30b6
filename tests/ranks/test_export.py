"""Exported scripts are plain text that torchrun and mpiexec start: run here, in processes that cannot import kit."""

from __future__ import annotations

import dataclasses
import enum
import functools
import inspect
import linecache
import os
import subprocess
import sys
import types
from collections.abc import Callable
from math import sqrt
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import kit
from kit.run import per_rank
from kit.run.export import script, write
from kit.topics.collectives import reference as collectives
from kit.topics.collectives.reference import ring_all_gather as gather_all
from kit.topics.data_parallel.reference import BucketedDDP
from tests import launch

SCALE = 3
TABLE = {"half": 0.5, "none": None, "shape": (2, 1)}
OFFSETS = torch.tensor([1.0, float("inf"), 3.0])
TRIPLE = lambda value: value * SCALE  # noqa: E731
MODEL = nn.Sequential(nn.Linear(4, 2), nn.ReLU())
ELSEWHERE = open


class Mood(enum.Enum):
    CALM = 1


@dataclasses.dataclass
class Settings:
    rate: float
    mood: Mood = Mood.CALM


class Net(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = nn.Linear(width, SCALE)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.inner(x))


NET = Net(4)


def loud(fn: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(fn)
    def wrapper(*args: Any) -> Any:
        return fn(*args) + 0

    return wrapper


@loud
def helper(x: torch.Tensor) -> torch.Tensor:
    return TRIPLE(x) + OFFSETS[0]


def everything(x: torch.Tensor, settings: Settings, model: nn.Module, *, note: str = "") -> list[Any]:
    from kit.topics.collectives.reference import chunk_sizes

    total = collectives.ring_all_reduce(helper(x))
    parts = kit.topics.collectives.reference.tree_broadcast(total)
    ranks = gather_all(torch.tensor([dist.get_rank()]))
    width = model(torch.ones(1, 4)).shape[1] + NET(torch.ones(1, 4)).shape[1]
    sizes = chunk_sizes(7, dist.get_world_size())
    return [
        parts.tolist(),
        ranks.tolist(),
        width,
        sizes,
        settings.mood.name,
        settings.rate,
        sqrt(4),
        TABLE["shape"],
        note,
    ]


def lecture(first: int = 1) -> int:
    """As scripts of lectures do: its own group, begun and ended."""
    dist.init_process_group("gloo")
    x = torch.tensor(dist.get_rank() + first)
    dist.all_reduce(x)
    if dist.get_rank() == 0:
        print("the sum is", int(x))
    dist.destroy_process_group()
    return int(x)


def sums(x: torch.Tensor, whole: torch.Tensor) -> list[float]:
    dist.all_reduce(x)
    agree = [torch.empty_like(whole) for _ in range(dist.get_world_size())]
    dist.all_gather(agree, whole)
    return [x.sum().item(), float(torch.equal(agree[0], agree[1])), float(whole.shape[0])]


def uses_lockstep(x: torch.Tensor) -> torch.Tensor:
    kit.step(sums, x)
    return x


def first(x: torch.Tensor) -> torch.Tensor:
    return x


def forked(text: str, folder: Path, ranks: int = 2) -> str:
    """What the script says on `ranks` ranks that are started as torchrun starts them."""
    path = folder / "exported.py"
    path.write_text(text)
    return launch.as_torchrun(path, ranks)


def torchrun(text: str, folder: Path, ranks: int = 2) -> str:
    (folder / "exported.py").write_text(text)
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        f"--nproc-per-node={ranks}",
        "exported.py",
    ]
    (folder / "kit.py").write_text("raise ImportError('an exported script imports kit')")
    clean = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "RANK", "WORLD_SIZE", "LOCAL_RANK")}
    clean |= {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    done = subprocess.run(command, env=clean, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr + text
    return done.stdout


def test_the_ring_runs_under_torchrun(tmp_path: Path) -> None:
    text = script(collectives.ring_all_reduce, (per_rank([torch.full((4,), 10.0**r) for r in range(2)]),), world=2)
    assert "import kit" not in text and "from kit" not in text
    want = "ring_all_reduce on 2 ranks (gloo, cpu); rank 0 has tensor([11., 11., 11., 11.])"
    assert torchrun(text, tmp_path).strip() == want
    assert forked(text, tmp_path).strip() == want, "the other tests start ranks like torchrun"


def test_helpers_classes_constants_and_closures_come_along(tmp_path: Path) -> None:
    x = per_rank([torch.tensor([1.0, 2.0]), torch.tensor([5.0, 6.0])])
    text = script(everything, (x, Settings(0.1), MODEL), {"note": 'it\'s "quoted"'}, world=2)
    spoken = forked(text, tmp_path)
    want = [[20.0, 26.0], [0, 1], 5, [4, 3], "CALM", 0.1, 2.0, (2, 1), 'it\'s "quoted"']
    assert spoken.strip().endswith(f"rank 0 has {want}")


def trains() -> float:
    model = BucketedDDP(torch.nn.Linear(2, 1))
    model(torch.ones(1, 2)).sum().backward()
    return sum(float(p.grad.sum()) for p in model.parameters() if p.grad is not None)


def test_names_that_our_rooms_lend_each_other_are_defined_once(tmp_path: Path) -> None:
    text = script(trains, world=2)
    assert text.count("\nGroup = ") == 1 and "import kit" not in text and "from kit" not in text
    assert forked(text, tmp_path).strip().endswith("rank 0 has 3.0")


def test_code_with_a_group_of_its_own_keeps_it(tmp_path: Path) -> None:
    text = script(lecture, (2,), world=2)
    assert text.count("init_process_group(") == 1 and text.count("destroy_process_group(") == 1
    assert forked(text, tmp_path).splitlines() == ["the sum is 5", "lecture on 2 ranks (gloo, cpu); rank 0 has 5"]


def test_code_with_a_group_of_its_own_and_no_arguments_is_the_script(tmp_path: Path) -> None:
    text = script(lecture, world=2, file="sum.py")
    body = inspect.getsource(lecture).strip()
    head = '"""torchrun --standalone --nproc-per-node=2 sum.py"""\n\nimport torch\nimport torch.distributed as dist\n'
    assert text == f'{head}\n\n{body}\n\n\nif __name__ == "__main__":\n    lecture()\n'
    assert forked(text, tmp_path).strip() == "the sum is 3"


def test_large_tensors_are_drawn_alike_or_by_rank(tmp_path: Path) -> None:
    many = per_rank([torch.randn(100), torch.randn(100)])
    text = script(sums, (many, torch.randn(70, 2)), world=2)
    assert "too many to write" in text
    total, agree, rows = eval(forked(text, tmp_path).split("rank 0 has ")[1])
    seeds = [torch.randn((100,), generator=torch.Generator().manual_seed(100 + rank)) for rank in range(2)]
    assert total == pytest.approx(float(sum(seeds).sum()), abs=1e-4)
    assert (agree, rows) == (1.0, 70.0)


@pytest.mark.parametrize(
    "names",
    [
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
        ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
        ("PMI_RANK", "PMI_SIZE", "PALS_LOCAL_RANKID", "PALS_LOCAL_SIZE"),
    ],
    ids=["OpenMPI", "MPICH", "PALS"],
)
def test_the_environment_of_mpiexec_is_read(tmp_path: Path, names: tuple[str, ...]) -> None:
    text = script(collectives.tree_all_reduce, (per_rank([torch.tensor(1), torch.tensor(20)]),), world=2)
    path = tmp_path / "exported.py"
    path.write_text(text)
    port = str(launch.free_port())
    environments = [
        dict(zip(names, map(str, (rank, 2, rank, 2)), strict=True)) | {"MASTER_PORT": port} for rank in range(2)
    ]
    first, second = launch.launch(path, environments)
    assert (first.code, second.code) == (0, 0), (first, second)
    assert first.said.strip() == "tree_all_reduce on 2 ranks (gloo, cpu); rank 0 has 21" and second.said == ""


def test_another_number_of_ranks_is_refused_in_words(tmp_path: Path) -> None:
    path = tmp_path / "exported.py"
    path.write_text(script(first, (per_rank([1, 2, 3]),), world=3))
    (done,) = launch.launch(path, [{}])
    assert done.code == 1 and "the arguments are for 3 ranks, not 1" in done.complained


def test_cells_of_a_notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Functions and classes of cells have no file: their text is in linecache, in the order the cells ran."""
    main = types.ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", main)
    cells = [
        "import torch\nimport torch.distributed as dist\nfrom math import floor as down\n",
        "from dataclasses import dataclass\n@dataclass\nclass Step:\n    size: int\n",
        "%time\nstep = 'not python'\n",
        "class Unit(torch.nn.Linear):\n    def size(self):\n        return len(self.weight)\n",
        "factor = torch.arange(100.0)\nbatch = torch.arange(200.0)\nunit = Unit(8, down(2.5))\nRANK = 7\n",
        "def body(x, step, batch):\n    assert Unit\n    dist.all_reduce(x)\n"
        "    return (x * step.size + factor[2]).tolist(), unit.size(), batch.sum().item(), RANK\n",
    ]
    for number, cell in enumerate(cells):
        file = f"/tmp/ipykernel_{os.getpid()}/{number}.py"
        linecache.cache[file] = (len(cell), None, cell.splitlines(True), file)
        if not cell.startswith("%"):
            exec(compile(cell, file, "exec"), vars(main))
    text = script(main.body, (torch.tensor([1.0]), main.Step(3), main.batch), world=2)
    assert "from math import floor as down\n" in text
    assert "factor = torch.arange(100.0)\n" in text, "a large constant is made as the cell made it"
    assert forked(text, tmp_path).strip().endswith("rank 0 has ([8.0], 2, 19900.0, 7)")


def test_what_cannot_be_written_says_so(tmp_path: Path) -> None:
    nowhere = types.FunctionType(compile("def f(): pass", "<nowhere>", "exec").co_consts[0], {"__name__": "__main__"})
    refused: list[tuple[str, Callable[[], Any]]] = [
        ("kit", lambda: script(uses_lockstep, (1,))),
        ("only a function written with def", lambda: script(TRIPLE, (1,))),
        ("only a function written with def", lambda: script(print)),
        ("no source is known", lambda: script(nowhere)),
        ("make it in the function", lambda: script(first, (object(),))),
        ("choose a folder", lambda: write(tmp_path / "no" / "such" / "x.py", first, (1,), {}, 2)),
    ]
    for words, call in refused:
        with pytest.raises(ValueError, match=words):
            call()


def names_a_port(port: int) -> int:
    """As a lecture does, which starts its ranks by itself."""
    os.environ["MASTER_ADDR"] = "localhost"
    os.environ["MASTER_PORT"] = str(port)
    dist.init_process_group("gloo", rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]))
    x = torch.ones(1)
    dist.all_reduce(x)
    dist.destroy_process_group()
    return int(x)


def test_a_port_that_the_code_names_is_opened_where_torchrun_has_opened_another(tmp_path: Path) -> None:
    path = tmp_path / "exported.py"
    path.write_text(script(names_a_port, (launch.free_port(),), world=2))
    common = {"WORLD_SIZE": "2", "MASTER_PORT": str(launch.free_port()), "TORCHELASTIC_USE_AGENT_STORE": "True"}
    first, _ = launch.launch(path, [{"RANK": str(rank), "LOCAL_RANK": str(rank), **common} for rank in range(2)])
    assert first.said.strip() == "names_a_port on 2 ranks (gloo, cpu); rank 0 has 2", first.complained
