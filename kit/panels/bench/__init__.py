"""The schedule bench: a pipeline's schedule under the learner's hands, proved, priced and run."""

from kit.panels.bench.panel import Ran, ScheduleBench
from kit.panels.bench.words import Target

__all__ = ["Ran", "ScheduleBench", "Target"]
