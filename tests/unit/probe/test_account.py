"""Accounting for live storages against models whose bytes are worked out by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from kit.probe import accelerator
from kit.probe.accelerator import CPU
from kit.probe.memory.account import Accounting
from kit.probe.memory.kinds import Role, kind_of
from kit.probe.passes import Passes
from kit.trace.facts import MemorySample
from kit.trace.memory import KINDS

B, I, H, O = 16, 64, 128, 32  # batch, inputs, hidden, outputs  # noqa: E741
P = I * H + H + H * O + O  # parameters
PLACES = 4  # parameter tensors: AdamW keeps a step counter of 4 bytes for each


def accounted(
    function: Callable[..., Any], *args: Any, kinds: Mapping[str, Sequence[str]] | None = None
) -> list[MemorySample]:
    """The account of `function(*args)`, run here; every frame of this file counts as the learner's."""

    def stack(frame: FrameType | None) -> list[FrameType]:
        found = []
        while frame is not None:
            if frame.f_code.co_filename == __file__:
                found.append(frame)
            frame = frame.f_back
        return found

    accounting = Accounting(CPU, kinds or {}, stack)
    passes = Passes(accounting.told)
    accounting.notice(args)
    accounting.sample("begins")
    passes.start()
    try:
        with accounting:
            function(*args)
    finally:
        passes.stop()
    accounting.sample("ends")
    return list(accounting.facts().samples)


def at(account: list[MemorySample], label: str, number: int = -1) -> dict[str, int]:
    """Bytes by kind at the last moment (or that number) of a label; kinds that were empty are left out."""
    held = [one for one in account if one.label == label][number]
    return {kind: size for kind, field in KINDS.items() if (size := getattr(held, field))}


def most(account: list[MemorySample], kind: str) -> int:
    return max(getattr(one, KINDS[kind]) for one in account)


def train(model: nn.Module, x: torch.Tensor, steps: int = 2) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    for _ in range(steps):
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        del loss


def two_layers(dtype: torch.dtype) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(I, H), nn.ReLU(), nn.Linear(H, O)).to(dtype)


@pytest.mark.parametrize(("dtype", "item"), [(torch.float32, 4), (torch.bfloat16, 2)])
def test_two_linear_layers_to_the_byte(dtype: torch.dtype, item: int) -> None:
    account = accounted(train, two_layers(dtype), torch.randn(B, I, dtype=dtype))
    model, state = P * item, 2 * P * item + 4 * PLACES
    # saved for backward: the input, the ReLU's output (for it and for the second layer), the outputs (for the square);
    # then the loss and the 1 that backward begins with. What the first layer gave is gone: the ReLU saved its output.
    saved = B * (I + H + O) * item + 2 * item
    x = B * I * item
    assert at(account, "begins") == {"parameters": model, "activations": x}
    assert at(account, "backward begins", 0) == {"parameters": model, "activations": saved}
    assert at(account, "backward begins") == {"parameters": model, "optimizer state": state, "activations": saved}
    left = {"parameters": model, "gradients": model, "activations": x + item}  # the function holds input and loss
    assert at(account, "step begins", 0) == left
    assert at(account, "step ends") == left | {"optimizer state": state}
    assert at(account, "forward begins")["activations"] == x
    # the forward pass needs most when the ReLU's input is still there
    assert most(account, "activations") == max(B * (I + 2 * H) * item, saved)
    # the function's arguments belong to the caller; what it made is gone
    assert at(account, "ends") == {"parameters": model, "activations": x}


def test_views_count_once_and_what_is_freed_is_gone() -> None:
    def play() -> None:
        x = torch.zeros(1000)
        views = [x.view(10, 100), x[5:], x.t()]
        y = x + 1
        torch.empty(1)
        del x, y
        torch.empty(1)
        del views
        torch.empty(1)

    account = accounted(play)
    assert [at(account, "empty", i) for i in range(3)] == [{"other": 8004}, {"other": 4004}, {"other": 4}]


def test_a_storage_counts_with_the_size_it_is_given() -> None:
    def play() -> None:
        whole = torch.zeros(1000)
        whole.untyped_storage().resize_(0)
        torch.empty(1)
        whole.untyped_storage().resize_(2000)
        torch.empty(1)

    account = accounted(play)
    assert at(account, "zeros") == {"other": 4000}
    assert [at(account, "empty", i)["other"] for i in range(2)] == [4, 2004]


