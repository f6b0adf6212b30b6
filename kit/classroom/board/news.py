"""What a learner's kernel tells the board: one small message, of which the latest counts."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from dataclasses import asdict, dataclass, field, fields
from typing import Any

LARGEST = 1 << 16  # bytes of a message
LONGEST = {"name": 60, "lab": 80, "cell": 80, "exercise": 80, "sentence": 600, "code": 20_000}  # characters
STATUSES = ("", "not attempted", "failed", "passed")
_UNSEEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_LEARNER = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True)
class News:
    """Where a learner is. Text is cut to `LONGEST`, and loses what no reader sees.

    learner: drawn at random when they join. exercise, status, stage, sentence: of their latest check. tries: of that
    exercise since it last was right. passed: exercises of this kernel. asks: for help; code: their function then.
    """

    learner: str
    name: str
    lab: str = ""
    cell: str = ""
    exercise: str = ""
    status: str = ""
    stage: str = ""
    sentence: str = ""
    tries: int = 0
    passed: tuple[str, ...] = ()
    asks: bool = False
    code: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        if not _LEARNER.fullmatch(self.learner):
            raise ValueError("no learner is named so")
        if self.status not in STATUSES:
            raise ValueError(f"a check ends as one of {', '.join(STATUSES[1:])}, not {self.status!r}")
        for name, longest in LONGEST.items():
            keeps_lines = name == "code"
            text = _UNSEEN.sub("", getattr(self, name))
            text = text if keeps_lines else " ".join(text.split())
            object.__setattr__(self, name, text[:longest])
        object.__setattr__(self, "passed", tuple(each[:80] for each in self.passed[:100]))
        if self.code and not self.asks:
            raise ValueError("code is told by who asks for help, and by nobody else")


_KINDS: dict[str, type] = {"tries": int, "passed": list, "asks": bool}


def sealed(news: News, code: str) -> bytes:
    """As it travels: a sign that its writer knows the code of the class, and JSON."""
    body = json.dumps(asdict(news)).encode()
    return _sign(body, code) + b"\n" + body


def opened(data: bytes, code: str) -> News:
    """Raises ValueError for what no kernel of this class has written."""
    sign, _, body = data.partition(b"\n")
    if len(data) > LARGEST or not hmac.compare_digest(sign, _sign(body, code)):
        raise ValueError("this was not written by who knows the code of the class")
    try:
        found: Any = json.loads(body)
    except (UnicodeDecodeError, RecursionError, json.JSONDecodeError) as problem:
        raise ValueError("this is no JSON") from problem
    wanted = {each.name: _KINDS.get(each.name, str) for each in fields(News)}
    if not isinstance(found, dict) or found.keys() != wanted.keys():
        raise ValueError("this has other fields than news")
    if not all(type(found[name]) is kind for name, kind in wanted.items()):
        raise ValueError("this has fields of other kinds than news")
    if not all(type(each) is str for each in found["passed"]):
        raise ValueError("this has passed what has no name")
    return News(**{**found, "passed": tuple(found["passed"])})


def place_of(code: str) -> str:
    """The name of the folder of a class: who does not know its code does not find it."""
    return f"lockstep-board-{hashlib.sha256(code.encode()).hexdigest()[:16]}"


def _sign(body: bytes, code: str) -> bytes:
    return hmac.new(code.encode(), body, hashlib.sha256).hexdigest().encode()
