"""A device's clock beside the host's: what it tells is as exact as it says."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

import pytest

from kit.probe import record
from kit.probe.record import DeviceClock


@dataclass
class Host:
    """Its clock goes on with every look at it, and stops short now and then, as a process that others hold up."""

    random: Random
    now: int = 1_000_000

    def monotonic_ns(self) -> int:
        self.now += self.random.choice((200, 400, 900, 50_000))
        return self.now


@dataclass
class Device:
    """Runs a little fast or slow; a moment on it is over some time after it was launched."""

    host: Host
    rate: float

    def moment(self, timed: bool = False) -> Moment:
        self.host.now += self.host.random.randrange(3_000, 9_000)
        return Moment(self, self.host.now)

    def synchronize(self) -> None:
        self.host.now += 10_000


@dataclass
class Moment:
    device: Device
    at: int  # of the host's clock, which nobody knows

    def synchronize(self) -> None:
        self.device.host.now += self.device.host.random.randrange(2_000, 20_000)

    def since(self, earlier: Moment) -> int:
        return round((self.at - earlier.at) * self.device.rate)


@pytest.mark.parametrize("rate", [1.0, 1 + 2e-5, 1 - 2e-5])
def test_times_are_as_exact_as_is_said(rate: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """20 millionths of 10 s would be 200 µs, were the clock laid beside the host's at the beginning alone."""
    host = Host(Random(0))
    device: Any = Device(host, rate)
    monkeypatch.setattr(record, "time", host)
    clock = DeviceClock(device)
    clock.start()
    moments = []
    for _ in range(100):
        host.now += 100_000_000
        moments.append(clock.now())
    clock.end()
    rounding = 2
    off = max(abs(clock.when(moment) - moment.at) for moment in moments)  # type: ignore[attr-defined]
    assert 0 < off <= clock.error + rounding
    assert clock.error < 20_000, "the closest of some pairs counts, not one in which the host was held up"


def test_a_run_that_was_given_up_has_its_beginning() -> None:
    host = Host(Random(1))
    device: Any = Device(host, 1.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record, "time", host)
        clock = DeviceClock(device)
        clock.start()
    later: Any = Moment(device, host.now + 1_000)
    assert abs(clock.when(later) - later.at) <= clock.error
