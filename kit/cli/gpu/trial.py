"""All steps, one after the other: which are left out, how long each may take, and on what."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from kit.cli.gpu.facts import Outcome, Place
from kit.cli.gpu.process import carry_out
from kit.cli.gpu.step import Step
from kit.cli.gpu.steps import LABS, STEPS

MINUTES = 5.0  # in which the steps that need not be asked for come to their end
CPU_RANKS = 4  # where no number was asked for
NO_GPU = (
    "no GPU is to be seen here (no /dev/nvidia0, /dev/kfd or /dev/dxg, no Intel GPU with torch's build for it): start "
    "it on a machine, or in a job, that has one. 'lockstep doctor --gpu --device cpu' tries the steps on CPU ranks."
)

CarryOut = Callable[[Step, Place, float, Path], Outcome]


@dataclass(frozen=True, slots=True)
class Wishes:
    device: str = "auto"  # 'cuda', 'xpu', 'cpu'
    ranks: int | None = None  # at most; None: one for each device
    minutes: float = MINUTES
    numbers: frozenset[int] = frozenset()  # of steps; none: all but the labs
    labs: bool = False

    def steps(self) -> tuple[Step, ...]:
        """Those to be taken, the first in any case: it tells what the others run on."""
        offered = (*STEPS, LABS)
        unknown = sorted(self.numbers - {step.number for step in offered})
        if unknown:
            raise ValueError(f"there is no step {unknown[0]}: they are 1 to {offered[-1].number}.")
        chosen = {1, *self.numbers} if self.numbers else {step.number for step in STEPS}
        return tuple(step for step in offered if step.number in chosen or (step is LABS and self.labs))


def sees_a_gpu(root: Path = Path("/"), torch_build: Callable[[str], str] = metadata.version) -> bool:
    """Whether there are files of a GPU, at once and without torch: any Intel GPU has one, so torch must be for it."""
    if any((root / "dev").glob("nvidia[0-9]*")) or any((root / "dev" / name).exists() for name in ("kfd", "dxg")):
        return True
    try:
        return any((root / "dev/dri").glob("renderD*")) and "xpu" in torch_build("torch")
    except metadata.PackageNotFoundError:
        return False


def run(wishes: Wishes, folder: Path, carry_out: CarryOut = carry_out) -> Iterator[Outcome]:
    """What comes of each step. A step has its own time, and what those before it have left over."""
    place: Place | None = None
    share, spare = wishes.minutes / MINUTES, 0.0
    for step in wishes.steps():
        missing = step.needs.missing(place)
        if missing:
            yield Outcome(step.number, step.title, "SKIP", 0.0, missing)
            continue
        limit = step.limit * share + spare
        found = carry_out(
            step, place or Place(wishes.device, wishes.ranks or 1, share), limit, folder / str(step.number)
        )
        spare = max(0.0, limit - found.seconds)
        if step.number == 1:
            place = place_of(found, wishes)
        yield found


def place_of(machine: Outcome, wishes: Wishes) -> Place | None:
    """What the first step found to run the others on; None where torch cannot be had, or has no device."""
    kind, devices = machine.facts.get("kind"), machine.facts.get("devices")
    pace = wishes.minutes / MINUTES
    if kind == "cpu":
        return Place(kind, wishes.ranks or CPU_RANKS, pace)
    if not kind or not devices:
        return None
    return Place(kind, min(devices, wishes.ranks or devices), pace)


def seconds_at_most(steps: Sequence[Step], minutes: float) -> float:
    return sum(step.limit for step in steps) * minutes / MINUTES
