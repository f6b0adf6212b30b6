"""A training that goes on on two ranks while the kernel is free."""

from __future__ import annotations

import resource
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kit.gpt.recipe import Recipe
from kit.run.errors import RanksHeld
from kit.run.live import LiveRunner
from kit.topics.gpt import compare, live
from kit.topics.gpt.history import History
from kit.topics.gpt.live import Training, start
from kit.topics.gpt.run import Config, prepare

MANY = 1_000_000  # steps: more than a test waits for


@pytest.fixture
def config(tmp_path: Path) -> Config:
    (tmp_path / "text.txt").write_text("to be, or not to be: that is the question. " * 60)
    recipe = Recipe(steps=12, warm_up=1, batch=2, total_batch=64, validate_every=6, validation=1)
    kept = str(tmp_path / "kept")
    return Config(str(tmp_path / "text.txt"), strategy="zero2", checkpoints=kept, model={"name": "tiny"}, recipe=recipe)


@pytest.fixture
def two(cluster_of: Callable[[int], LiveRunner]) -> LiveRunner:
    return cluster_of(2)


def reached(run: Training, steps: int) -> None:
    run.wait(step=steps)
    assert run.history.done >= steps, run


def endless(config: Config) -> Config:
    """Which is saved when it is asked to, alone."""
    return replace(config, recipe=replace(config.recipe, steps=MANY), save_every=MANY)


def test_it_trains_as_one_rank_does_and_is_steered_and_stepped_through(
    config: Config, two: LiveRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "SLICE", 1e-9)  # a step at a time
    monkeypatch.setattr(live, "SAMPLE_EVERY", 6)
    alone = [step.loss for step in prepare(replace(config, strategy="single", checkpoints="")).trainer]
    run = start(config, two)
    run.pause()
    assert run.state == "paused"
    with pytest.raises(RanksHeld, match=r"run\.stop\(\) frees them"):
        two.record(_world)
    with pytest.raises(RanksHeld, match="a training has these ranks"):
        start(config, two)
    with pytest.raises(ValueError, match="0 or more"):
        run.rate = -1
    with pytest.raises(ValueError, match="not among"):
        run.prompt = "Z"
    run.prompt = "to be"
    done = run.history.done
    session = run.step_through()
    source = session.trace.source(session.state.states[0].place.file)
    assert source.label == "kit/gpt/trainer.py"
    for code in ("strategy, number = self.strategy, self.done", "time = watch(strategy.device)"):
        places = [state.place for state in session.state.states]
        assert [source.lines[place.line - 1].strip() for place in places] == [code] * 2, "it stands in the step itself"
        session.over()
    with pytest.raises(ValueError, match="being stepped through"):
        run.save()
    run.resume()
    assert run.wait() == "finished", run.trouble
    assert [step.number for step in run.history.steps] == list(range(12)) and done < 12
    assert [step.loss for step in run.history.steps] == pytest.approx(alone, abs=1e-4)
    last = run.history.steps[-1]
    assert last.validation is not None and last.sample.startswith("to be") and len(last.memory) == 2
    assert two.record(_world).results == [2, 2], "the ranks are free"
    resumed = start(replace(config, resume=True, recipe=replace(config.recipe, steps=MANY)), two)
    reached(resumed, 14)
    assert resumed.history.steps[0].number == 12
    resumed.rate = 0.0
    resumed.pause()
    assert resumed.save().name == f"step_{resumed.history.done:08d}"
    before = resumed.history.done
    resumed.resume()
    reached(resumed, before + 2)
    assert resumed.history.steps[-1].rate == 0.0 and resumed.history.steps[0].rate > 0
    resumed.stop()
    assert resumed.state == "stopped" and two.record(_world).results == [2, 2]


def test_a_step_that_is_broken_off_ends_the_training_and_frees_the_ranks(config: Config, two: LiveRunner) -> None:
    """Stopped in the middle of a step; and closed there, so that ranks may stand apart."""
    run = start(endless(config), two)
    run.step_through().step()
    run.stop()
    assert run.state == "stopped" and two.record(_world).results == [2, 2]
    run = start(endless(config), two)
    reached(run, 1)
    saved = run.save()
    session = run.step_through()
    session.step()
    session.close()
    with pytest.raises(ValueError, match="being stepped through"):
        run.save()
    run.resume()
    assert run.wait() == "failed"
    assert "the step that was stepped through was broken off" in run.trouble and str(saved) in run.trouble, run.trouble
    assert two.record(_world).results == [2, 2]


