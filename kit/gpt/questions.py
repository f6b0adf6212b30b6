"""Questions with several endings, of which one goes on sensibly: a model is asked which it finds likeliest.

R. Zellers and others, HellaSwag: can a machine really finish your sentence? (2019). A model is not asked in words: of
each ending it gives a loss, and the smallest is its answer. Letters: E endings, T tokens of the longest one and its
context, B as many questions as are asked, V vocabulary.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F

Encode = Callable[[str], torch.Tensor]
Logits = Callable[[torch.Tensor], torch.Tensor]  # tokens (E, T) -> logits (E, T, V)
_HIDDEN = -100  # targets that cross_entropy leaves out


@dataclass(frozen=True)
class Question:
    """A context, and endings of which number `label` is right."""

    context: str
    endings: tuple[str, ...]
    label: int


@dataclass(frozen=True)
class Score:
    """How many questions were answered rightly: by the smallest loss of a whole ending (raw), which favours short
    ones, and by the smallest loss per token (normalised).
    """

    asked: int
    raw: int
    normalised: int

    def __str__(self) -> str:
        return f"{self.normalised} of {self.asked} right = {self.normalised / self.asked:.2%} (raw {self.raw})"


def read_questions(path: str | Path) -> list[Question]:
    """Of a file as HellaSwag has them, a line of JSON for each: 'ctx', 'endings', 'label'.

    Raises ValueError for a file that is not there, and for a line that is no question.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} cannot be read ({error}): name a file of HellaSwag's, *.jsonl") from error
    found = [_question(line, f"{path}, line {number}") for number, line in enumerate(lines, 1) if line.strip()]
    if not found:
        raise ValueError(f"{path} has no questions: each is a line of JSON with 'ctx', 'endings' and 'label'")
    return found


def _question(line: str, where: str) -> Question:
    try:
        said: dict[str, Any] = json.loads(line)
        question = Question(str(said["ctx"]), tuple(map(str, said["endings"])), int(said["label"]))
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{where} is no question ({error!r}): it wants 'ctx', 'endings' and 'label'") from error
    if not 0 <= question.label < len(question.endings):
        raise ValueError(f"{where}: the right ending is number {question.label} of {len(question.endings)}, from 0 on")
    return question


# The shapes stand in one column.
# fmt: off


@torch.no_grad()
def ending_losses(
    logits_of: Logits, encode: Encode, question: Question, block: int, device: torch.device | str = "cpu"
) -> tuple[torch.Tensor, torch.Tensor]:
    """Of each ending the loss in nats, and the loss per token: 2 x (E,). The context counts for neither.

    Where both are longer than the block, the context begins later. Raises ValueError for an ending that leaves no token
    of its context.
    """
    context = encode(question.context)                           # (c,)
    rows = [torch.cat([context, encode(f" {ending}")])[-block - 1 :] for ending in question.endings]  # each (t + 1,)
    own = [len(encode(f" {ending}")) for ending in question.endings]
    if not len(context) or max(own) > block:
        raise ValueError(f"an ending of {max(own)} tokens after a context has no place in a block of {block}")
    T = max(map(len, rows)) - 1
    tokens = torch.zeros(len(rows), T, dtype=torch.int64)        # (E, T)
    targets = torch.full((len(rows), T), _HIDDEN)                # (E, T)
    for row, k, ids, these in zip(rows, own, tokens, targets, strict=True):
        t = len(row) - 1
        ids[:t] = row[:-1]
        these[t - k : t] = row[-k:]
    logits = logits_of(tokens.to(device))                        # (E, T, V)
    each = F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten().to(device), reduction="none")  # (E T,)
    total = each.view(len(rows), T).sum(dim=1)                   # (E,): one sum for each ending
    return total, total / torch.tensor(own, device=device)       # 2 x (E,)


# fmt: on


def ask(
    logits_of: Logits,
    encode: Encode,
    questions: Sequence[Question],
    block: int,
    *,
    part: int = 0,
    parts: int = 1,
    group: dist.ProcessGroup | None = None,
    device: torch.device | str = "cpu",
) -> Score:
    """The score of all questions together; each of the parts asks every n-th of them, and the group adds them up.

    All ranks call the model equally often, since it may have to speak to the others for each call: where questions run
    out a rank asks the first one, which does not count.
    """
    mine = questions[part::parts]
    counts = torch.zeros(3, dtype=torch.int64, device=device)  # asked, raw, normalised
    for number in range(-(-len(questions) // parts)):
        question = mine[number] if number < len(mine) else questions[0]
        answers = [
            int(losses.argmin()) == question.label
            for losses in ending_losses(logits_of, encode, question, block, device)
        ]
        if number < len(mine):
            counts += torch.tensor([1, *answers], device=device)
    if parts > 1:
        dist.all_reduce(counts, group=group)
    return Score(*counts.tolist())
