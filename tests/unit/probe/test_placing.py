"""Plain code on a rank with a GPU goes on as on a CPU, and computes on the GPU, which `tests.manners.tensors` plays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset, random_split

from kit.probe import placing
from kit.probe.arrival import Arrival
from kit.probe.placing import placed
from kit.probe.shipping import pack
from kit.probe.storages import arriving_on
from kit.protocol.parcels import LARGE
from tests.manners.tensors import DEVICE, Device, OnDevice


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(1)


def shuffled() -> Any:
    data = TensorDataset(torch.arange(10.0))
    return torch.cat([batch for (batch,) in DataLoader(data, batch_size=4, shuffle=True, generator=seeded())])


def by_workers() -> Any:
    return torch.cat(list(DataLoader(range(8), batch_size=4, num_workers=1)))


def trained() -> torch.Tensor:
    model = nn.Linear(3, 1)
    nn.init.uniform_(model.weight, generator=seeded())
    model(torch.randn(4, 3, generator=seeded())).sum().backward()
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    return model.weight


ON_BOTH: list[tuple[Callable[[], Any], bool]] = [  # what code does, and whether its result is the device's
    (lambda: torch.ones(2) + torch.arange(2) * torch.full((2,), 3), True),
    (lambda: torch.randn(3, generator=seeded()), True),
    (lambda: torch.randn(3, generator=seeded(), requires_grad=True), True),
    (lambda: torch.bernoulli(torch.full((8,), 0.5), generator=seeded()), True),
    (shuffled, True),
    (trained, True),
    (lambda: list(DistributedSampler(range(10), num_replicas=2, rank=0, seed=3)), False),
    (lambda: [list(part) for part in random_split(range(10), [3, 7], generator=seeded())], False),
    (lambda: torch.ones(2).numpy(), False),
    (lambda: np.asarray(torch.ones(2)) + 1, False),
    (lambda: torch.ones(2).pin_memory(), True),
]


@pytest.fixture
def on_a_device() -> Iterator[None]:
    with Device(), placed(DEVICE):
        yield


@pytest.mark.parametrize(("code", "there"), ON_BOTH)
def test_plain_code_gives_the_same_and_computes_on_the_device(
    code: Callable[[], Any], there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Device(), placed(DEVICE):
        result = code()
    assert isinstance(result, OnDevice) is there
    with monkeypatch.context() as patch:
        patch.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor)  # it needs a GPU
        expected = code()
    if there:
        assert result.requires_grad == expected.requires_grad and result.is_leaf == expected.is_leaf
        result, expected = result.tolist(), expected.tolist()
    assert np.array_equal(result, expected) if isinstance(result, np.ndarray) else result == expected


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (shuffled, "device type for generator"),
        (lambda: list(DistributedSampler(range(10), num_replicas=2, rank=0)), "device type for generator"),
        (lambda: torch.ones(2).numpy(), "numpy"),
        (lambda: torch.ones(2).pin_memory(), "cannot pin"),
    ],
)
def test_the_default_device_of_torch_alone_breaks_it(code: Callable[[], Any], words: str) -> None:
    with Device(), torch.device(DEVICE), pytest.raises(RuntimeError, match=words):
        code()


def test_who_writes_to_an_array_of_a_devices_tensor_hears_that_it_is_a_copy(on_a_device: None) -> None:
    with pytest.raises(ValueError, match="read-only"):
        torch.ones(2).numpy()[0] = 3


def test_workers_of_a_loader_work_on_the_cpu(on_a_device: None) -> None:
    assert not isinstance(by_workers(), OnDevice)
    assert isinstance(torch.ones(2), OnDevice), "their parent goes on"


def test_a_script_that_makes_its_own_group_places_its_own_tensors(on_a_device: None) -> None:
    placing.leave()
    assert torch.ones(2).device.type == "cpu" == torch.get_default_device().type
    assert torch.ones(2, device=DEVICE).device == DEVICE


def test_compiled_code_computes_there_in_one_piece() -> None:
    whole = torch.compile(lambda x: (x + torch.ones(3)).sum(), backend="eager", fullgraph=True)
    with placed(torch.device("meta")):
        assert whole(torch.zeros(3)).device.type == "meta"


def arrived(*values: Any) -> tuple[Any, ...]:
    """As arguments that came to a rank on `meta`."""
    package = pack(arrived, values, {}, world=1)
    arrival = Arrival(package.function, package.rest, arriving_on(torch.device("meta")))
    arguments: tuple[tuple[Any, ...], Any] = arrival.open(package.arguments[0])
    arrival.leave()
    return arguments[0]


@pytest.mark.parametrize("size", [4, LARGE // 2])
def test_all_that_is_handed_in_arrives_on_the_device_and_stays_what_it_is(size: int) -> None:
    model, leaf = nn.Linear(size, 2), torch.ones(size, requires_grad=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0, momentum=0.9)
    model(leaf).sum().backward()
    optimizer.step()
    model, optimizer, leaf, (inside,) = arrived(model, optimizer, leaf, [torch.ones(size)])
    assert {p.device.type for p in (*model.parameters(), *model.buffers(), leaf, inside)} == {"meta"}
    assert all(isinstance(p, nn.Parameter) for p in model.parameters())
    assert leaf.is_leaf and leaf.requires_grad
    assert [id(p) for p in optimizer.param_groups[0]["params"]] == [id(p) for p in model.parameters()]
    assert all(state["momentum_buffer"].device.type == "meta" for state in optimizer.state.values())


def test_a_generator_arrives_as_it_was() -> None:
    """Its numbers travel as a tensor, and it wants them in the host's memory."""
    generator = seeded()
    there = arriving_on(DEVICE)["torch._C", "Generator"]()
    there.__setstate__((1, None, OnDevice(generator.get_state())))
    assert torch.equal(torch.randn(3, generator=there, device="cpu"), torch.randn(3, generator=generator))
