"""Each lab from its first cell to its last, on real ranks, as papermill runs it: solved, and untouched."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import papermill
import pytest

from kit import resources

LABS = sorted(resources.labs().glob("[0-9][0-9]_*.ipynb"))
SCRIPTS = {
    "00_ranks": "meet.py",
    "01_collectives": "ring.py",
    "03_data_parallel": "train.py",
    "04_zero": "zero.py",
}
LOSS = r"rank 0 has [1-4]\.\d+"
SAYS = {"03_data_parallel": LOSS, "04_zero": LOSS}  # the others: the sum, in which every rank put its power of ten

every_lab = pytest.mark.parametrize("path", LABS, ids=lambda path: path.stem)


def run(path: Path, world: int, folder: Path, monkeypatch: pytest.MonkeyPatch, solutions: bool) -> dict[str, Any]:
    """The notebook as it stands after all its cells ran; raises for a cell with an error."""
    monkeypatch.setenv("LOCKSTEP_VERDICTS", str(folder / "verdicts.jsonl"))
    monkeypatch.setenv("LOCKSTEP_SOLUTIONS", "1" if solutions else "0")
    done = folder / "done.ipynb"
    papermill.execute_notebook(
        str(path),
        str(done),
        parameters={"ranks": world},
        kernel_name="python3",
        cwd=str(folder),
        execution_timeout=120,
        progress_bar=False,
    )
    return json.loads(done.read_text(encoding="utf-8"))


def verdicts(folder: Path) -> Counter[str]:
    lines = (folder / "verdicts.jsonl").read_text(encoding="utf-8").splitlines()
    return Counter(json.loads(line)["outcome"] for line in lines)


def said(notebook: dict[str, Any], name: str) -> str:
    """Everything a cell put out, as text."""
    cell = next(cell for cell in notebook["cells"] if cell["id"] == name)
    plain = [output.get("text") or output.get("data", {}).get("text/plain", "") for output in cell["outputs"]]
    return "\n".join("".join(text) for text in plain)


def exercises(path: Path) -> int:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return sum("@exercise(" in "".join(cell["source"]) for cell in cells)


def torchrun(script: Path, world: int) -> str:
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        str(world),
        script.name,
    ]
    environment = {
        name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "LOCKSTEP_SOLUTIONS")
    }
    done = subprocess.run(
        command, cwd=script.parent, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@every_lab
def test_solved(path, lab_ranks, tmp_path, monkeypatch):
    notebook = run(path, lab_ranks, tmp_path, monkeypatch, solutions=True)
    assert verdicts(tmp_path) == {"passed": exercises(path)}
    assert all(cell.get("execution_count") for cell in notebook["cells"] if cell["cell_type"] == "code")
    script = tmp_path / SCRIPTS[path.stem]
    assert not re.search(r"^\s*(import|from) kit\b", script.read_text(encoding="utf-8"), re.MULTILINE)
    assert re.search(SAYS.get(path.stem, "1" * lab_ranks), torchrun(script, lab_ranks))
    if lab_ranks == 3:
        PROMISES[path.stem](notebook)


@every_lab
def test_untouched(path, lab_ranks, tmp_path, monkeypatch):
    run(path, lab_ranks, tmp_path, monkeypatch, solutions=False)
    assert verdicts(tmp_path) == {"not attempted": exercises(path)}


def ranks_promises(notebook: dict[str, Any]) -> None:
    """At three ranks, what the prose of lab 00 tells the reader to look at."""
    assert len(set(re.findall(r"process (\d+)", said(notebook, "see-hello-run")))) == 4
    assert re.findall(r"rank (\d) of 2, local rank", said(notebook, "see-launcher-by-hand-run")) == ["0", "1"]
    assert re.findall(r"rank (\d) of 2, local rank", said(notebook, "see-torchrun-run")) == ["0", "1"]
    assert re.findall(r"rank (\d): (\d+)", said(notebook, "predict-memory-run")) == [
        ("0", "1"),
        ("1", "10"),
        ("2", "100"),
    ]
    assert "rank 0 waits in all_reduce" in said(notebook, "step-alone-run")
    assert said(notebook, "step-free-run").count("111.0") == 3
    hang = said(notebook, "break-hang-run")
    assert "Deadlock: ranks 0, 2 wait in all_reduce" in hang and "rank 1 finished without it" in hang
    assert "I am 2 of 3" in said(notebook, "break-rescue-run")
    assert "Deadlock" in said(notebook, "break-record-run")


def collectives_promises(notebook: dict[str, Any]) -> None:
    """At three ranks, what the prose of lab 01 tells the reader to look at."""
    assert said(notebook, "see-all-reduce-run").count("[111, 111]") == 3
    assert "rank 2: [333, 333]" in said(notebook, "see-reduce-scatter-run")
    assert "rank 1: [1, 11, 21]" in said(notebook, "see-all-to-all-run")
    assert "rank 0: 4.00 MB" in said(notebook, "predict-root-run")
    halves = [re.findall(r"\d+", line)[1:] for line in said(notebook, "step-half-run").strip().splitlines()]
    assert [chunks.count("111") for chunks in halves] == [1, 1, 1]
    assert [column.count("111") for column in zip(*halves, strict=True)] == [1, 1, 1]
    assert said(notebook, "step-hold-run").count("waits in") == 2
    assert "1.33 x 1.33 x 1.33 x" in said(notebook, "measure-ring-run")
    phases = said(notebook, "measure-async-step").splitlines()
    assert [("waits in" in line) for line in phases] == [False, False, True]
    assert "Deadlock" in said(notebook, "break-send-run")
    assert "same operation in the same order" in said(notebook, "break-order-run")
    assert "4 x float32" in said(notebook, "break-shape-run") and "8 x float32" in said(notebook, "break-shape-run")


def data_parallel_promises(notebook: dict[str, Any]) -> None:
    """At three ranks, what the prose of lab 03 tells the reader to look at."""
    assert len(set(re.findall(r"first weight (\S+),", said(notebook, "see-forward-run")))) == 1
    assert len(set(re.findall(r"loss (\S+)", said(notebook, "see-forward-run")))) == 3
    assert said(notebook, "predict-average-run").count("[37.0, 74.0]") == 3
    assert said(notebook, "step-whole-run").count("[37.0, 74.0]") == 2
    for line in said(notebook, "step-shorter-run").splitlines()[1:]:
        *lengths, mean = map(float, line.split()[1:])
        assert len(lengths) == 3 and mean < sum(lengths) / 3, line
    assert len(set(re.findall(r"([\d,]+) bytes", said(notebook, "measure-bytes-run")))) == 1
    assert re.search(r"sampler .* 0\.0%", said(notebook, "measure-ways-run"))
    alone, same, own = said(notebook, "break-seed-run").strip().split("\n\n")
    assert {line.partition(":")[2] for line in same.splitlines()[1:]} == {alone.splitlines()[1].partition(":")[2]}
    assert len({line.partition(":")[2] for line in own.splitlines()[1:]}) == 3
    apart, equal = said(notebook, "break-start-run").split("broadcast=")[1:]
    starts = [len(set(re.findall(r"weight: (\S+) at", text))) for text in (apart, equal)]
    steps = [len(set(re.findall(r"start, (\S+) by", text))) for text in (apart, equal)]
    assert (starts, steps) == ([3, 1], [1, 1])
    adam, adam_sum, sgd, sgd_sum = re.findall(r"loss (\S+) after", said(notebook, "break-divide-run"))
    assert abs(float(adam) - float(adam_sum)) < 1e-2 and abs(float(sgd) - float(sgd_sum)) > 1e-2 or sgd_sum == "nan"
    assert "expert     [232.0, 232.0]" in said(notebook, "break-skip-run")
    assert "Deadlock: ranks 0, 2 wait in all_reduce (line 7)" in said(notebook, "break-skip-wait")
    assert re.findall(r"(\d+) all-reduces", said(notebook, "quiet-run")) == ["36", "9"]
    counts = [line.split("  ")[-1] for line in re.findall(r"(?m)^(.*?)(?: +\S+ ms){3}$", said(notebook, "tune-table"))]
    assert [int(count) for count in counts] == [21, 14, 9, 4, 1]
    furthest = [float(distance) for distance in re.findall(r"\d\.?\d*e[-+]\d+", said(notebook, "torch-same-run"))]
    assert len(furthest) == 9 and max(furthest) < 1e-6  # fp32 sums in another order, three steps
    for cell, best in (("rate-low-run", "linear"), ("rate-high-run", "same")):
        ends = dict(re.findall(r"\((\w+)\): (\S+)", said(notebook, cell)))
        assert min(ends, key=lambda rule: float(ends[rule])) == best, ends


def zero_promises(notebook: dict[str, Any]) -> None:
    """At three ranks, what the prose of lab 04 tells the reader to look at."""
    assert len(set(re.findall(r"their norm (\S+)", said(notebook, "see-sixteen-run")))) == 1
    assert len(set(re.findall(r"loss (\S+),", said(notebook, "see-sixteen-run")))) == 3
    losses = [float(loss) for loss in re.findall(r"stage \d: loss (\S+)", said(notebook, "predict-same-run"))]
    assert len(losses) == 4 and max(losses) - min(losses) < 1e-4  # fp32 sums in another order, two steps
    rows = re.findall(r"(?m)^rank \d +(\d+ +\d+ +\d+)$", said(notebook, "step-between-run"))
    assert [row.split() for row in rows[:3]] == [["0", "0", "0"]] * 3
    assert [row.split().index("111") for row in rows[3:]] == [0, 1, 2]
    calls = dict(re.findall(r"(?m)^(\w+) +(.*)$", said(notebook, "step-two-run")))
    assert calls["forward"].split() == ["G"] * 7  # six layers, and what belongs to none
    assert (calls["backward"].split().count("G"), calls["backward"].split().count("R")) == (6, 7)
    ratios = re.findall(r"([\d.]+) x ", said(notebook, "measure-rest-run"))
    assert len(ratios) == 4 and all(abs(float(ratio) - 1) < 0.05 for ratio in ratios)
    took = re.findall(r"gather behind (\w+) +(\d+) ms", said(notebook, "measure-hide-run"))
    assert [name for name, _ in took] == ["nothing", "step", "forward"]
    assert "405B           never    never    never  54 nodes" in said(notebook, "measure-polaris-run")
    kept = re.findall(r"\[(.*?)\]\.\.\., optimizer state ([\d,]+) bytes", said(notebook, "break-whole-run"))
    assert kept[0][0] == kept[1][0]
    assert int(kept[1][1].replace(",", "")) == 3 * int(kept[0][1].replace(",", ""))
    assert said(notebook, "break-late-run").count("should have been 111") == 3
    assert all(count != "0" for count in re.findall(r"rank \d: (\S+) NaNs", said(notebook, "break-nan-run")))
    assert "rank 1 has a NaN in its own gradient of blocks.3" in said(notebook, "break-check-run")
    assert "rank 1 died in all_gather" in said(notebook, "break-dies-run")
    again, first = re.findall(r"\d+\.\d{4}", said(notebook, "break-rescue-run"))
    assert again == first


PROMISES = {
    "00_ranks": ranks_promises,
    "01_collectives": collectives_promises,
    "03_data_parallel": data_parallel_promises,
    "04_zero": zero_promises,
}
