"""How the memory of large tensors is pickled: as a buffer that a parcel puts into a memory file."""

from __future__ import annotations

import pickle
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


def _typed(storage: torch.UntypedStorage, dtype: torch.dtype) -> torch.TypedStorage:
    return torch.TypedStorage(wrap_storage=storage, dtype=dtype, _internal=True)


def _untyped(buffer: Any) -> torch.UntypedStorage:
    return torch.frombuffer(buffer, dtype=torch.uint8).untyped_storage()
