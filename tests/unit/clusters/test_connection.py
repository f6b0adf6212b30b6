"""The kernel's line to the agent and the agent's to everyone: real sockets, no processes."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from kit.clusters.connection import Connection
from kit.protocol.messages import HostLost, Loads, Reset, ToKernel
from kit.protocol.wire import Channel, Mailbox

Ends = tuple[Channel[Any, Any], Channel[Any, Any]]


@pytest.fixture
def ends() -> Iterator[Ends]:
    one, other = socket.socketpair()
    channels: Ends = Channel(one), Channel(other)
    yield channels
    for channel in channels:
        channel.shutdown()  # a reader thread that still waits here ends and closes its end itself
    other.close()


class Heard:
    """A subscriber that can be waited for."""

    def __init__(self) -> None:
        self.messages: list[ToKernel] = []
        self.threads: set[str] = set()
        self._more = threading.Condition()

    def __call__(self, message: ToKernel) -> None:
        with self._more:
            self.messages.append(message)
            self.threads.add(threading.current_thread().name)
            self._more.notify_all()

    def first(self, count: int) -> list[ToKernel]:
        with self._more:
            assert self._more.wait_for(lambda: len(self.messages) >= count, 5), self.messages
            return self.messages


def test_messages_reach_all_subscribers_in_order_in_one_thread(ends: Ends) -> None:
    connection, first, second = Connection(), Heard(), Heard()
    connection.subscribe(first)
    connection.subscribe(second)
    connection.open(ends[0])
    for number in range(50):
        ends[1].send(number)
    assert first.first(50) == second.first(50) == list(range(50))
    assert first.threads == second.threads == {"read from the agent"}
    connection.send(Reset())
    assert ends[1].receive() == Reset()


def test_a_subscription_ends_when_its_owner_says_so(ends: Ends) -> None:
    connection, gone, stays = Connection(), Heard(), Heard()
    unsubscribe = connection.subscribe(gone)
    connection.subscribe(stays)
    connection.open(ends[0])
    ends[1].send("one")
    assert stays.first(1) == ["one"]
    unsubscribe()
    unsubscribe()
    ends[1].send("two")
    assert stays.first(2) == ["one", "two"]
    assert gone.first(1) == ["one"]


def test_a_subscriber_that_fails_is_logged_and_the_others_hear(ends: Ends, caplog: pytest.LogCaptureFixture) -> None:
    def broken(message: ToKernel) -> None:
        raise RuntimeError("mine")

    connection, heard = Connection(), Heard()
    connection.subscribe(broken)
    connection.subscribe(heard)
    connection.open(ends[0])
    ends[1].send("one")
    ends[1].send("two")
    assert heard.first(2) == ["one", "two"]
    assert "a subscriber failed on str" in caplog.text and "RuntimeError: mine" in caplog.text


def test_the_agents_end_is_told_and_sending_says_what_to_do(ends: Ends) -> None:
    connection, heard = Connection(), Heard()
    connection.subscribe(heard)
    with pytest.raises(ConnectionError, match=r"kit\.cluster\(\) starts one"):
        connection.send(Reset())
    connection.open(ends[0])
    ends[1].close()
    assert heard.first(1) == [HostLost()]
    with pytest.raises(ConnectionError):
        connection.send(Reset())


def test_closing_on_purpose_is_no_loss_and_another_channel_can_follow(ends: Ends) -> None:
    connection, heard = Connection(), Heard()
    connection.subscribe(heard)
    connection.open(ends[0])
    connection.close()
    assert ends[1].receive() is None
    one, other = socket.socketpair()
    connection.open(Channel(one))
    again: Channel[Any, str] = Channel(other)
    again.send("again")
    assert heard.first(1) == ["again"]
    connection.close()
    other.close()


def test_a_mailbox_never_blocks_and_keeps_order() -> None:
    one, other = socket.socketpair()
    mailbox: Mailbox[Any, tuple[int, bytes]] = Mailbox(one)
    reader: Channel[tuple[int, bytes], Any] = Channel(other)
    body = b"x" * 100_000
    for number in range(40):  # far more than a socket buffers, and nobody reads yet
        mailbox.post((number, body))
    mailbox.flush()
    assert mailbox.backlog
    numbers = []
    while len(numbers) < 40:
        mailbox.flush()
        numbers += [number for number, _ in reader.pump()]
    assert numbers == list(range(40)) and not mailbox.backlog
    one.close()
    other.close()


def test_a_mailbox_whose_reader_is_gone_drops_the_rest() -> None:
    one, other = socket.socketpair()
    mailbox: Mailbox[Any, str] = Mailbox(one)
    other.close()
    mailbox.post("late")
    mailbox.flush()
    assert mailbox.broken and not mailbox.backlog
    one.close()


def test_what_is_relayed_arrives_as_it_was_sent() -> None:
    (one, between), (onward, other) = socket.socketpair(), socket.socketpair()
    sender: Channel[Any, Loads] = Channel(one)
    comes: Mailbox[Loads, Any] = Mailbox(between)
    goes: Mailbox[Any, Loads] = Mailbox(onward)
    reader: Channel[Loads, Any] = Channel(other)
    for name in ("a", "b"):
        sender.send(Loads(name))
    letters = comes.pump_letters()
    assert [message for message, _ in letters] == [Loads("a"), Loads("b")]
    for _, letter in letters:
        goes.relay(letter)
    goes.flush()
    assert reader.pump() == [Loads("a"), Loads("b")]
    for end in (one, between, onward, other):
        end.close()