def test_recomputing_keeps_the_inputs_alone() -> None:
    class Block(nn.Module):
        def __init__(self, again: bool) -> None:
            super().__init__()
            self.inner = nn.Sequential(nn.Linear(I, 8 * I), nn.GELU(), nn.Linear(8 * I, I))
            self.again = again

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return checkpoint(self.inner, x, use_reentrant=False) if self.again else self.inner(x)

    x = torch.randn(B, I)
    plain, again = ([Block(flag) for _ in range(3)] for flag in (False, True))
    kept = [at(accounted(train, nn.Sequential(*blocks), x, 1), "backward begins") for blocks in (plain, again)]
    # of each block: the first layer's output (for GELU) and GELU's (for the second), each 8 times as wide as the input
    assert kept[0]["activations"] == B * I * 4 * (1 + 3 * (16 + 1)) + 8
    assert kept[1]["activations"] == B * I * 4 * (1 + 3) + 8
    peak = most(accounted(train, nn.Sequential(*again), x, 1), "activations")
    assert kept[1]["activations"] < peak < kept[0]["activations"], "one block at a time is whole again"


def test_an_optimizer_by_hand_is_known_by_the_names_of_its_variables() -> None:
    def adam(model: nn.Module, x: torch.Tensor) -> None:
        m = [torch.zeros_like(p) for p in model.parameters()]
        v = [torch.zeros_like(p) for p in model.parameters()]
        model(x).square().mean().backward()
        with torch.no_grad():
            for p, first, second in zip(model.parameters(), m, v, strict=True):
                first.lerp_(p.grad, 0.1)
                second.mul_(0.9).addcmul_(p.grad, p.grad, value=0.1)
                p.sub_(first / second.sqrt().add_(1e-8))

    model, x = two_layers(torch.float32), torch.randn(B, I)
    named = accounted(adam, model, x, kinds={"optimizer state": ["m", "v"]})
    model.zero_grad()
    assert most(named, "optimizer state") == 8 * P
    assert most(accounted(adam, model, x), "optimizer state") == 0


class Shard:
    """Holds buffers that nothing else tells apart."""

    def __init__(self) -> None:
        self.flat, self.bucket, self.moment = torch.zeros(100), torch.zeros(10), None

    def start(self) -> None:
        self.moment = torch.zeros(50)

    def tensors_held(self) -> dict[str, list[torch.Tensor | None]]:
        return {"optimizer state": [self.moment], "parameters": [self.flat], "communication buffers": [self.bucket]}


def test_an_object_says_what_its_tensors_are() -> None:
    def play() -> None:
        shards = [Shard()]
        torch.empty(1)
        shards[0].start()
        torch.empty(1)
        shards.clear()
        torch.empty(1)

    account = accounted(play)
    whole = {"parameters": 400, "communication buffers": 40}
    assert at(account, "empty", 0) == whole | {"other": 4}
    assert at(account, "zeros") == whole | {"optimizer state": 200}
    assert at(account, "empty", 2) == {"other": 4}


def test_an_object_that_names_no_known_kind_is_told_so() -> None:
    class Odd:
        def tensors_held(self) -> dict[str, list[torch.Tensor]]:
            return {"weights": [torch.zeros(1)]}

    def play() -> None:
        odd = Odd()
        torch.empty(1)
        del odd

    with pytest.raises(ValueError, match="tensors_held.. names memory 'weights': choose from parameters, gradients"):
        accounted(play)


def test_master_weights_belong_to_the_optimizer() -> None:
    def play(model: nn.Module, x: torch.Tensor) -> None:
        master = [p.detach().float().requires_grad_() for p in model.parameters()]
        optimizer = torch.optim.SGD(master, lr=0.1, momentum=0.9)
        model(x).square().mean().backward()
        for copy, p in zip(master, model.parameters(), strict=True):
            copy.grad = p.grad.float()
        optimizer.step()

    account = accounted(play, two_layers(torch.bfloat16), torch.randn(B, I, dtype=torch.bfloat16))
    held = at(account, "step ends")
    assert held["parameters"] == 2 * P and held["optimizer state"] == (4 + 4) * P
    assert held["gradients"] == (2 + 4) * P, "of the weights and of the copies"


