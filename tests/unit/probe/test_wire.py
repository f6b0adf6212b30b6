"""Messages arrive whole, however the stream is cut."""

from __future__ import annotations

import os
import pickle
import resource
import socket
import threading
from typing import Any

import cloudpickle
import numpy as np
import pytest

from kit.protocol.parcels import LARGE, packed
from kit.protocol.wire import Channel, Mailbox


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


def test_a_memory_file_goes_along_and_is_relayed_unread(ends: tuple[Channel[Any, Any], Channel[Any, Any]]) -> None:
    here, there = ends
    further, end = socket.socketpair()
    relay: Mailbox[Any, Any] = Mailbox(further)
    values = np.arange(300_000)
    here.send("before")
    here.send({"array": packed(values, cloudpickle.Pickler), "again": packed(values[::-1], cloudpickle.Pickler)})
    host: Mailbox[Any, Any] = Mailbox(socket.fromfd(there.fileno(), socket.AF_UNIX, socket.SOCK_STREAM))
    for _, letter in host.pump_letters():
        relay.relay(letter)
    relay.post("after")
    relay.flush()
    last: Channel[Any, Any] = Channel(end)
    assert last.receive() == "before"
    parcels = last.receive()
    assert np.array_equal(parcels["array"].opened(), values) and np.array_equal(parcels["again"].opened(), values[::-1])
    assert last.receive() == "after" and not relay.backlog


def test_what_is_large_is_written_once_and_each_who_opens_it_has_its_own() -> None:
    values = np.zeros(300_000)
    parcel = packed({"values": values, "beside": values[:5], "text": b"t" * LARGE}, cloudpickle.Pickler)
    one, other = parcel.opened(), parcel.opened()
    one["values"][0] = 7.0
    assert other["values"][0] == 0.0 == values[0] and other["text"] == b"t" * LARGE
    assert packed(values[:5], cloudpickle.Pickler).file is None, "what is small needs no file"
    with pytest.raises(TypeError, match="sent by a channel"):
        pickle.dumps(parcel)


def test_a_fork_keeps_no_memory_that_its_parent_lets_go_of() -> None:
    parcel = packed(bytes(LARGE), cloudpickle.Pickler)
    assert parcel.file is not None
    descriptor = parcel.file.fileno()
    pid = os.fork()
    if pid == 0:
        try:
            os.fstat(descriptor)
        except OSError:
            os._exit(0)
        os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
    assert os.fstat(descriptor).st_size >= LARGE


def test_a_file_that_this_process_may_not_open_is_named(ends: tuple[Channel[Any, Any], Channel[Any, Any]]) -> None:
    here, there = ends
    here.send(packed(bytes(LARGE), cloudpickle.Pickler))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        with pytest.raises(OSError, match="may open no more files"):
            there.receive()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
