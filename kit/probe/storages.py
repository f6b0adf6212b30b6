"""How the memory of tensors is pickled: of large ones as a buffer that a parcel puts into a memory file."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from typing import Any

import torch

from kit.protocol.parcels import LARGE


def reduced(obj: Any) -> Any:
    """What a pickler's `reducer_override` returns for a storage of a large tensor on the CPU; else None.

    Tensors that share memory go on to do so, which torch's own way of pickling loses.
    """
    typed = isinstance(obj, torch.TypedStorage)
    storage = obj._untyped_storage if typed else obj
    if not isinstance(storage, torch.UntypedStorage) or storage.device.type != "cpu" or storage.nbytes() < LARGE:
        return None
    if typed:
        return _typed, (storage, obj.dtype)
    values = torch.empty(0, dtype=torch.uint8, device="cpu").set_(storage).numpy()
    return _untyped, (pickle.PickleBuffer(values.data),)


def arriving_on(device: torch.device) -> dict[tuple[str, str], Callable[..., Any]]:
    """What names of a pickle mean where all tensors in it are to lie on `device`, whatever holds them.

    They stay what they are: parameters, views of one memory, leaves whose gradients a function looks for.
    """
    if device.type == "cpu":
        return {}

    def untyped(buffer: Any) -> torch.UntypedStorage:
        there = torch.empty(len(buffer), dtype=torch.uint8, device=device)
        return there.copy_(torch.frombuffer(buffer, dtype=torch.uint8)).untyped_storage()

    def small(data: bytes) -> Any:
        return torch.load(io.BytesIO(data), map_location=device, weights_only=False)

    return {
        (__name__, _untyped.__name__): untyped,
        ("torch.storage", "_load_from_bytes"): small,
        ("torch._C", "Generator"): _Generator,
    }


class _Generator(torch.Generator):
    """Its state is the host's, wherever it draws numbers."""

    def __setstate__(self, state: Any) -> None:
        seed, offset, numbers = state
        super().__setstate__((seed, offset, numbers.cpu()))


def _typed(storage: torch.UntypedStorage, dtype: torch.dtype) -> torch.TypedStorage:
    return torch.TypedStorage(wrap_storage=storage, dtype=dtype, _internal=True)


def _untyped(buffer: Any) -> torch.UntypedStorage:
    return torch.frombuffer(buffer, dtype=torch.uint8).untyped_storage()
