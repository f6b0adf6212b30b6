"""Where ranks, arrows and labels go in a drawing, so that no label covers an arrow, a rank or another label."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import cos, hypot, pi, sin

Point = tuple[float, float]
Box = tuple[float, float, float, float]  # left, top, right, bottom

FONT = 10.0  # px, labels on arrows
_ADVANCE = 6.3  # px per character of a 10 px label, rather too wide than too narrow: fonts differ


@dataclass(frozen=True, slots=True)
class Arrow:
    """A straight arrow between two ranks, shortened to their rims."""

    start: Point
    end: Point


@dataclass(frozen=True, slots=True)
class Label:
    """A text with its middle on a point."""

    text: str
    at: Point


def apart(wanted: Mapping[int, float], bottom: float, line: float) -> dict[int, float]:
    """Heights in px for names, a line apart at least: as near to the ends of their curves, `wanted`, as that allows."""
    found: dict[int, float] = {}
    floor = bottom + line
    for i in sorted(wanted, key=lambda i: -wanted[i]):  # from the bottom up
        found[i] = floor = min(wanted[i], floor - line)
    return found


def ring(count: int, width: float, height: float, radius: float) -> list[Point]:
    """Middles of `count` ranks on an ellipse, clockwise; four stand in a square as on paper, 0 at the upper left."""
    middle_x, middle_y = width / 2, height / 2
    across, down = min(width / 2 - radius - 70, 155), height / 2 - radius - 14
    if count == 1:
        return [(middle_x, middle_y)]
    if count == 2:
        return [(middle_x - 95, middle_y), (middle_x + 95, middle_y)]
    if count == 4:
        x, y = 92, height / 2 - radius - 14
        return [
            (middle_x - x, middle_y - y),
            (middle_x + x, middle_y - y),
            (middle_x + x, middle_y + y),
            (middle_x - x, middle_y + y),
        ]
    if count == 3:
        top, bottom = radius + 6, height - radius - 22
        return [(middle_x, top), (middle_x + 120, bottom), (middle_x - 120, bottom)]
    turns = [2 * pi * i / count - pi / 2 for i in range(count)]
    return [(middle_x + across * cos(t), middle_y + down * sin(t)) for t in turns]


def arrow(start: Point, end: Point, radius: float, beside: float = 0.0, end_radius: float | None = None) -> Arrow:
    """An arrow from rim to rim; `beside` shifts it to its right, for pairs of ranks that send to each other."""
    dx, dy = end[0] - start[0], end[1] - start[1]
    length = hypot(dx, dy) or 1.0
    ux, uy = dx / length, dy / length
    off = (-uy * beside, ux * beside)
    gap, end_gap = radius + 5, (radius if end_radius is None else end_radius) + 5
    return Arrow(
        (start[0] + ux * gap + off[0], start[1] + uy * gap + off[1]),
        (end[0] - ux * end_gap + off[0], end[1] - uy * end_gap + off[1]),
    )


def place_labels(
    texts: list[str], arrows: list[Arrow], nodes: list[Point], radius: float, width: float, height: float
) -> list[Label | None]:
    """A place beside each arrow for its text; None where there is no free room (the words still name it)."""
    taken: list[Box] = []
    placed: list[Label | None] = []
    middle = (width / 2, height / 2)
    for text, line in zip(texts, arrows, strict=True):
        half = (len(text) * _ADVANCE / 2, FONT / 2 + 1)
        found = None
        others = [other for other in arrows if other is not line]
        for at, anchor in _candidates(line, half, middle):
            box = (at[0] - half[0], at[1] - half[1], at[0] + half[0], at[1] + half[1])
            inside = box[0] >= 2 and box[1] >= 2 and box[2] <= width - 2 and box[3] <= height - 2
            labels_clear = not any(_overlap(box, other) for other in taken)
            nodes_clear = not any(_touches(node, radius + 3, box) for node in nodes)
            arrows_clear = not any(_crosses(a, box) for a in arrows) and not any(_apart(at, anchor, a) for a in others)
            if inside and labels_clear and nodes_clear and arrows_clear:
                found = Label(text, at)
                taken.append(box)
                break
        placed.append(found)
    return placed


def label_box(label: Label) -> Box:
    """The room a label takes."""
    half = len(label.text) * _ADVANCE / 2
    return label.at[0] - half, label.at[1] - FONT / 2 - 1, label.at[0] + half, label.at[1] + FONT / 2 + 1


def _candidates(line: Arrow, half: Point, middle: Point) -> list[tuple[Point, Point]]:
    """Points beside an arrow and their feet on it, best first: outside before inside, halfway before near the ends."""
    (x1, y1), (x2, y2) = line.start, line.end
    length = hypot(x2 - x1, y2 - y1) or 1.0
    nx, ny = -(y2 - y1) / length, (x2 - x1) / length
    outward = (x1 + x2) / 2 - middle[0], (y1 + y2) / 2 - middle[1]
    side = 1.0 if nx * outward[0] + ny * outward[1] >= 0 else -1.0
    away = abs(nx) * half[0] + abs(ny) * half[1] + 5
    points = []
    for sign in (side, -side):
        for along in (0.5, 0.4, 0.6, 0.3, 0.7, 0.2, 0.8):
            foot = x1 + (x2 - x1) * along, y1 + (y2 - y1) * along
            for extra in (0.0, 7.0, 14.0):
                reach = sign * (away + extra)
                points.append(((foot[0] + nx * reach, foot[1] + ny * reach), foot))
    return points


def _apart(at: Point, foot: Point, line: Arrow) -> bool:
    """Whether an arrow runs between a label and the arrow it belongs to."""

    def side(a: Point, b: Point, c: Point) -> float:
        return (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])

    parted = side(line.start, line.end, at) * side(line.start, line.end, foot) < 0
    return parted and side(at, foot, line.start) * side(at, foot, line.end) < 0


def _overlap(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _touches(node: Point, radius: float, box: Box) -> bool:
    """Whether a rank's circle reaches into a box."""
    dx = max(box[0] - node[0], 0.0, node[0] - box[2])
    dy = max(box[1] - node[1], 0.0, node[1] - box[3])
    return hypot(dx, dy) < radius


def _crosses(line: Arrow, box: Box) -> bool:
    """Whether an arrow, head included, passes through a box; the box is widened by half the head."""
    left, top, right, bottom = box[0] - 3, box[1] - 3, box[2] + 3, box[3] + 3
    (x1, y1), (x2, y2) = line.start, line.end
    low, high = 0.0, 1.0
    for start, delta, least, most in ((x1, x2 - x1, left, right), (y1, y2 - y1, top, bottom)):
        if abs(delta) < 1e-9:
            if not least < start < most:
                return False
            continue
        one, other = sorted(((least - start) / delta, (most - start) / delta))
        low, high = max(low, one), min(high, other)
    return low < high
