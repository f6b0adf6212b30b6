"""What the bench says beside its picture: the proof, then idle time and activations against the target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kit.plan.flaws import Flaw, most_held
from kit.plot.markup import escape
from kit.trace.text import counted, duration

if TYPE_CHECKING:
    from kit.panels.bench.layout import Layout

MOST_FLAWS = 3  # that are read out at once; their number is said
MANY = 12  # ranks that are written out
RUNS = (
    "It runs: each micro-batch goes forward and back once at every stage, nothing is used too early, nobody waits "
    "for ever."
)


@dataclass(frozen=True)
class Target:
    """What a schedule is to come down to. idle: share of the time in which ranks stand still, such as 0.2; held:
    activations on the rank that holds most; None: no matter.
    """

    idle: float | None = None
    held: int | None = None

    def reached(self, idle: float, held: int) -> bool:
        enough = self.idle is None or idle <= self.idle + 1e-9  # a share that rounding alone parts from the target
        return enough and (self.held is None or held <= self.held)


@dataclass(frozen=True)
class Gauge:
    """name, what it stands at, what is aimed at; good: None where nothing is."""

    name: str
    value: str
    aim: str = ""
    good: bool | None = None

    def __str__(self) -> str:
        verdict = "" if self.good is None else f", {'reached' if self.good else 'not yet'}"
        return f"{self.name} {self.value}" + (f" (target {self.aim}{verdict})" if self.aim else "")

    def html(self) -> str:
        state = {None: "", True: " lsp-good", False: " lsp-missed"}[self.good]
        said = "" if self.good is None else f" · {'reached' if self.good else 'not yet'}"
        aim = f"<small>target {escape(self.aim)}{said}</small>" if self.aim else ""
        return f'<div class="lsp-gauge{state}"><span>{escape(self.name)}</span><b>{escape(self.value)}</b>{aim}</div>'


def gauges(layout: Layout, target: Target, valid: bool, unit: str) -> list[Gauge]:
    """Idle share and overhead only of what runs to its end; activations always."""
    schedule = layout.schedule
    held = [most_held(schedule, rank) for rank in range(schedule.ranks)]
    most = max(held, default=0)
    by_rank = f"{most}" if len(held) > MANY or len(set(held)) < 2 else f"{most} ({', '.join(map(str, held))} by rank)"
    line, share = layout.line, layout.idle_share
    known = valid and share is not None
    idle_aim = "" if target.idle is None else f"at most {target.idle:.1%}"
    held_aim = "" if target.held is None else f"at most {target.held}"
    low = None if target.idle is None else known and Target(idle=target.idle).reached(share or 0.0, 0)
    return [
        Gauge("idle", f"{share:.1%} of the time" if known else "unknown", idle_aim, low),
        Gauge("overhead", f"{line.overhead:.1%}" if known else "unknown"),
        Gauge("activations", by_rank, held_aim, None if target.held is None else most <= target.held),
        Gauge("length", length(line.seconds, unit) if known else "does not end"),
    ]


def verdict(found: tuple[Flaw, ...]) -> list[str]:
    """The proof, or what stands against it."""
    if not found:
        return [RUNS]
    more = len(found) - MOST_FLAWS
    said = [flaw.sentence for flaw in found[:MOST_FLAWS]]
    return [*said, f"and {counted(more, 'further flaw')}"] if more > 0 else said


def length(seconds: float, unit: str) -> str:
    return duration(seconds * 1e9) if unit == "s" else f"{seconds:.4g} {unit}"
