"""Collectives: what ranks say to each other, and what it costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kit import lazy

if TYPE_CHECKING:
    from kit.topics.collectives.figures import collective_chart as collective_chart
    from kit.topics.collectives.reference import halving_doubling_all_reduce as halving_doubling_all_reduce
    from kit.topics.collectives.reference import ring_all_reduce as ring_all_reduce
    from kit.topics.collectives.reference import tree_all_reduce as tree_all_reduce

if not TYPE_CHECKING:
    __getattr__ = lazy.names(__name__)
