"""What a person can do wrong with a wrapped model, and the errors that say what to do instead."""

from __future__ import annotations

from typing import Any

from torch import nn

from kit.topics.data_parallel.reference.gradient_owner import is_sharded


def check_module(module: Any) -> None:
    """Raises ValueError for what is no module or is sharded, has no sizes yet, or has gradients that are sparse."""
    if not isinstance(module, nn.Module):
        what = f"the class {module.__name__}" if isinstance(module, type) else f"a {type(module).__name__}"
        raise ValueError(f"give a module, an instance of torch.nn.Module, not {what}")
    if any(isinstance(p, nn.UninitializedParameter) for p in module.parameters()):
        raise ValueError("a lazy module has no sizes before its first forward pass: call it once, then wrap it")
    if any(is_sharded(p) for p in module.parameters()):
        raise ValueError("this module is sharded already, and its weights are shards: make it anew, then wrap it")
    for name, one in module.named_modules():
        if isinstance(one, nn.Embedding | nn.EmbeddingBag) and one.sparse:
            raise ValueError(
                f"{name or 'this embedding'} makes sparse gradients, and flat buffers are dense: make it"
                " with sparse=False"
            )


def twice(name: str) -> RuntimeError:
    """A gradient that comes in two parts in one backward pass, where the first is under way already."""
    return RuntimeError(
        f"{name} got a gradient twice in one backward pass, and the first was on its way to the other ranks: where"
        " checkpoint() recomputes a module that is used more than once, pass use_reentrant=False"
    )


def thawed(names: list[str]) -> RuntimeError:
    """Parameters that want a gradient now, and did not when the module was wrapped."""
    return RuntimeError(
        f"{listed(names)} wants a gradient now and did not when the module was wrapped, so each rank would train it"
        " apart: settle what is trained (requires_grad_) first, then wrap"
    )


def without_gradient(rank: int, names: list[str], frozen: bool) -> RuntimeError:
    """Parameters without a gradient at the end of backward. frozen: some of them were frozen since."""
    if frozen:
        return RuntimeError(
            f"rank {rank} has no gradient for {listed(names)}, frozen since it was wrapped: settle what is trained"
            " (requires_grad_) first, then wrap; or pass unused='zeros'"
        )
    return RuntimeError(
        f"rank {rank} has no gradient for {listed(names)} at the end of backward: the loss does not depend on it."
        " Freeze what is never used (requires_grad_(False), before wrapping); where it is used now and then, or on some"
        " ranks only, pass unused='zeros'"
    )


def listed(names: list[str]) -> str:
    """The first three, and dots if there are more."""
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
