"""`lockstep train` with ranks of its own, and under torchrun."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROUNDED = 2e-4  # a log has four decimals: two that agree to 1e-5 may be rounded apart

CONFIG = """
text = "{text}"
[model]
name = "tiny"
[recipe]
steps = 3
warm_up = 1
batch = 1
total_batch = 16
validate_every = 3
"""


def losses(*command: str) -> list[float]:
    """Of each step that a command tells of."""
    ran = subprocess.run([sys.executable, "-m", *command], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return [float(loss) for loss in re.findall(r"loss=([0-9.]+) lr=", ran.stdout)]


def test_ranks_of_its_own_and_those_of_torchrun_train_as_one_does(tmp_path: Path) -> None:
    """One of them speaks."""
    (tmp_path / "text.txt").write_text("to be, or not to be: that is the question. " * 40)
    (tmp_path / "run.toml").write_text(CONFIG.format(text=tmp_path / "text.txt"))
    train = ("kit.cli", "train", "--device", "cpu", "--config", str(tmp_path / "run.toml"), "--strategy")
    alone = losses(*train, "single")
    assert len(alone) == 3
    save = ("--checkpoints", str(tmp_path / "kept"))
    assert losses(*train, "single", *save, "--steps", "2") == pytest.approx(alone[:2], abs=ROUNDED)
    assert losses(*train, "zero2", "--ranks", "2", *save, "--resume") == pytest.approx(alone[2:], abs=ROUNDED)
    assert losses(
        "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", *train, "ddp"
    ) == pytest.approx(alone, abs=ROUNDED)
