"""What a training step costs: flops, elements that each rank sends; and rules for learning rates.

Letters: P parameters, N ranks, L layers, C channels, T tokens of a sequence, m micro-batches. `stage`: 0 for plain
data parallel, 1 to 3 for the stages of ZeRO. Elements, not bytes: multiply by the size of one as it is sent.
ValueError for what makes no sense.

Sources, cited below by these letters:
K    J. Kaplan and others, Scaling laws for neural language models (2020), section 2.1: flops of a token
C    A. Chowdhery and others, PaLM: scaling language modeling with pathways (2022), appendix B: MFU
R    S. Rajbhandari and others, ZeRO: memory optimizations toward training trillion parameter models (2020), section 7
PY   P. Patarasuk, X. Yuan, Bandwidth optimal all-reduce algorithms (2009): the rings under all of it
G    P. Goyal and others, Accurate, large minibatch SGD: training ImageNet in 1 hour (2017): linear scaling, warm-up
KR   A. Krizhevsky, One weird trick for parallelizing convolutional neural networks (2014): scaling by the square root
"""

from __future__ import annotations

from math import sqrt
from typing import Literal

STAGES = (0, 1, 2, 3)  # of ZeRO; 0: plain data parallel


def flops_per_token(*, parameters: int, layers: int, channels: int, sequence: int) -> float:
    """6P + 12 L C T: forward and backward with attention (K, C).

    Two flops for each parameter forward, four backward; and attention's two products of T x C, which have no
    parameters, counted as if nothing were masked. P without the positions, which are only looked up; the difference is
    small, and logs that name an MFU leave them out.
    """
    _at_least(0, parameters=parameters)
    _at_least(1, layers=layers, channels=channels, sequence=sequence)
    return 6.0 * parameters + 12.0 * layers * channels * sequence


def mfu(*, tokens_per_second: float, flops_per_token: float, peak: float, devices: int = 1) -> float:
    """Model flops utilisation: what the model needs over what `devices` of `peak` flops/s could do, 0 to 1 (C).

    tokens_per_second: of all devices together. peak: in the number format in use (`kit.cost.machines.peak`). Work that
    is done twice (recomputation) is not counted, so it lowers the figure.
    """
    if not peak > 0:
        raise ValueError(f"a peak is above 0 flops per second, not {peak}: measure it with a large matrix product")
    _at_least(1, devices=devices)
    _at_least(0, tokens_per_second=tokens_per_second, flops_per_token=flops_per_token)
    return tokens_per_second * flops_per_token / (peak * devices)


def elements_sent(
    *, parameters: int, ranks: int, stage: int = 0, micro_batches: int = 1, every_micro_batch: bool = False
) -> float:
    """Elements each rank sends in one step, by rings: c P (N-1)/N with a c for each stage (R, PY).

    stage 0, 1: c = 2. An all-reduce of the gradients; or a reduce-scatter of them and an all-gather of the weights.
    stage 2: c = m + 1. Gradients are kept sharded, so each micro-batch is reduced; the weights are gathered once.
    stage 3: c = 3m. Each micro-batch gathers the weights twice and reduces the gradients.
    R gives 2, 2, 2 and 3, which is m = 1 and many ranks. every_micro_batch: stage 0 all-reduces after each
    micro-batch, as DDP does without `no_sync`: c = 2m.
    """
    if stage not in STAGES:
        raise ValueError(f"stage is 0 (plain data parallel), 1, 2 or 3, not {stage!r}")
    _at_least(0, parameters=parameters)
    _at_least(1, ranks=ranks, micro_batches=micro_batches)
    if every_micro_batch and stage != 0:
        raise ValueError("every_micro_batch is for stage 0: the other stages have it decided already")
    rounds = {0: 2 * (micro_batches if every_micro_batch else 1), 1: 2, 2: micro_batches + 1, 3: 3 * micro_batches}
    return rounds[stage] * parameters * (ranks - 1) / ranks


def scaled_rate(rate: float, *, ranks: int, rule: Literal["linear", "sqrt", "same"] = "linear") -> float:
    """The learning rate for N workers and an N times larger batch, from the one that suits a single worker.

    'linear' (G): N steps of the small batch, taken at once. 'sqrt' (KR; the ALCF talks): keeps the variance of a step's
    noise. Both are rules of thumb that fail for large N, and both want a warm-up; 'same' is for comparison.
    """
    _at_least(1, ranks=ranks)
    _at_least(0, rate=rate)
    factors = {"linear": float(ranks), "sqrt": sqrt(ranks), "same": 1.0}
    if rule not in factors:
        raise ValueError(f"rule is 'linear', 'sqrt' or 'same', not {rule!r}")
    return rate * factors[rule]


def _at_least(least: int, **values: float) -> None:
    for name, value in values.items():
        if not value >= least:  # a NaN is not either
            raise ValueError(f"{name} is {least} or more, not {value!r}")
