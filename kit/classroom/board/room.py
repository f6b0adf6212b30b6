"""What the board knows of the class, and who is first on it. It knows neither folder nor network nor clock."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kit.classroom.pages.overview import without_numbers

if TYPE_CHECKING:
    from kit.classroom.board.news import News

QUIET = 600.0  # s without news, after which somebody may have gone
MOST = 1000  # learners; what more say is not heard
SHOWN = 5  # sentences


@dataclass
class Seat:
    news: News
    heard: float  # s
    stuck_since: float | None = None
    asks_since: float | None = None


class Room:
    def __init__(self) -> None:
        self._seats: dict[str, Seat] = {}

    def hear(self, news: News, now: float) -> None:
        """now: s, of any clock that goes on evenly."""
        seat = self._seats.get(news.learner)
        if seat is None:
            if len(self._seats) >= MOST:
                return
            seat = self._seats[news.learner] = Seat(news, now)
        stuck = news.status == "failed"
        elsewhere = seat.news.exercise != news.exercise
        seat.stuck_since = (now if seat.stuck_since is None or elsewhere else seat.stuck_since) if stuck else None
        seat.asks_since = (now if seat.asks_since is None else seat.asks_since) if news.asks else None
        seat.news, seat.heard = news, now

    def left(self, learner: str) -> None:
        self._seats.pop(learner, None)

    def state(self, now: float) -> dict[str, Any]:
        """For the page: who asks for help, then who is stuck, the longest first, then everybody else."""
        seats = sorted(self._seats.values(), key=lambda seat: _order(seat, now))
        return {
            "learners": [_shown(seat, now) for seat in seats],
            "commonest": self._commonest(now),
            "asking": sum(seat.asks_since is not None for seat in seats),
            "stuck": sum(seat.stuck_since is not None and not _quiet(seat, now) for seat in seats),
        }

    def _commonest(self, now: float) -> list[dict[str, Any]]:
        """What checks say now that are not right, the commonest first; alike but for numbers is the same."""
        said: dict[tuple[str, str], list[str]] = {}
        for seat in self._seats.values():
            news = seat.news
            if news.status == "failed" and news.sentence and not _quiet(seat, now):
                said.setdefault((news.exercise, without_numbers(news.sentence)), []).append(news.sentence)
        ranked = sorted(said.items(), key=lambda item: (-len(item[1]), item[0]))
        return [
            {"exercise": exercise, "sentence": Counter(sentences).most_common(1)[0][0], "count": len(sentences)}
            for (exercise, _), sentences in ranked[:SHOWN]
        ]


def _quiet(seat: Seat, now: float) -> bool:
    return now - seat.heard > QUIET


def _order(seat: Seat, now: float) -> tuple[Any, ...]:
    name = (seat.news.name.casefold(), seat.news.learner)
    if seat.asks_since is not None:
        return (0, seat.asks_since, *name)
    if _quiet(seat, now):
        return (3, 0.0, *name)
    if seat.stuck_since is not None:
        return (1, seat.stuck_since, *name)
    return (2, 0.0, *name)


def _shown(seat: Seat, now: float) -> dict[str, Any]:
    news = seat.news
    return {
        "learner": news.learner,
        "name": news.name,
        "lab": news.lab,
        "cell": news.cell,
        "exercise": news.exercise,
        "status": news.status,
        "sentence": news.sentence,
        "tries": news.tries,
        "passed": list(news.passed),
        "stuck": None if seat.stuck_since is None else round(now - seat.stuck_since),
        "asks": None if seat.asks_since is None else round(now - seat.asks_since),
        "code": news.code,
        "quiet": round(now - seat.heard) if _quiet(seat, now) else None,
    }
