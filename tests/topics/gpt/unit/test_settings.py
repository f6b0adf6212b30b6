"""Whatever nonsense a training is asked for, it is refused in one sentence, before its first step."""

from __future__ import annotations

from pathlib import Path

import pytest

from kit.topics.gpt.run import Config, prepare

MODEL = "[model]\nn_layer = 1\nn_head = 1\nn_embd = 8\nblock_size = 8\n"
RECIPE = "[recipe]\nsteps = 2\nwarm_up = 0\nbatch = 2\n"


def of_model(line: str) -> str:
    return f"{MODEL}{line}\n{RECIPE}"


def of_recipe(line: str) -> str:
    return f"{MODEL}{RECIPE}{line}\n"


NONSENSE = {
    "text = 5": "text is text in quotes, not 5",
    "modern = 'yes'": "modern is true or false, not 'yes'",
    "recipe = 3": "recipe is a table, not 3",
    "model = 'cpu'": "model is a table, not 'cpu'",
    "pad = 0": "pad is 0: it must be at least 1",
    "save_every = 0": "save_every is 0: it must be at least 1",
    "stategy = 'ddp'": "says 'stategy': did you mean 'strategy'",
    "strategy = 'zero9'": "'zero9' is no strategy: choose single, ddp",
    "strategy = 'ddp=2'": "does not say how 1 rank is shared out",
    "tokens = 'words'": "GPT-2's vocabulary is not here",
    "text = 'nowhere.txt'": "there is no file 'nowhere.txt'",
    "text = 'one.txt'": "one character over and over",
    "text = 'empty.txt'": "is empty: there is nothing to train on",
    "text = 'binary.txt'": "is not UTF-8 text .*: convert it first",
    "text = 'folder'": "there are no files tokens_",
    "text = 'short.txt'": "use a longer text or a shorter block",
    of_model("n_layers = 1"): r"\[model\] says 'n_layers': did you mean 'n_layer'",
    of_model("name = 'huge'"): "no GPT is named 'huge': choose one of gpt2",
    of_model("dropout = 2.0"): "dropout is 2.0: choose at least 0 and less than 1",
    of_model("bias = 1"): "bias is true or false, not 1",
    MODEL.replace("n_head = 1", "n_head = 3"): "8 channels do not divide by 3 heads",
    MODEL.replace("n_layer = 1", "n_layer = 0"): "n_layer is 0: it must be at least 1",
    MODEL.replace("n_embd = 8", "n_embd = 8.5"): "n_embd is a whole number, not 8.5",
    of_recipe("rate = -1.0"): "rate is 0 or more, not -1.0",
    of_recipe("rate = nan"): "rate is 0 or more, not nan",
    of_recipe("rate = inf"): "rate is inf",
    of_recipe("rate = '3e-4'"): "rate is a number, not '3e-4'",
    of_recipe("betas = [0.9]"): "betas is a list of 2 numbers",
    of_recipe("betas = [0.9, 1.5]"): "betas are two shares that the past has",
    of_recipe("optimizer = 'sgd'"): "optimizer is 'adamw' or 'muon', not 'sgd'",
    of_recipe("total_batch = 33"): "33 tokens in a step do not divide .*: take 32",
    of_recipe("total_batch = 'all'"): "total_batch is a whole number, not 'all'",
    "[recipe]\nbatch = 2.5": "batch is a whole number, not 2.5",
    "[recipe]\nbatch = true": "batch is a whole number, not True",
    "[recipe]\nsteps = 3\nwarm_up = 3": "a warm-up of 3 steps does not fit in 3",
    "[extras]\nprecision = 'fp8'": "precision is 'fp8': choose fp32 or tf32",
    "[extras]\ncompile = 'nonsense'": "torch.compile has no backend 'nonsense': choose inductor",
    "[extras]\nrecompute = 'yes'": "recompute is true or false",
    "{json: 1": "cannot be read as a configuration in TOML",
}


@pytest.mark.parametrize("text", NONSENSE)
def test_nonsense_is_refused_in_a_sentence(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text("to be, or not to be: that is the question. " * 40)
    Path("one.txt").write_text("a" * 2000)
    Path("empty.txt").write_text("")
    Path("short.txt").write_text("abc")
    Path("binary.txt").write_bytes(bytes([0x80, 0xFF, 0x00]) * 2000)
    Path("folder").mkdir()
    begun = "" if text.startswith("text") else "text = 'text.txt'\n"
    whole = "" if "[" in text or "model" in text or "recipe" in text else MODEL + RECIPE
    Path("run.toml").write_text(f"{begun}{text}\n{whole}")
    with pytest.raises(ValueError, match=NONSENSE[text]) as refused:
        prepare(Config.read(Path("run.toml")))
    assert "\n" not in str(refused.value)
