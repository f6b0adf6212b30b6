"""How large a GPT is, and what its layers keep from forward to backward, by formula.

Letters: P parameters, L layers, b batch, s sequence, h channels, a heads, t ranks of a tensor parallel group. Memory is
counted in bytes (GB: divide by 10**9). What weights, gradients and optimizer take up is in `kit.topics.zero.cost`.
ValueError for what makes no sense.

Sources, cited below by these letters:
K   V. Korthikanti and others, Reducing activation recomputation in large transformer models (2022), section 4:
    activations of a layer, tensor and sequence parallel, selective recomputation
N   D. Narayanan and others, Efficient large-scale language model training on GPU clusters (2021): parameters of a GPT
G   A. Radford and others, Language models are unsupervised multitask learners (2019), and its released weights
"""

from __future__ import annotations

from typing import Any, Literal

Recomputation = Literal["none", "selective", "full"]


def gpt_parameters(
    *,
    layers: int,
    channels: int,
    vocabulary: int,
    block: int,
    bias: bool = True,
    tied: bool = True,
    positions: bool = True,
) -> int:
    """P of a GPT: L (12 h^2 + 13 h) + V h + block h + 2h (G; N without the norms and biases).

    A layer has matrices of 3h^2 (queries, keys, values), h^2, 4h^2 and 4h^2, and with biases as many vectors as they
    have outputs (9h) beside the two of each of its norms (4h). Without biases the layers keep 2h, the last norm h.
    Untied, another V h. `positions`: papers and logs often leave out block h, memory needs it. The number of heads
    changes nothing.
    """
    if not all(size >= 1 for size in (layers, channels, vocabulary, block)):
        raise ValueError("layers, channels, vocabulary and block are whole numbers, 1 or more")
    vectors = 13 * channels if bias else 2 * channels
    last_norm = 2 * channels if bias else channels
    embeddings = (1 if tied else 2) * vocabulary * channels + (block * channels if positions else 0)
    return layers * (12 * channels**2 + vectors) + last_norm + embeddings


def activations_per_layer(
    *,
    batch: int,
    sequence: int,
    channels: int,
    heads: int,
    dropout: bool = True,
    fused_attention: bool = False,
    tensor_parallel: int = 1,
    sequence_parallel: bool = False,
    recomputation: Recomputation = "none",
    itemsize: int = 2,
) -> float:
    """Bytes that one layer keeps from forward to backward on one rank (K, equations 1 to 4 and table 2).

    In 16 bits s b h (34 + 5as/h), without dropout s b h (32 + 2as/h). Tensor parallel, t ranks:
    s b h (10 + 24/t + 5as/(ht)), without dropout s b h (8 + 24/t + 2as/(ht)); with sequence parallelism the first of
    all over t. Fused attention never keeps the s x s term; selective recomputation forms it anew. Full recomputation
    keeps the layer's input alone, 2 s b h (over t with sequence parallelism); then one layer at a time, the one in
    hand, has all of the above too.

    itemsize 4 doubles all of it. That is exact without dropout; how large a dropout's mask is depends on the device.
    Fused attention also keeps one number per head and token, which is not counted.
    """
    t, a, s, h = tensor_parallel, heads, sequence, channels
    if not all(size >= 1 for size in (batch, s, h, a, t, itemsize)):
        raise ValueError("batch, sequence, channels, heads, tensor_parallel and itemsize are whole numbers, 1 or more")
    if a % t:
        raise ValueError(f"{a} heads cannot be shared by {t} ranks: tensor_parallel is a divisor of the heads")
    if recomputation not in ("none", "selective", "full"):
        raise ValueError(f"recomputation is 'none', 'selective' or 'full', not {recomputation!r}")
    if recomputation == "full":
        terms = 2.0 / (t if sequence_parallel else 1)
    else:
        outside = 10 if dropout else 8  # the norms' inputs and outputs, and masks: whole on each tensor parallel rank
        terms = 24 / t + (outside / t if sequence_parallel else outside)
        if not fused_attention and recomputation == "none":
            terms += (5 if dropout else 2) * a * s / (h * t)
    return s * batch * h * terms * itemsize / 2


def activations(*, layers: int, recomputation: Recomputation = "none", **layer: Any) -> float:
    """Bytes that L layers keep at the end of a forward pass: L times `activations_per_layer`, which takes `layer`.

    With full recomputation a whole layer comes on top, the one that is computed anew: so much the backward pass holds
    (K, section 5). Embedding, last norm and logits are not counted: with a large vocabulary 4 s b V and more.
    """
    if not layers >= 1:
        raise ValueError(f"a model has at least one layer, not {layers}")
    in_hand = activations_per_layer(recomputation="none", **layer) if recomputation == "full" else 0.0
    return layers * activations_per_layer(recomputation=recomputation, **layer) + in_hand
