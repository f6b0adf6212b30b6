"""GPT-2's weights from a folder of that format: a small one is written here, and computed with here."""

from __future__ import annotations

import json
from math import pi, sqrt
from pathlib import Path

import pytest
import torch

from kit.gpt.gpt2 import load_gpt2, read_safetensors

L, H, C, T, V = 2, 2, 8, 6, 11
Tensors = dict[str, torch.Tensor]


def write_safetensors(path: Path, tensors: Tensors) -> None:
    contents, numbers = {"__metadata__": {"format": "pt"}}, b""
    for name, x in tensors.items():
        said = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.bool: "BOOL"}[x.dtype]
        added = x.contiguous().view(-1).view(torch.uint8).numpy().tobytes()
        contents[name] = {"dtype": said, "shape": list(x.shape), "data_offsets": [len(numbers), len(numbers + added)]}
        numbers += added
    header = json.dumps(contents).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + numbers)


def gpt2(seed: int = 0) -> Tensors:
    """All that a published file has, masks too."""
    draw = torch.Generator().manual_seed(seed)
    shapes: dict[str, tuple[int, ...]] = {"wte.weight": (V, C), "wpe.weight": (T, C)}
    for block in (f"h.{number}" for number in range(L)):
        shapes |= {f"{block}.{norm}.{kind}": (C,) for norm in ("ln_1", "ln_2") for kind in ("weight", "bias")}
        for name, (rows, columns) in {
            "attn.c_attn": (C, 3 * C), "attn.c_proj": (C, C), "mlp.c_fc": (C, 4 * C), "mlp.c_proj": (4 * C, C),
        }.items():  # fmt: skip
            shapes |= {f"{block}.{name}.weight": (rows, columns), f"{block}.{name}.bias": (columns,)}
    shapes |= {"ln_f.weight": (C,), "ln_f.bias": (C,)}
    made = {name: torch.randn(shape, generator=draw) * 0.3 for name, shape in shapes.items()}
    return made | {"h.0.attn.bias": torch.ones(1, 1, T, T).tril().bool()}


def forward(w: Tensors, tokens: torch.Tensor) -> torch.Tensor:
    """tokens (T,) -> logits (T, V), as the paper and the published code have it: x @ W + b."""

    def norm(x: torch.Tensor, name: str) -> torch.Tensor:
        centred = x - x.mean(-1, keepdim=True)
        spread = (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()
        return centred / spread * w[f"{name}.weight"] + w[f"{name}.bias"]

    def layer(x: torch.Tensor, name: str) -> torch.Tensor:
        return x @ w[f"{name}.weight"] + w[f"{name}.bias"]

    n = len(tokens)
    x = w["wte.weight"][tokens] + w["wpe.weight"][:n]
    for block in (f"h.{number}" for number in range(L)):
        q, k, v = layer(norm(x, f"{block}.ln_1"), f"{block}.attn.c_attn").split(C, dim=-1)
        heads = []
        for h in (slice(i * C // H, (i + 1) * C // H) for i in range(H)):
            scores = q[:, h] @ k[:, h].T / sqrt(C // H) + torch.full((n, n), float("-inf")).triu(1)
            heads.append(scores.softmax(-1) @ v[:, h])
        x = x + layer(torch.cat(heads, -1), f"{block}.attn.c_proj")
        y = layer(norm(x, f"{block}.ln_2"), f"{block}.mlp.c_fc")
        y = 0.5 * y * (1 + torch.tanh(sqrt(2 / pi) * (y + 0.044715 * y**3)))
        x = x + layer(y, f"{block}.mlp.c_proj")
    return norm(x, "ln_f") @ w["wte.weight"].T


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    sizes = {"n_layer": L, "n_head": H, "n_embd": C, "n_positions": T, "vocab_size": V}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2", "n_ctx": T, **sizes}))
    write_safetensors(tmp_path / "model.safetensors", gpt2())
    return tmp_path


def test_a_loaded_model_computes_what_the_file_says(folder: Path) -> None:
    model = load_gpt2(folder).eval()
    tokens = torch.tensor([3, 1, 4, 1, 5, 9])
    torch.testing.assert_close(model(tokens[None])[0][0], forward(gpt2(), tokens))
    assert model.unembed is None and model.config.gelu == "tanh"


def test_several_files_prefixes_and_16_bits(folder: Path) -> None:
    """Large models come in parts; what a language model's wrapper saved has a name before each name."""
    whole = {f"transformer.{name}": x.bfloat16() if x.is_floating_point() else x for name, x in gpt2().items()}
    names = list(whole)
    (folder / "model.safetensors").unlink()
    for number, part in enumerate((names[:9], names[9:])):
        write_safetensors(folder / f"model-{number}-of-2.safetensors", {name: whole[name] for name in part})
    model = load_gpt2(folder)
    assert torch.equal(model.tokens.weight, gpt2()["wte.weight"].bfloat16().float())


def test_what_is_no_gpt2_is_said(folder: Path, tmp_path: Path) -> None:
    file = folder / "model.safetensors"
    whole = file.read_bytes()
    file.write_bytes(whole[:-1])
    with pytest.raises(ValueError, match="is not whole"):
        load_gpt2(folder)
    file.write_bytes(b"PK\x03\x04" + whole)
    with pytest.raises(ValueError, match="is no safetensors file"):
        load_gpt2(folder)
    write_safetensors(file, {name: x for name, x in gpt2().items() if "h.1.mlp.c_fc" not in name})
    with pytest.raises(ValueError, match=r"no tensor 'h\.1\.mlp\.c_fc\.weight'"):
        load_gpt2(folder)
    write_safetensors(file, gpt2() | {"wpe.weight": torch.zeros(3, C)})
    with pytest.raises(ValueError, match=r"wpe.weight in .* is \(3, 8\)"):
        load_gpt2(folder)
    file.unlink()
    with pytest.raises(ValueError, match=r"no \*\.safetensors"):
        load_gpt2(folder)
    (folder / "config.json").write_text("{}")
    with pytest.raises(ValueError, match="does not describe a GPT-2"):
        load_gpt2(folder)


def test_whole_numbers_are_left_out(folder: Path) -> None:
    assert set(read_safetensors(folder / "model.safetensors")) == set(gpt2()) - {"h.0.attn.bias"}
