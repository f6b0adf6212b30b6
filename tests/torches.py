"""Which torch a test needs: what some of them use is younger than the oldest that Lockstep stands on."""

from __future__ import annotations

import inspect

import pytest
import torch.distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode

groups_in_any_order = pytest.mark.skipif(
    "sort_ranks" not in inspect.signature(dist.new_group).parameters, reason="new_group sorts its ranks in this torch"
)
modes_without_a_compiler = pytest.mark.skipif(
    not hasattr(TorchDispatchMode, "_should_skip_dynamo"),
    reason="this torch loads its compiler with its first mode of dispatch",
)
