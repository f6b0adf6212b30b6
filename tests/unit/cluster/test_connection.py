"""The kernel's line to the agent and the agent's to everyone: real sockets, no processes."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from kit.cluster.connection import Connection
from kit.cluster.mailbox import Mailbox
from kit.probe.wire import Channel, Message


@pytest.fixture
def ends() -> Iterator[tuple[Channel, Channel]]:
    one, other = socket.socketpair()
    channels = Channel(one), Channel(other)
    yield channels
    for channel in channels:
        channel.shutdown()  # a reader thread that still waits here ends and closes its end itself
    other.close()


class Heard:
    """A subscriber that can be waited for."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.threads: set[str] = set()
        self._more = threading.Condition()

    def __call__(self, message: Message) -> None:
        with self._more:
            self.messages.append(message)
            self.threads.add(threading.current_thread().name)
            self._more.notify_all()

    def kinds(self, count: int) -> list[str]:
        with self._more:
            assert self._more.wait_for(lambda: len(self.messages) >= count, 5), self.messages
            return [message["kind"] for message in self.messages]


def test_messages_reach_all_subscribers_in_order_in_one_thread(ends: tuple[Channel, Channel]) -> None:
    connection, first, second = Connection(), Heard(), Heard()
    connection.subscribe(first)
    connection.subscribe(second)
    connection.open(ends[0])
    for number in range(50):
        ends[1].send({"kind": str(number)})
    assert first.kinds(50) == second.kinds(50) == [str(number) for number in range(50)]
    assert first.threads == second.threads == {"read from the agent"}
    connection.send({"kind": "hello"})
    assert ends[1].receive() == {"kind": "hello"}


def test_a_subscription_ends_when_its_owner_says_so(ends: tuple[Channel, Channel]) -> None:
    connection, gone, stays = Connection(), Heard(), Heard()
    unsubscribe = connection.subscribe(gone)
    connection.subscribe(stays)
    connection.open(ends[0])
    ends[1].send({"kind": "one"})
    assert stays.kinds(1) == ["one"]
    unsubscribe()
    unsubscribe()
    ends[1].send({"kind": "two"})
    assert stays.kinds(2) == ["one", "two"]
    assert gone.kinds(1) == ["one"]


def test_a_subscriber_that_fails_is_logged_and_the_others_hear(
    ends: tuple[Channel, Channel], caplog: pytest.LogCaptureFixture
) -> None:
    def broken(message: Message) -> None:
        raise RuntimeError("mine")

    connection, heard = Connection(), Heard()
    connection.subscribe(broken)
    connection.subscribe(heard)
    connection.open(ends[0])
    ends[1].send({"kind": "one"})
    ends[1].send({"kind": "two"})
    assert heard.kinds(2) == ["one", "two"]
    assert "a subscriber failed on 'one'" in caplog.text and "RuntimeError: mine" in caplog.text


def test_the_agents_end_is_told_and_sending_says_what_to_do(ends: tuple[Channel, Channel]) -> None:
    connection, heard = Connection(), Heard()
    connection.subscribe(heard)
    with pytest.raises(ConnectionError, match=r"kit\.cluster\(\) starts one"):
        connection.send({"kind": "early"})
    connection.open(ends[0])
    ends[1].close()
    assert heard.kinds(1) == ["agent-lost"]
    with pytest.raises(ConnectionError):
        connection.send({"kind": "late"})


def test_closing_on_purpose_is_no_loss_and_another_channel_can_follow(ends: tuple[Channel, Channel]) -> None:
    connection, heard = Connection(), Heard()
    connection.subscribe(heard)
    connection.open(ends[0])
    connection.close()
    assert ends[1].receive() is None
    one, other = socket.socketpair()
    connection.open(Channel(one))
    Channel(other).send({"kind": "again"})
    assert heard.kinds(1) == ["again"]
    connection.close()
    other.close()


def test_a_mailbox_never_blocks_and_keeps_order() -> None:
    one, other = socket.socketpair()
    mailbox, reader = Mailbox(one), Channel(other)
    body = b"x" * 100_000
    for number in range(40):  # far more than a socket buffers, and nobody reads yet
        mailbox.post({"kind": "bulk", "number": number, "body": body})
    assert mailbox.backlog
    numbers = []
    while len(numbers) < 40:
        mailbox.flush()
        numbers += [message["number"] for message in reader.pump()]
    assert numbers == list(range(40)) and not mailbox.backlog
    one.close()
    other.close()


def test_a_mailbox_whose_reader_is_gone_drops_the_rest() -> None:
    one, other = socket.socketpair()
    mailbox = Mailbox(one)
    other.close()
    mailbox.post({"kind": "late"})
    assert mailbox.broken and not mailbox.backlog
    one.close()
