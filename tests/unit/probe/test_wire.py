"""Messages arrive whole, however the stream is cut."""

from __future__ import annotations

import socket
import threading
from typing import Any

import numpy as np
import pytest

from kit.protocol.wire import Channel


@pytest.fixture
def ends() -> tuple[Channel[Any, Any], Channel[Any, Any]]:
    one, other = socket.socketpair()
    return Channel(one), Channel(other)


def test_messages_keep_their_order_and_their_arrays(ends: tuple[Channel[Any, Any], Channel[Any, Any]]) -> None:
    here, there = ends
    for number in range(3):
        here.send({"kind": "n", "number": number, "array": np.arange(number)})
    got = [there.receive() for _ in range(3)]
    assert [m["number"] for m in got if m] == [0, 1, 2]
    assert got[2] is not None and got[2]["array"].tolist() == [0, 1]


def test_a_message_larger_than_the_buffers(ends: tuple[Channel[Any, Any], Channel[Any, Any]]) -> None:
    here, there = ends
    sender = threading.Thread(target=here.send, args=({"kind": "big", "body": b"x" * (4 << 20)},))
    sender.start()
    got = there.receive()
    sender.join()
    assert got is not None and len(got["body"]) == 4 << 20


def test_pump_returns_only_whole_messages(ends: tuple[Channel[Any, Any], Channel[Any, Any]]) -> None:
    here, there = ends
    assert there.pump() == []
    here.send({"kind": "a"})
    here.send({"kind": "b"})
    assert [m["kind"] for m in there.pump()] == ["a", "b"]


def test_the_end_is_told_apart_from_silence(ends: tuple[Channel[Any, Any], Channel[Any, Any]]) -> None:
    here, there = ends
    here.close()
    with pytest.raises(EOFError):
        there.pump()
    assert there.receive() is None
