"""A learner's module with state of every kind, some of which cannot leave its process."""

from __future__ import annotations

import threading
from typing import Any

value: Any = None
count = 0
lock = threading.Lock()
seen: list[int] = []


class Box:
    total = 0

    def __init__(self, content: int) -> None:
        self.content = content

    def doubled(self) -> int:
        return 2 * self.content


def setup(x: Any) -> None:
    global value
    value = x


def bump() -> None:
    global count
    count += 1
    Box.total += 1
    seen.append(count)


def current() -> int:
    return count
