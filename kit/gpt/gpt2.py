"""GPT-2's published weights, from a folder as Hugging Face has them: config.json and model.safetensors.

A safetensors file is its own table of contents (eight bytes with its length, then JSON) and the numbers behind it.
Matrices lie there as their inputs by outputs, the other way round than in `nn.Linear`; the head is the embedding's.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from kit.gpt.model import GPT, GPTConfig

Tensor = torch.Tensor
_FORMATS = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
_OUTSIDE = {"tokens": "wte", "positions": "wpe", "norm": "ln_f"}
_IN_A_BLOCK = {
    "norm_1": "ln_1",
    "attention.qkv": "attn.c_attn",
    "attention.out": "attn.c_proj",
    "norm_2": "ln_2",
    "mlp.up": "mlp.c_fc",
    "mlp.down": "mlp.c_proj",
}
_TURNED = ("qkv.weight", "out.weight", "up.weight", "down.weight")


def load_gpt2(folder: str | Path, device: torch.device | str | None = None) -> GPT:
    """A GPT with the weights of a folder, in fp32. Raises ValueError where they are not there or are not GPT-2's."""
    where = Path(folder)
    model = GPT(_config(where), device)
    found = dict(_tensors(where))
    with torch.no_grad():
        for name, p in model.named_parameters():
            theirs = _their_name(name)
            if theirs not in found:
                raise ValueError(f"{folder} has no tensor {theirs!r}: it is not a GPT-2, or not whole")
            x = found[theirs].T if name.endswith(_TURNED) else found[theirs]
            if x.shape != p.shape:
                raise ValueError(
                    f"{theirs} in {folder} is {tuple(found[theirs].shape)}, and config.json asks for {tuple(p.shape)}"
                )
            p.copy_(x)
    return model


def _config(folder: Path) -> GPTConfig:
    path = folder / "config.json"
    try:
        said: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        shape: dict[str, Any] = {name: int(said[name]) for name in ("n_layer", "n_head", "n_embd", "vocab_size")}
        block = int(said["n_positions"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{path} does not describe a GPT-2 ({error!r}): name a folder with its config.json and model.safetensors"
        ) from error
    return GPTConfig(**shape, block_size=block, gelu="tanh")


def _their_name(name: str) -> str:
    module, _, kind = name.rpartition(".")
    if module in _OUTSIDE:
        return f"{_OUTSIDE[module]}.{kind}"
    _, number, inside = module.split(".", 2)
    return f"h.{number}.{_IN_A_BLOCK[inside]}.{kind}"


def _tensors(folder: Path) -> Iterator[tuple[str, Tensor]]:
    """Of all files, which large models have several of; some writers put 'transformer.' before each name."""
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise ValueError(f"there is no *.safetensors in {folder}: other formats of weights are not read")
    for file in files:
        for name, x in read_safetensors(file).items():
            yield name.removeprefix("transformer."), x


def read_safetensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a file, by name; those of whole numbers are left out. Raises ValueError for half a file."""
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    try:
        contents: dict[str, Any] = json.loads(content[8 : 8 + length])
        contents.pop("__metadata__", None)
        ends = [about["data_offsets"][1] for about in contents.values()]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is no safetensors file ({error!r})") from error
    numbers = memoryview(content)[8 + length :]
    if max(ends, default=0) != len(numbers):
        raise ValueError(f"{path} is not whole: it holds {len(numbers)} bytes of numbers of {max(ends, default=0)}")
    found = {}
    for name, about in contents.items():
        if about["dtype"] in _FORMATS:
            begin, end = about["data_offsets"]
            flat = torch.frombuffer(bytearray(numbers[begin:end]), dtype=_FORMATS[about["dtype"]])
            found[name] = flat.view(about["shape"])
    return found
