"""The process that answers run in: ranks of its own, and nothing else. It stands behind walls, and is not trusted.

A learner's function goes to it as text and is made on the ranks alone. What comes back is read as data, see `inert`.
"""

from __future__ import annotations

import json
import os
import pickle
import struct
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from kit.classroom import inert
from kit.classroom.dormant import dormant

if TYPE_CHECKING:
    from kit.classroom.handins import Answer
    from kit.run.live import LiveRunner

LENGTH = struct.Struct(">Q")


@dataclass(frozen=True)
class Request:
    """One run. fresh: on ranks on which nothing has run. limit: s."""

    answer: Answer
    drive: Callable[..., Any] | None
    members: tuple[int, ...]
    world: int
    arguments: Sequence[tuple[Any, ...]]
    fresh: bool
    limit: float


class OnARank:
    """A function that makes that of an answer where it is called, calls it, and gives back what it returned, and its
    arguments as they are then, as bytes.
    """

    def __init__(self, answer: Answer, drive: Callable[..., Any] | None, members: tuple[int, ...]) -> None:
        self._text, self._drive, self._members = (answer.source, answer.file), drive, members
        self.__name__ = answer.function
        self.__wrapped__ = dormant(answer)  # whose source goes with it

    def __call__(self, *arguments: Any) -> bytes:
        from kit.grade.checker import watched

        names: dict[str, Any] = {"__name__": "handed_in"}
        exec(compile(*self._text, "exec", dont_inherit=True), names)
        return inert.encode(watched(names[self.__name__], self._drive, self._members)(*arguments))


def main(ranks: int) -> None:
    """Answer requests until there are no more."""
    asked, answered = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1):
        os.dup2(nothing, stream)
    from kit.clusters.request import checked
    from kit.run.live import LiveRunner

    with LiveRunner(checked(ranks, "cpu")) as live:
        send(answered, {"ready": True}, [])
        while (data := receive(asked)) is not None:
            send(answered, *_answered(live, pickle.loads(data)))


def _answered(live: LiveRunner, request: Request) -> tuple[dict[str, Any], list[bytes]]:
    from kit.api import runner_of
    from kit.run.errors import RankError

    try:
        if request.fresh:
            live.reset()
        function = OnARank(request.answer, request.drive, request.members)
        answers, trace = runner_of(live, request.limit)(function, request.world, request.arguments)
        return {"sentence": None}, [_bytes_of(trace), *answers]
    except RankError as error:
        return {"sentence": str(error)}, [_bytes_of(error.trace)]
    except Exception as problem:
        return {"fault": f"{type(problem).__name__}: {problem}"}, []


def _bytes_of(trace: Any) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        data: bytes = trace.save(Path(folder) / "trace").read_bytes()
        return data


# ------------------------------------------------------------------------------------------------------- messages


def send(stream: IO[bytes], head: dict[str, Any], parts: Sequence[bytes]) -> None:
    text = json.dumps({**head, "parts": [len(part) for part in parts]}).encode()
    body = b"".join([LENGTH.pack(len(text)), text, *parts])
    with suppress(BrokenPipeError):
        stream.write(LENGTH.pack(len(body)))
        stream.write(body)
        stream.flush()


def receive(stream: IO[bytes]) -> bytes | None:
    head = stream.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    (length,) = LENGTH.unpack(head)
    body = stream.read(length)
    return body if len(body) == length else None


def opened(body: bytes) -> tuple[dict[str, Any], list[bytes]]:
    """A message that `send` wrote. Raises inert.Refused for another."""
    try:
        (length,) = LENGTH.unpack_from(body)
        head = json.loads(body[LENGTH.size : LENGTH.size + length])
        parts, offset = [], LENGTH.size + length
        for size in head["parts"]:
            if type(size) is not int or not 0 <= size <= len(body) - offset:
                raise inert.Refused("what came back is no answer of a host")
            parts.append(body[offset : offset + size])
            offset += size
        return head, parts
    except (ValueError, KeyError, TypeError, struct.error, RecursionError) as problem:
        raise inert.Refused("what came back is no answer of a host") from problem