def test_a_full_disk_pauses_it_where_it_stands(
    config: Config, two: LiveRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The steps that ranks have been asked for ahead are void."""
    monkeypatch.setattr(live, "SLICE", 1e-9)  # a step at a time
    run = start(replace(endless(config), save_every=4), two)
    run.pause()
    assert run.history.done < 4
    each(two, files_no_longer_than, 2000)
    try:
        run.resume()
        assert run.wait() == "paused"
        assert run.history.done == 4
        assert "step_00000004 could not be written" in run.trouble and "disk full" in run.trouble, run.trouble
        with pytest.raises(OSError, match="disk full"):
            run.save()
    finally:
        each(two, files_no_longer_than, resource.RLIM_INFINITY)
    assert run.save().name == "step_00000004"
    run.resume()
    reached(run, 6)
    run.stop()
    assert run.trouble == ""


def each(cluster: LiveRunner, function: Callable[..., Any], *what: Any) -> None:
    for task in [cluster.client[engine].apply_async(function, *what) for engine in cluster.engines]:
        task.get()


def files_no_longer_than(size: int) -> None:
    """On a rank."""
    import resource

    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


def test_shards_and_stages_train_live_too(config: Config, two: LiveRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one rank does; a step of each is stepped through, and no rank alone could be sampled from."""
    monkeypatch.setattr(live, "SLICE", 1e-9)
    config = replace(config, recipe=replace(config.recipe, steps=6, validate_every=0), checkpoints="")
    alone = [step.loss for step in prepare(replace(config, strategy="single")).trainer]
    for strategy in ("tp+sp", "pp"):
        run = start(replace(config, strategy=strategy), two)
        with pytest.raises(ValueError, match="a sample needs ranks with all layers and known tokens"):
            run.prompt = "to"
        run.pause()
        if run.history.done < 6:
            run.step_through().to_collective()
            run.resume()
        assert run.wait() == "finished", run.trouble
        assert [step.loss for step in run.history.steps] == pytest.approx(alone, abs=1e-4), strategy


def test_a_step_is_measured_and_the_training_goes_on_unchanged(
    config: Config, two: LiveRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What of its time was communication and waiting; in the history, and in its file."""
    monkeypatch.setattr(live, "SLICE", 1e-9)
    recipe = replace(config.recipe, steps=6, validate_every=0)
    for strategy in ("zero2", "pp"):
        log = tmp_path / f"{strategy}.jsonl"
        config = replace(config, recipe=recipe, checkpoints="", strategy=strategy, log=str(log))
        alone = [step.loss for step in prepare(replace(config, strategy="single")).trainer]
        run = start(config, two)
        run.pause()
        assert run.history.done < 6 and run.history.lost is None
        number = run.history.done
        trace = run.measure().trace
        assert run.state == "paused" and run.history.done == number + 1
        lost = run.history.lost
        assert lost is not None and lost.number == number
        assert 0 < lost.communication < 1 and 0 < lost.waiting < 1 and lost.communication + lost.waiting < 1
        assert {op.name for op in trace.ranks[0].operations} & {"reduce_scatter", "all_reduce", "send"}
        run.resume()
        if run.history.done < 6:
            with suppress(ValueError):  # it may be over by now
                run.measure()
        assert run.wait() == "finished", run.trouble
        assert [step.loss for step in run.history.steps] == pytest.approx(alone, abs=1e-4), strategy
        assert History.load(log).lost == run.history.lost
        with pytest.raises(ValueError, match="there is no next step"):
            run.measure()


def test_trainings_are_compared_on_the_ranks(config: Config, two: LiveRunner) -> None:
    found = compare({"single": replace(config, strategy="single"), "zero2": config}, steps=2, cluster=two)
    assert found.same and "zero2 beside single: the same within 0.001 after step 2" in str(found)
    faster = replace(config, recipe=replace(config.recipe, rate=1e-4))
    found = compare({"as meant": config, "faster": faster}, steps=1, cluster=two)
    assert "faster beside as meant: the learning rate is the first to differ, after step 1" in str(found)


def _world() -> int:
    import torch
    import torch.distributed as dist

    one = torch.ones(1)
    dist.all_reduce(one)
    return int(one)


def test_a_rank_that_is_killed_costs_the_steps_since_the_last_checkpoint(config: Config, two: LiveRunner) -> None:
    run = start(endless(config), two)
    reached(run, 2)
    saved = run.save()
    with pytest.raises(ValueError, match="no rank 2 to be killed: ranks are 0 to 1"):
        two.kill(2)
    two.kill(1)
    assert run.wait() == "failed"
    assert "rank 1 was lost (killed by SIGKILL)" in run.trouble and str(saved) in run.trouble, run.trouble
    assert "resume=True" in run.trouble
    again = start(replace(endless(config), resume=True, strategy="ddp"), two)
    reached(again, again.history.done + 1)
    two.reset()
    assert again.wait() == "failed" and "forked anew" in again.trouble


def test_what_cannot_be_trained_is_said_and_the_ranks_are_free(config: Config, two: LiveRunner, tmp_path: Path) -> None:
    first = start(replace(config, recipe=replace(config.recipe, steps=1, warm_up=0)), two)
    assert first.wait() == "finished" and first.history.about.model.n_layer != 1
    (tmp_path / "one.txt").write_text("a" * 5000)
    with pytest.raises(ValueError, match="one character over and over"):
        start(replace(config, text=str(tmp_path / "one.txt")), two)
    with pytest.raises(ValueError, match="'zero4' is no strategy"):
        start(replace(config, strategy="zero4"), two)
    other = replace(config, resume=True, model={"name": "tiny", "n_layer": 1})
    with pytest.raises(ValueError, match="is of another model: its n_layer is"):
        start(other, two)
    wild = start(replace(config, recipe=replace(config.recipe, rate=1e30, warm_up=0)), two)
    assert wild.wait() == "failed" and "no weight was changed" in wild.trouble
    run = start(replace(config, checkpoints="", recipe=replace(config.recipe, steps=1, warm_up=0)), two)
    with pytest.raises(ValueError, match="no folder for checkpoints"):
        run.save()
    assert run.wait() == "finished"
