"""`lockstep train` with ranks of its own, and under torchrun."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
import torch

from kit import cli
from tests.launch import free_port

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


def losses(log: str) -> list[float]:
    """Of each step that it tells of."""
    return [float(loss) for loss in re.findall(r"loss=([0-9.]+) lr=", log)]


def terminated_after_a_step(log: Path) -> None:
    while not log.exists() or '"step"' not in log.read_text():
        time.sleep(0.05)
    os.kill(os.getpid(), signal.SIGTERM)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "text.txt").write_text("to be, or not to be: that is the question. " * 40)
    file = tmp_path / "run.toml"
    file.write_text(CONFIG.format(text=tmp_path / "text.txt"))
    return file


def test_ranks_of_its_own_and_those_of_a_launcher_train_as_one_does(
    config: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of them speaks. A launcher's ranks are told by their environment, here of a world of one. SIGTERM, as at the
    end of a batch job's time, is answered by a last checkpoint of all ranks.
    """

    def said(code: int, *switches: str) -> str:
        assert cli.main(["train", "--device", "cpu", "--config", str(config), "--strategy", *switches]) == code
        return capfd.readouterr().out

    def trained(*switches: str) -> list[float]:
        return losses(said(0, *switches))

    alone = trained("single")
    assert len(alone) == 3
    save = ("--checkpoints", str(tmp_path / "kept"))
    assert trained("single", *save, "--steps", "2") == pytest.approx(alone[:2], abs=ROUNDED)
    log = tmp_path / "log"
    threading.Thread(target=terminated_after_a_step, args=(log,), daemon=True).start()
    endless = ("--resume", "--steps", "1000000", "--log", str(log))
    ended = said(128 + signal.SIGTERM, "zero2", "--ranks", "2", *save, *endless)
    assert losses(ended)[0] == pytest.approx(alone[2], abs=ROUNDED)
    done = 2 + len(losses(ended))
    assert f"SIGTERM: ended after step {done} of 1000000; --resume goes on from there" in ended.splitlines()[-1]
    assert ended.splitlines()[-2].endswith(f"step_{done:08d}")
    told = {"TORCHELASTIC_RUN_ID": "test", "RANK": 0, "LOCAL_RANK": 0, "WORLD_SIZE": 1, "MASTER_ADDR": "127.0.0.1"}
    for name, value in {**told, "MASTER_PORT": free_port(), "GLOO_SOCKET_IFNAME": "lo"}.items():
        monkeypatch.setenv(name, str(value))
    assert trained("ddp", "--ranks", "7") == pytest.approx(alone, abs=ROUNDED), "it takes the ranks there are"


def test_torchrun_itself_starts_the_same_trainer(config: Path, request: pytest.FixtureRequest) -> None:
    if not request.config.getoption("--full-matrix"):
        pytest.skip("torchrun and its ranks take half a minute: in the full matrix")
    run = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "kit.cli")
    train = ("train", "--device", "cpu", "--config", str(config), "--strategy")
    ran = subprocess.run([*run, *train, "ddp"], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    alone = subprocess.run([sys.executable, "-m", "kit.cli", *train, "single"], capture_output=True, text=True)
    assert losses(ran.stdout) == pytest.approx(losses(alone.stdout), abs=ROUNDED) and len(losses(ran.stdout)) == 3


def test_what_ranks_refuse_is_said_once_and_as_one_of_them_says_it(
    config: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    command = ["train", "--config", str(config), "--device", "cpu", "--ranks", "2"]
    assert cli.main([*command, "--strategy", "ddp=2 x tp=2"]) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("lockstep train: 'ddp=2 x tp=2' does not say how 2 ranks are shared out")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_device_that_there_is_not_is_said(config: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["train", "--config", str(config), "--device", "cuda"]) == 2
    assert "torch sees no CUDA device here" in capfd.readouterr().err


def test_more_ranks_than_there_is_memory_for_are_refused(config: Path, capfd: pytest.CaptureFixture[str]) -> None:
    command = ["train", "--config", str(config), "--device", "cpu", "--strategy", "ddp", "--ranks"]
    assert cli.main([*command, "1000000"]) == 2
    assert "1000000 ranks need about 200,000 GB beside the model" in capfd.readouterr().err


def test_a_training_killed_at_any_moment_goes_on_to_the_same_end(
    config: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Ranks are killed ten times, one or all of them, at moments drawn at random; what is left goes on each time."""
    if not request.config.getoption("--full-matrix"):
        pytest.skip("ten trainings that are killed take a minute: in the full matrix")
    config.write_text(config.read_text().replace("steps = 3", "steps = 400"))
    said = [sys.executable, "-m", "kit.cli", "train", "--config", str(config), "--device", "cpu", "--ranks", "2"]
    said += ["--strategy", "zero1", "--resume", "--checkpoints"]
    once = subprocess.run([*said, str(tmp_path / "once")], capture_output=True, text=True, check=True)
    kept = tmp_path / "killed"
    config.write_text("save_every = 5\n" + config.read_text())
    draw = random.Random(0)
    lines: dict[int, float] = {}
    for kill in range(11):
        with subprocess.Popen([*said, str(kept)], stdout=subprocess.PIPE, text=True) as run:
            if kill < 10:
                threading.Timer(4 + 2 * draw.random(), kill_some, [run.pid, draw.random() < 0.5]).start()
            assert run.stdout is not None
            lines |= {int(step): float(loss) for step, loss in LINE.findall(run.stdout.read())}
    assert run.returncode == 0
    assert lines == {int(step): float(loss) for step, loss in LINE.findall(once.stdout)}


LINE = re.compile(r"step=(\d+) loss=([0-9.]+) lr=")


def kill_some(parent: int, one: bool) -> None:
    """One rank, or all of them with the process that has started them."""
    with suppress(psutil.NoSuchProcess):  # it has come to its end
        started = psutil.Process(parent)
        ranks = started.children(recursive=True)
        for process in ranks[-1:] if one else [started, *ranks]:
            process.kill()
