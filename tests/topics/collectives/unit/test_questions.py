"""What is said to a wrong guess holds on every link, not only where latencies are small."""

from __future__ import annotations

from kit.cost import network
from kit.topics.collectives.questions import ANSWERS

SLOW_START, LARGE = {"latency": 2e-3, "bandwidth": 1.9e9}, 100_000_000  # s a message, bytes per second; bytes


def reasons(name: str, **known: float) -> str:
    why = ANSWERS[name].why
    return str(why(**known) if callable(why) else why)


def test_with_100_mb_latency_may_still_count() -> None:
    """The ring's bytes are as few as the winner's; where a message takes 2 ms it is far behind all the same."""
    ring = network.ring_all_reduce(64, LARGE, **SLOW_START)
    halving = network.halving_doubling_all_reduce(64, LARGE, **SLOW_START)
    assert ring > 2 * halving
    said = reasons("fastest-100-mb", behind=100 * (ring / halving - 1))
    assert "only bytes count" not in said and "The tree sends all 100 MB in each of 12 rounds" in said
