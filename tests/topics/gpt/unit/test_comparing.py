"""Trainings that have written hashes are compared by their folders."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kit import cli
from kit.gpt.prints import read_prints
from kit.gpt.recipe import Recipe
from kit.topics.gpt import compare
from kit.topics.gpt.run import Config, prepare

RUN = """
text = "{text}"
[model]
name = "tiny"
[recipe]
steps = 3
warm_up = 1
batch = 2
"""


@pytest.fixture
def text(tmp_path: Path) -> Path:
    file = tmp_path / "text.txt"
    file.write_text("to be, or not to be: that is the question. " * 40)
    return file


def test_two_folders_are_compared_and_the_first_tensor_that_differs_is_named(text: Path, tmp_path: Path) -> None:
    recipe = Recipe(steps=3, warm_up=1, batch=2)
    names = "once", "again", "faster", "elsewhere"
    found = {name: str(tmp_path / name) for name in names}
    (tmp_path / "run.toml").write_text(RUN.format(text=text))
    command = ["train", "--device", "cpu", "--config", str(tmp_path / "run.toml"), "--hashes", found["once"]]
    assert cli.main(command) == 0
    config = Config(str(text), model={"name": "tiny"}, recipe=recipe)
    others = replace(recipe, rate=2 * recipe.rate), replace(recipe, seed=1)
    for name, its in zip(names[1:], (recipe, *others), strict=True):
        for _ in prepare(replace(config, hashes=found[name], recipe=its)).trainer:
            pass
    assert [[sorted(moments) for moments in read_prints(each)] for each in found.values()] == [[[0, 1, 2, 3]]] * 4
    parting = compare(found, tolerance=0)
    assert str(parting).splitlines() == [
        "again beside once: the same within 0 after step 3",
        "faster beside once: the learning rate is the first to differ, after step 1, by 50.0% of its size",
        str(parting).splitlines()[2],
    ]
    assert "elsewhere beside once: the parameter tokens.weight is the first to differ, before" in str(parting)
    assert not parting.same and compare({"once": found["once"], "again": found["again"]}).same


def test_what_cannot_be_compared_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="name at least one training"):
        compare({})
    with pytest.raises(ValueError, match=r"nowhere has no hashes of a training: `lockstep train --hashes FOLDER`"):
        compare({"a": str(tmp_path / "nowhere")})
    (tmp_path / "rank_00000.jsonl").write_text('{"about": 1}\n')
    with pytest.raises(ValueError, match=r"rank_00000\.jsonl has no hashes"):
        compare({"a": tmp_path})
