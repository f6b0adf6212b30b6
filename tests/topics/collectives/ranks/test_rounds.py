"""How many rounds the labs say that a tree takes, counted on as many ranks as they name."""

from __future__ import annotations

import pytest
import torch

from kit.grade.cost import depth
from kit.grade.exercise import Case, Run
from kit.run.options import Options
from kit.topics.collectives.reference import tree_broadcast


@pytest.mark.parametrize(("ranks", "rounds"), [(8, 3), (64, 6)])
def test_all_know_after_as_many_rounds_as_the_number_doubles(three, ranks, rounds):
    recording = Options(ranks=ranks, threads=True, cluster=three).record(tree_broadcast, torch.ones(2), 0)
    case = Case(ranks, ((torch.ones(2), 0),) * ranks, 2)
    depths = depth(Run(case, recording.results, (), recording.trace))
    assert (len(depths), max(depths.values())) == (ranks - 1, rounds)