def test_an_account_is_the_run_as_it_was() -> None:
    """Looking changes neither results nor what lives: with and without, the weights are the same to the last bit."""
    x = torch.randn(B, I)
    plain, watched = two_layers(torch.float32), two_layers(torch.float32)
    train(plain, x)
    accounted(train, watched, x)
    for one, other in zip(plain.parameters(), watched.parameters(), strict=True):
        assert torch.equal(one, other)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        accounted(spoil, x)


def spoil(x: torch.Tensor) -> None:
    """Autograd refuses this, and still does when its saved tensors are accounted for."""
    w = torch.ones(I, requires_grad=True)
    y = (x * w).exp()
    y.add_(1)
    y.sum().backward()


def test_passes_are_seen_without_the_learners_help() -> None:
    passes = Passes()
    passes.start()
    train(two_layers(torch.float32), torch.randn(B, I))
    passes.stop()
    train(two_layers(torch.float32), torch.randn(B, I))
    assert [one.name for one in passes.facts] == ["forward", "backward", "step"] * 2
    ends = [moment for one in passes.facts for moment in (one.start, one.end)]
    assert ends == sorted(ends)
    assert len(passes.computed) == 2 and all(computed <= over for computed, over in passes.computed)


@pytest.mark.parametrize(
    ("roles", "kind"),
    [
        (Role.REGISTERED | Role.UPDATED | Role.SENT | Role.GRAPH, "parameters"),
        (Role.PARAMETER | Role.UPDATED | Role.GRAPH, "parameters"),
        (Role.PARAMETER, "parameters"),
        (Role.PARAMETER | Role.UPDATED, "optimizer state"),
        (Role.GRADIENT | Role.SENT | Role.SAVED, "gradients"),
        (Role.STATE | Role.SENT, "optimizer state"),
        (Role.BUFFER | Role.GRAPH, "other"),
        (Role.GRAPH | Role.SENT, "activations"),
        (Role.SENT | Role.SAVED, "communication buffers"),
        (Role.SAVED, "activations"),
        (Role(0), "other"),
    ],
)
def test_the_rules_in_their_order(roles: Role, kind: str) -> None:
    assert kind_of(roles) == kind


def test_on_a_gpu_its_allocator_has_the_last_word(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it gave out beyond the storages that are known; storages in the host's memory are left out."""
    given = iter([512, 4096, 9000])
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: next(given))
    accounting = Accounting(accelerator.of(torch.device("cuda")), {}, lambda frame: [])
    accounting.sample("begins")
    with accounting:
        torch.zeros(1000)
        accounting.sample("step begins")
    accounting.sample("ends")
    account = accounting.facts()
    assert account.method == "cuda allocator"
    assert [(held.label, held.allocator, held.other) for held in account.samples] == [
        ("begins", 512, 0), ("step begins", 4096, 0), ("ends", 9000, 0),
    ]  # fmt: skip


def test_of_what_a_gpus_allocator_gave_out_the_workspaces_of_cublas_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """One comes with the first product, one with the backward pass; something else of their size is none."""
    MB = 1 << 20
    given = {0x10: 3 * MB}  # address -> bytes; the first: whoever's

    def snapshot() -> list[dict[str, Any]]:
        gone = {"address": 0x99, "size": 8 * MB, "state": "inactive"}
        blocks = [{"address": at, "size": size, "state": "active_allocated"} for at, size in given.items()]
        return [{"device": 0, "blocks": [*blocks, gone]}, {"device": 1, "blocks": [{**blocks[0], "address": 0x98}]}]

    def clear() -> None:
        for at in (0x20, 0x30):
            del given[at]

    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: sum(given.values()))
    monkeypatch.setattr(torch.cuda, "memory_snapshot", snapshot)
    monkeypatch.setattr(accelerator, "let_go_of_workspaces", clear)
    accounting = Accounting(accelerator.of(torch.device("cuda:0")), {}, lambda frame: [])
    accounting.sample("begins")
    given[0x20] = 8 * MB
    accounting.sample("mm")
    given[0x40] = 8 * MB
    accounting.sample("all_reduce issued")
    given[0x30] = 8 * MB
    accounting.sample("backward ends")
    del given[0x40]
    accounting.end()
    assert given == {0x10: 3 * MB}
    assert [(one.label, one.workspaces // MB, one.allocator // MB) for one in accounting.facts().samples] == [
        ("begins", 0, 3), ("mm", 8, 3), ("all_reduce issued", 8, 11), ("backward ends", 16, 11), ("ends", 16, 3),
    ]  # fmt: skip
