"""A training from a file: what it may say, what it trains, and what its log says."""

from __future__ import annotations

import json
import os
import re
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.multiprocessing.spawn import ProcessExitedException

from kit import cli
from kit.gpt.bpe import _letters
from kit.gpt.recipe import Recipe
from kit.gpt.trainer import StepReport
from kit.topics.gpt import launch, run
from kit.topics.gpt.log import Log
from kit.topics.gpt.reference import Layout
from kit.topics.gpt.run import Config, check_asked, prepare, train
from tests.unit.gpt.test_gpt2 import gpt2, write_safetensors

TINY = """
strategy = "single"
[model]
name = "tiny"
[recipe]
steps = 3
warm_up = 1
batch = 2
validate_every = 3
betas = [0.9, 0.95]
"""


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    (tmp_path / "text.txt").write_text("to be, or not to be: that is the question. " * 40)
    file = tmp_path / "run.toml"
    file.write_text(f'text = "{tmp_path / "text.txt"}"\n{TINY}')
    return file


def test_a_file_says_what_is_trained(tiny: Path) -> None:
    config = Config.read(tiny)
    assert config.recipe == Recipe(steps=3, warm_up=1, batch=2, validate_every=3)
    training = prepare(config)
    assert training.tokenizer is not None
    assert training.model.vocab_size == training.tokenizer.size == 16
    assert prepare(replace(config, pad=10)).model.vocab_size == 20
    assert [step.number for step in training.trainer] == [0, 1, 2]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("stategy = 'ddp'", "says 'stategy': did you mean 'strategy'"),
        ("[recipe]\nstep = 1", r"\[recipe\].*'step'"),
        ("a =", "TOML"),
    ],
)
def test_a_file_that_makes_no_sense_is_refused(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "run.toml"
    file.write_text(text)
    with pytest.raises(ValueError, match=message):
        Config.read(file)


def test_the_same_seed_is_the_same_curve_and_another_is_not(tiny: Path) -> None:
    config = Config.read(tiny)
    said: list[str] = []
    first = [step.loss for step in prepare(config).trainer]
    train(config, say=said.append)
    assert first == [step.loss for step in prepare(config).trainer]
    assert first != [step.loss for step in prepare(replace(config, recipe=replace(config.recipe, seed=1))).trainer]
    steps = [line for line in said if "dtf=" in line]
    assert [
        f"step={k + 1} loss={loss:.4f}" in line for k, (loss, line) in enumerate(zip(first, steps, strict=True))
    ] == [True] * 3
    assert said[-1].startswith("step=3 train_loss=") and "val_loss=" in said[-1]


def test_the_command_trains_and_refuses_in_a_sentence(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["train", "--config", str(tiny), "--device", "cpu", "--steps", "1"]) == 0
    assert "step=1 loss=" in capsys.readouterr().out
    assert cli.main(["train", "--config", str(tiny), "--device", "cpu", "--strategy", "zero4"]) == 2
    assert "'zero4' is no strategy" in capsys.readouterr().err
    assert cli.main(["train", "--config", str(tiny), "--device", "cpu", "--strategy", "zero1"]) == 2
    assert "add ranks" in capsys.readouterr().err


def test_the_command_turns_the_ladder(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def said(*switches: str) -> tuple[int, str, str]:
        code = cli.main(["train", "--config", str(tiny), "--device", "cpu", "--steps", "1", *switches])
        return code, *capsys.readouterr()

    assert said("--precision", "tf32")[0] == 2
    assert "and this is a CPU" in said("--precision", "tf32")[2]
    code, out, _ = said("--precision", "fp16", "--attention", "plain", "--adamw", "plain", "--recompute", "--pad", "8")
    assert code == 0 and "fp16 on a CPU" in out and "matrices in fp32" in out
    code, out, _ = said("--precision", "bf16", "--total-batch", "64")
    assert code == 0 and "matrices in bf16" in out
    assert float(_value(out, "sps")) * float(_value(out, "dt")) == pytest.approx(64 / 8, rel=0.05), "windows of a step"
    assert "do not divide into micro-batches" in said("--total-batch", "65")[2]


def _value(log: str, name: str) -> str:
    return log.split(f" {name}=")[1].split()[0]


def test_token_shards_train_as_the_text_they_were_written_from(tiny: Path, tmp_path: Path) -> None:
    """They are mapped, not read, lie in several files, and say what their tokens are."""
    config = Config.read(tiny)
    shards = str(tmp_path / "shards")
    assert cli.main(["shards", config.text, shards, "--size", "500"]) == 0
    assert len(list(Path(shards).glob("*.bin"))) == 4
    of_shards = prepare(replace(config, text=shards))
    assert [step.loss for step in of_shards.trainer] == [step.loss for step in prepare(config).trainer]
    assert of_shards.tokenizer is not None and of_shards.tokenizer.decode([1, 0]) == ", "
    assert cli.main(["shards", config.text, shards]) == 2, "there are some already"
    (Path(shards) / "tokens.json").unlink()
    known = replace(config, text=shards, model={"name": "tiny", "vocab_size": 16})
    assert [step.loss for step in prepare(known).trainer] == [step.loss for step in prepare(config).trainer]
    with pytest.raises(ValueError, match="do not say what their tokens are"):
        prepare(known).ask([])
    with pytest.raises(ValueError, match="no file 'nowhere'"):
        prepare(replace(config, text="nowhere"))


def test_a_run_begins_with_gpt2s_weights_and_tokens(tiny: Path, tmp_path: Path) -> None:
    """In a folder as Hugging Face has it: of its tokens each is a byte here."""
    folder = tmp_path / "gpt2"
    folder.mkdir()
    sizes = {"n_layer": 2, "n_head": 2, "n_embd": 8, "n_positions": 6, "vocab_size": 256}
    (folder / "config.json").write_text(json.dumps(sizes))
    (folder / "vocab.json").write_text(json.dumps({letter: byte for byte, letter in enumerate(_letters())}))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    published = gpt2() | {"wte.weight": torch.randn(256, 8)}
    write_safetensors(folder / "model.safetensors", published)
    config = replace(Config.read(tiny), weights=str(folder), tokens=str(folder))
    begun = prepare(config)
    assert torch.equal(begun.trainer.strategy.state()["weight tokens.weight"], published["wte.weight"])
    assert begun.trainer.train.tokens[:5].tolist() == list(b"to be")
    assert begun.model.block_size == 6 and begun.trainer.step().loss > 0
    write_safetensors(folder / "model.safetensors", gpt2())
    (folder / "config.json").write_text(json.dumps(sizes | {"vocab_size": 11}))
    with pytest.raises(ValueError, match="has tokens up to 255, and the model 11 of them"):
        prepare(config)


def test_questions_are_asked_at_the_end(tiny: Path, tmp_path: Path) -> None:
    """And refused at the beginning, where nobody could answer."""
    asked = [{"ctx": "to be", "endings": ["or not to be", "qqq"], "label": 0}] * 3
    file = tmp_path / "questions.jsonl"
    file.write_text("\n".join(map(json.dumps, asked)))
    said: list[str] = []
    config = replace(Config.read(tiny), questions=str(file), model={"name": "tiny", "block_size": 16})
    train(config, say=said.append)
    assert re.fullmatch(r"questions: [03] of 3 right = (0|100)\.00% \(raw [03]\)", said[-1])
    with pytest.raises(ValueError, match="in tp=2 none has: save a checkpoint, and resume it with --strategy single"):
        check_asked(Layout(tp=2), prepare(config).tokenizer)


def test_what_goes_wrong_is_one_sentence(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["train", "--device", "cpu", "--config"]

    def told(text: str, code: int) -> str:
        (tmp_path / "wrong.toml").write_text(text)
        assert cli.main([*command, str(tmp_path / "wrong.toml")]) == code
        error = capsys.readouterr().err
        assert error.startswith("lockstep train: ") and error.count("\n") == 1
        return error

    (tmp_path / "one.txt").write_text("ab")
    assert "a text of 1 tokens has no window" in told(f"text = '{tmp_path / 'one.txt'}'", 2)
    (tmp_path / "alike.txt").write_text("a" * 4000)
    assert "nothing to learn" in told(f"text = '{tmp_path / 'alike.txt'}'\n{TINY}", 2)
    (tmp_path / "picture").write_bytes(b"\x89PNG\r\n\xff\xfe")
    assert "not UTF-8 text" in told(f"text = '{tmp_path / 'picture'}'", 2)
    nan = tiny.read_text().replace("[recipe]", "[recipe]\nrate = 1e30")
    assert "no weight was changed" in told(nan, 1)

    def dies(*_: object, **__: object) -> None:
        raise ProcessExitedException("", 1, 0, -9, "SIGKILL")

    monkeypatch.setattr(launch, "spawn", dies)
    command[1:1] = ["--ranks", "2", "--strategy", "ddp"]
    assert "rank 1 was ended by SIGKILL, and the others with it: --resume goes on" in told(tiny.read_text(), 1)


def test_sigterm_saves_a_last_checkpoint_and_a_resume_goes_on_from_it(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As at the end of a batch job's time. Without checkpoints there is nothing to wait for."""
    kept = tmp_path / "kept"
    train = ["train", "--device", "cpu", "--config", str(tiny)]
    line = Log.line
    with monkeypatch.context() as patch:

        def ended(log: Log, step: StepReport) -> str:
            if step.number == 1:
                os.kill(os.getpid(), signal.SIGTERM)
            return line(log, step)

        patch.setattr(Log, "line", ended)
        assert cli.main([*train, "--checkpoints", str(kept)]) == 128 + signal.SIGTERM
        said = capsys.readouterr().out.splitlines()
        assert said[-1] == "SIGTERM: ended after step 2 of 3; --resume goes on from there"
        assert said[-2] == f"saved {kept / 'step_00000002'}"
        assert cli.main(train) == 130
        assert "interrupted" in capsys.readouterr().err
    assert cli.main([*train, "--checkpoints", str(kept), "--resume"]) == 0
    assert "going on after step 2" in capsys.readouterr().out
    wider = tmp_path / "wider.toml"
    wider.write_text(tiny.read_text().replace("[model]", "[model]\nn_embd = 32"))
    assert cli.main([*train[:-1], str(wider), "--checkpoints", str(kept), "--resume"]) == 2
    error = capsys.readouterr().err
    assert "step_00000003 is of another model: its n_embd is 16, and here it is 32. Name another folder" in error


def test_a_logs_mfu_is_that_of_wordplay_from_its_dt() -> None:
    """S0: 85.00M parameters, 12 layers of 768, block 1024, batch 64 on each of 4 A100 in bf16 (312 T): dt 0.285 s."""
    from kit.cost.training import flops_per_token
    from kit.gpt.model import GPT, GPTConfig

    with torch.device("meta"):
        model = GPT(GPTConfig.named("wordplay"))
    assert (model.count(positions=False), model.count()) == (85_003_776, 85_790_208)
    flops = flops_per_token(parameters=model.count(positions=False), layers=12, channels=768, sequence=1024)
    spent = {"data": 0.005, "forward": 0.1, "backward": 0.17, "update": 0.01}
    step = StepReport(9, 3.15, 1.0, 6e-4, 4 * 64, 4 * 64 * 1024, spent)
    line = Log(4, 312e12, flops).line(step)
    assert "step=10 loss=3.1500" in line and "dt=0.2850 dtf=0.1000 dtb=0.1700" in line
    assert "tps_per_gpu=229951" in line and "mfu=45.94%" in line  # S0 says 231,000 and 46 %
    staged = Log(4, 312e12, flops).line(replace(step, spent={"pipeline": 0.285}))
    assert "dt=0.2850 sps=" in staged, "where forward and backward interleave neither is told"


@pytest.mark.parametrize(
    ("strategy", "alike"), [("ddp=2 x pp", [0, 1, 2, 3]), ("tp=2 x pp", [0, 0, 1, 1]), ("ddp=2 x tp=2", [0, 0, 1, 1])]
)
def test_replicas_and_stages_drop_other_elements(
    tiny: Path, strategy: str, alike: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And ranks of one tensor-parallel group the same, outside of what they share."""
    config, lone = replace(Config.read(tiny), strategy=strategy), run.lay_out
    monkeypatch.setattr(run.dist, "is_initialized", lambda: True)
    monkeypatch.setattr(run.dist, "get_world_size", lambda: 4)
    monkeypatch.setattr(run, "lay_out", lambda model, layout, *how: lone(model, Layout(), *how))
    drawn = []
    for rank in range(4):
        monkeypatch.setattr(run.dist, "get_rank", lambda rank=rank: rank)
        prepare(config)
        drawn.append(torch.initial_seed())
    assert [sorted(set(drawn)).index(seed) for seed in drawn] == alike
