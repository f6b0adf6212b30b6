"""Pipeline parallel: a model cut into stages, micro-batches that pass through them, schedules of who does what."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kit import lazy

if TYPE_CHECKING:
    from kit.cost.pipeline import Timeline as Timeline
    from kit.cost.pipeline import Times as Times
    from kit.cost.pipeline import measured as measured
    from kit.cost.pipeline import simulated as simulated
    from kit.plan.families import schedule as schedule
    from kit.plan.flaws import flaws as flaws
    from kit.plan.lowered import lowered as lowered
    from kit.plan.schedule import read as read
    from kit.topics.pipeline.chart import pipeline_chart as pipeline_chart
    from kit.topics.pipeline.pictures import plot as plot
    from kit.topics.pipeline.reference import Pipeline as Pipeline
    from kit.topics.pipeline.rows import back_to_back as back_to_back
    from kit.topics.pipeline.rows import from_rows as from_rows
    from kit.topics.pipeline.running import Run as Run
    from kit.topics.pipeline.running import run as run
    from kit.topics.pipeline.work import GPTWork as GPTWork
    from kit.topics.pipeline.work import Work as Work
    from kit.topics.pipeline.workbench import bench as bench

if not TYPE_CHECKING:
    __getattr__ = lazy.names(__name__)
