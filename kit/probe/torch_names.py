"""The private and undocumented names of torch that Lockstep stands on, and the versions of torch it was tried with.

torch may take any of these away in any release. A test holds the table against the source and against the torch at
hand; needs no torch itself.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Any

TRIED = ("2.8", "2.10", "2.11", "2.13", "2.15")
USUAL = "2.13"  # what every change is tested with


@dataclass(frozen=True, slots=True)
class Name:
    name: str  # where torch has it
    use: str
    without: str  # what happens where torch has it no longer
    versions: tuple[str, ...] = TRIED  # that have it
    part_of: str = ""  # what only some builds have


_GROUPS = "groups are made as the ranks' own, so that their operations can be seen"
_NO_GROUPS = "no cluster starts"
_INNER = "the real group stands inside the observed one"
_AS_IT_IS = "compiled code comes by the probe's own functions and leaves them as they are"
_BACKWARD = "which backward pass is going on, and when it ends"
_C10D = "torch.distributed.distributed_c10d"

NAMES = (
    # process groups: kit.probe.world, kit.probe.backend
    Name(f"{_C10D}._new_process_group_helper", _GROUPS, _NO_GROUPS),
    Name(f"{_C10D}._world.group_count", "groups have equal names on all ranks", _NO_GROUPS),
    Name(f"{_C10D}._world.pg_map", "a group is shown with the backend that is inside", _NO_GROUPS),
    Name(f"{_C10D}._world.pg_backend_config", "a group is shown with the backend that is inside", _NO_GROUPS),
    *(
        Name(f"torch._C._distributed_c10d._DistributedBackendOptions.{field}", _GROUPS, _NO_GROUPS)
        for field in ("store", "group_rank", "group_size", "group_id", "global_ranks_in_group", "timeout")
    ),
    Name(
        f"{_C10D}._FR_SELF_RECORDING_BACKENDS",
        "the flight recorder knows that the group inside records itself",
        _NO_GROUPS,
        TRIED[-1:],
    ),
    Name("torch.distributed.ProcessGroup._register_backend", _INNER, _NO_GROUPS),
    Name("torch.distributed.ProcessGroup._set_default_backend", _INNER, _NO_GROUPS),
    Name("torch.distributed.ProcessGroup._get_backend", _INNER, "DDP's reducer and new_group find no backend"),
    Name("torch.distributed.ProcessGroup._device_types", _INNER, "barrier and object collectives find no device"),
    Name("torch.distributed.ProcessGroup._start_coalescing", "batches are seen", "batch_isend_irecv raises"),
    Name("torch.distributed.ProcessGroup._end_coalescing", "batches are seen", "batch_isend_irecv raises"),
    Name("torch.distributed.ProcessGroupGloo._set_sequence_number_for_group", _INNER, _NO_GROUPS),
    Name(
        "torch.distributed.ProcessGroupNCCL.Options._timeout",
        "nccl waits as long as a person thinks",
        "no cluster starts on GPUs",
        part_of="torch.distributed.ProcessGroupNCCL",
    ),
    # ranks as threads: kit.probe.threads
    Name(
        "torch.testing._internal.distributed.multi_threaded_pg.ThreadLocalWorld",
        "each thread has groups of its own",
        "ranks cannot be threads; processes can",
    ),
    Name(
        "torch._C._distributed_c10d._set_thread_isolation_mode",
        "each thread has groups of its own",
        "ranks cannot be threads; processes can",
    ),
    # the compiler: kit.probe.torch_private, kit.probe.memory.account
    Name("torch._C._dynamo.eval_frame.get_eval_frame_callback", "whether code compiles", "no rank starts"),
    *(
        Name(f"torch._C._dynamo.eval_frame.{name}", _AS_IT_IS, "no rank starts")
        for name in ("set_code_exec_strategy", "_FrameAction", "_FrameExecStrategy")
    ),
    Name(
        "torch._disable_dynamo", "the compiler keeps away from the account of memory", "no memory beside torch.compile"
    ),
    Name(
        "torch.utils._python_dispatch.TorchDispatchMode._should_skip_dynamo",
        "the account of memory loads no compiler",
        "the first account takes seconds longer",
        TRIED[2:],
    ),
    # autograd: kit.probe.torch_private, and the references of the labs
    Name("torch._C._current_graph_task_id", _BACKWARD, "no rank starts"),
    Name("torch.autograd.Variable._execution_engine.queue_callback", _BACKWARD, "no rank starts"),
    Name(
        "torch.utils._device._device_constructors",
        "a default device is asked of functions that make tensors",
        "no rank starts",
    ),
    Name("torch.autograd._unsafe_preserve_version_counter", "a received value can be written late", "no rank starts"),
    # devices: kit.probe.torch_private, kit.cli.gpu
    Name(
        "torch._C._cuda_clearCublasWorkspaces",
        "the memory of cuBLAS's workspaces is named",
        "it counts as the allocator's",
        part_of="torch._C._CudaDeviceProperties",
    ),
    Name("torch.cuda._is_in_bad_fork", "doctor --gpu sees a rank that cannot use its GPU", "that step of it fails"),
    # tensors
    Name("torch.UntypedStorage._cdata", "which tensors share memory", "nothing is recorded"),
    Name("torch.UntypedStorage._new_with_weak_ptr", "when memory is let go", "no rank starts"),
    Name(
        "torch.storage.TypedStorage._untyped_storage", "large storages travel as they are", "large values are refused"
    ),
    Name(
        "torch.storage.TypedStorage._internal",
        "nobody is warned of a class they do not use",
        "large values are refused",
    ),
    Name("torch._ops.OpOverload._schema", "which arguments an operation writes to", "no account of memory"),
    Name("torch.utils._python_dispatch.TorchDispatchMode", "memory is accounted for", "no rank starts"),
    Name("torch.utils._pytree.tree_leaves", "tensors are found in containers", "no rank starts"),
    Name("torch.utils._pytree.tree_map", "tensors are found in containers", "lab 03's reference cannot be imported"),
    Name("torch.utils._pytree.tree_map_only", "tensors are found in containers", "no rank starts"),
    Name(
        "torch.distributed._functional_collectives.AsyncCollectiveTensor",
        "a tensor that is still on its way is waited for by nobody but the learner",
        "no rank starts",
    ),
    Name("torch.futures.Future._set_unwrap_func", "DDP is told of an error in words", "DDP's process crashes"),
)


def release(version: str) -> str:
    """'2.13.0+cpu' is '2.13'."""
    found = re.match(r"\d+\.\d+", version)
    return found[0] if found else version


def never_tried(version: str) -> tuple[str, ...]:
    """What to say of a torch that Lockstep was never tried with; nothing of one that it was."""
    if release(version) in TRIED:
        return ()
    return (
        f"torch {release(version)} was never tried with Lockstep; tried: {', '.join(TRIED)}; "
        f"if something is odd, pip install torch=={USUAL}",
    )


def in_words(names: Sequence[Name], version: str) -> str:
    """What names that are not there mean to a person; '' for none."""
    if not names:
        return ""
    said = "; ".join(f"no {one.name} (without it {one.without})" for one in names)
    return (
        f"torch {version} has {said}. Lockstep was tried with torch {', '.join(TRIED)}: "
        f"run `{sys.executable} -m pip install torch=={USUAL}`"
    )


def lacking(version: str) -> tuple[Name, ...]:
    """The names that the torch at hand has not, though it is of a version that should have them."""
    return tuple(one for one in _expected(release(version)) if not exists(one.name))


def _expected(version: str) -> Iterator[Name]:
    """The names of that version, or of the next older one that was tried."""
    tried = [one for one in TRIED if _order(one) <= _order(version)] or [TRIED[0]]
    for one in NAMES:
        if tried[-1] in one.versions and (not one.part_of or exists(one.part_of)):
            yield one


def _order(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)))


def exists(name: str) -> bool:
    """Whether the torch at hand has it."""
    found: Any = None
    path = ""
    for part in name.split("."):
        path = f"{path}.{part}" if path else part
        if isinstance(found, type) and not hasattr(found, part):
            return _gets(found, part)
        try:
            found = getattr(found, part) if hasattr(found, part) else importlib.import_module(path)
        except ModuleNotFoundError:
            return False
    return True


def _gets(kind: type, name: str) -> bool:
    """Whether each object of a class is given something of that name, or is made with it."""
    methods = [getattr(kind, method) for method in ("__new__", "__init__")]
    made = [method.__code__ for method in methods if isinstance(method, FunctionType)]
    return any(name in (*code.co_names, *code.co_varnames) for code in made)
