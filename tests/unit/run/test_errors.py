"""Which sentences a run that went wrong ends in, and in what order."""

from __future__ import annotations

from kit.run.errors import what_went_wrong
from kit.trace.facts import PARTNER_LOST, Failure, Place, Position, RankState

AT = Place("cell", 6, "f")


def failed(rank: int, kind: str, message: str) -> RankState:
    return RankState(rank, "failed", AT, error=Failure(kind, message, "", AT))


def test_whoever_died_is_named_first_and_what_the_others_suffered_is_not_said() -> None:
    lost = failed(0, PARTNER_LOST, "another rank closed the connection")
    own = failed(1, "ValueError", "boom")
    dead = RankState(2, "dead", AT, detail="killed by SIGKILL")
    stepped = Position("finish", (lost, own, dead), "Deadlock: rank 3 waits in barrier (line 6); rank 2 died.")
    assert what_went_wrong(stepped).splitlines() == [
        "rank 2 died: killed by SIGKILL",
        "rank 1 failed at line 6: ValueError: boom",
        "Deadlock: rank 3 waits in barrier (line 6); rank 2 died.",
    ]
    verdict = "rank 2 died in barrier (line 6) or after it: killed by SIGKILL."
    assert what_went_wrong(Position("record", (lost, own, dead), verdict)).splitlines() == [
        verdict,
        "rank 1 failed at line 6: ValueError: boom",
    ]


def test_a_lost_connection_is_said_where_nobody_died() -> None:
    lost = failed(0, PARTNER_LOST, "another rank closed the connection: its process ended, or it left the group")
    told = what_went_wrong(Position("record", (lost, RankState(1, "finished")), None))
    assert told.startswith("rank 0 failed at line 6: PartnerLost: another rank closed the connection")


def test_a_lost_agent_is_said_once_and_not_of_every_rank() -> None:
    dead = tuple(RankState(rank, "dead", detail="the cluster lost its agent") for rank in range(3))
    assert what_went_wrong(Position("record", dead, "the cluster lost its agent")) == "the cluster lost its agent"
