"""Muon: what becomes of singular values, a step by hand, whom it steps, and where it is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from kit.gpt.checkpoint import Checkpoints
from kit.gpt.feed import Feed
from kit.gpt.model import GPTConfig
from kit.gpt.modern import made
from kit.gpt.recipe import Recipe
from kit.gpt.trainer import Trainer
from kit.topics.gpt.reference import Adam, Layout, parallelize
from kit.topics.gpt.reference.muon import Muon, orthogonal
from kit.topics.gpt.run import lay_out

SIZES = GPTConfig.named("tiny", vocab_size=10, modern=True)
RECIPE = Recipe(steps=6, batch=2, warm_up=1, optimizer="muon")


def trainer(seed: int = 0) -> Trainer:
    torch.manual_seed(seed)
    return Trainer(lay_out(made(SIZES), Layout(), RECIPE), RECIPE, Feed(torch.arange(400) * 3 % 10, 8))


@pytest.mark.parametrize("shape", [(24, 8), (8, 24), (16, 16)])
def test_singular_values_become_nearly_one_and_directions_stay(shape: tuple[int, int]) -> None:
    torch.manual_seed(0)
    u, _, v = torch.linalg.svd(torch.randn(shape), full_matrices=False)
    values = torch.logspace(0, -1.9, len(v))  # the largest is 80 times the smallest
    found = orthogonal(u @ values.diag() @ v * 7)
    within = u.T @ found @ v.T
    assert torch.allclose(within, within.diag().diag(), atol=1e-4), "no direction is mixed with another"
    assert 0.6 < within.diag().min() and within.diag().max() < 1.25


def test_a_step_is_what_the_paper_says() -> None:
    """Twice, so that momentum counts; and no more than AdamW's usual size."""
    torch.manual_seed(0)
    p, vector = torch.nn.Parameter(torch.randn(8, 32)), torch.nn.Parameter(torch.randn(5))
    muon = Muon([p], torch.optim.AdamW([vector], lr=0.0, weight_decay=0.0), weight_decay=0.5)
    wanted, moment = p.detach().clone(), torch.zeros(8, 32)
    for group in muon.param_groups:
        group["lr"] = 0.1
    for _ in range(2):
        g = torch.randn(8, 32)
        before = vector.detach().clone()
        p.grad, vector.grad = g.clone(), torch.ones(5)
        muon.step()
        moment = 0.95 * moment + 0.05 * g
        step = orthogonal(0.05 * g + 0.95 * moment)
        wanted = wanted * (1 - 0.1 * 0.5) - 0.1 * 0.2 * 32**0.5 * step
        torch.testing.assert_close(p.detach(), wanted)
        torch.testing.assert_close(vector.detach(), before - 0.1)
        assert (0.2 * 32**0.5 * step).square().mean().sqrt() == pytest.approx(0.2, rel=0.2)


def test_matrices_of_blocks_are_muons_and_the_rest_is_adamws() -> None:
    model = made(SIZES)
    muon = Adam(muon=True).of(model)
    names = {p: name for name, p in model.named_parameters()}
    found = [sorted(names[p] for p in group["params"]) for group in muon.param_groups]
    assert len(found[0]) == 4 * SIZES.n_layer and all(name.startswith("blocks.") for name in found[0])
    assert found[1] == ["tokens.weight"] and sorted(sum(found, [])) == sorted(names.values())


def test_it_learns_and_goes_on_from_a_checkpoint(tmp_path: Path) -> None:
    kept = Checkpoints(tmp_path, SIZES, "abc", "single")
    going = trainer()
    first = [going.step().loss for _ in range(3)]
    kept.save(going)
    rest = [step.loss for step in going]
    assert rest[-1] < first[0]
    other = trainer(seed=1)
    kept.resume(other)
    assert [step.loss for step in other] == rest
    with pytest.raises(ValueError, match="another model: its modern is True, and here it is False"):
        replace(kept, model=replace(SIZES, modern=False)).resume(trainer())


@pytest.mark.parametrize("layout", [Layout("zero1", dp=2), Layout("zero1", dp=2, pp=2), Layout(tp=2)], ids=str)
def test_where_matrices_are_not_whole_it_is_refused(layout: Layout) -> None:
    with pytest.raises(ValueError, match=r"Muon takes the singular values of a whole matrix, .*single, ddp or pp"):
        parallelize(made(SIZES), layout, Adam(muon=True))


def test_heads_that_turn_are_not_cut() -> None:
    with pytest.raises(ValueError, match="cuts the layers of a GPT with learnt positions"):
        parallelize(made(SIZES), Layout(tp=2), Adam())
