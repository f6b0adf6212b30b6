"""Letters of a rank are data, and only those that are what they say are opened."""

from __future__ import annotations

import pytest
import torch

from kit.classroom import inert
from kit.classroom.letters import LENGTH, Asks, GaveUp, HasEnded, Wants, letters_in, sealed

ASKS = Asks(0, 1, "send", "0", (0, 1), (torch.ones(3),), (), ((7, 0),), "in", None, 1, 0, None, None, ("cell", 3, "f"))


def test_letters_come_as_they_were_written_however_they_are_cut() -> None:
    sent = [Wants(0, True, False, None), GaveUp(0, "too long"), HasEnded(None, None, (("stdout", "x"),), None)]
    stream, inbox, came = b"".join(map(sealed, sent)), bytearray(), []
    for byte in stream:
        inbox.append(byte)
        came += letters_in(inbox)
    assert came == sent
    assert not inbox


def test_a_tensor_comes_with_its_values() -> None:
    (came,) = letters_in(bytearray(sealed(ASKS)))
    assert isinstance(came, Asks)
    assert came.inputs[0].equal(torch.ones(3))
    assert came.at == ASKS.at


@pytest.mark.parametrize(
    "value",
    [
        ("Begin", 1),
        ("Wants", 0, True, False),
        ("Wants", True, True, False, None),
        ("Wants", 0, 1, False, None),
        ("GaveUp", 0, ["sentence"]),
        ("HasEnded", ("kind", "message"), None, (), None),
        None,
        [],
    ],
)
def test_another_is_refused(value: object) -> None:
    data = inert.encode(value)
    with pytest.raises(inert.Refused):
        list(letters_in(bytearray(LENGTH.pack(len(data)) + data)))


def test_one_that_is_too_long_is_refused_before_it_has_come() -> None:
    with pytest.raises(inert.Refused):
        list(letters_in(bytearray(LENGTH.pack(inert.MOST + 1))))
