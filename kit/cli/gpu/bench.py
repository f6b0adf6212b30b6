"""What a step works with: clusters, programs on their ranks, facts and expectations."""

from __future__ import annotations

import importlib.util
import shutil
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kit.cli.gpu.facts import Doing, Fact, Failure, Place, Said
from kit.run.errors import NotFinished, RankError, what_went_wrong

if TYPE_CHECKING:
    from types import ModuleType

    from kit.run.live import LiveRunner
    from kit.run.results import Recording

FIRST = 3  # times the patience of others: for the first run on new ranks, which loads what they need
LONGEST = 300  # characters of an error that are told


@dataclass(frozen=True, slots=True)
class Scale:
    """How large things are made."""

    buffer: int  # bytes of a collective whose time is taken
    sizes: tuple[int, ...]  # bytes of the bandwidth sweep
    side: int  # rows of the matrices that keep a device busy
    held: int  # bytes whose account is compared with the allocator's
    compiler: str  # torch.compile's backend
    queues: bool  # whether the host launches work and goes on before it is done
    end_within: float | None  # how far the end of an operation may be off, as a part of its own duration; None: any


# 256 MB take a good millisecond over NVLink: long against the tens of microseconds by which the clocks of host and
# device may be off. On the CPU the ends are the host's own moments, and a small test shares its processors.
ON_DEVICE = Scale(256_000_000, (64_000_000, 256_000_000, 1_000_000_000), 4096, 256_000_000, "inductor", True, 0.2)
ON_CPU = Scale(1_000_000, (100_000, 1_000_000), 256, 8_000_000, "eager", False, None)


class Bench:
    """One step's. tell: hears what it says. patience: seconds that one run on ranks may take."""

    verdict_within = 5.0  # s from the start of a run that hangs until it is told

    def __init__(
        self,
        place: Place,
        folder: Path,
        tell: Callable[[Said], None],
        patience: float = 8.0,
        scale: Scale | None = None,
    ) -> None:
        self.place = place
        self.device = place.device
        self.ranks = place.ranks
        self.folder = folder
        self.scale = scale or (ON_CPU if place.device == "cpu" else ON_DEVICE)
        self.patience = patience
        self._tell = tell

    @cached_property
    def programs(self) -> Any:
        """What runs on ranks. Asking for it loads torch."""
        return learners_copy(self.folder)

    # -- ranks

    @contextmanager
    def cluster(self, ranks: int | None = None) -> Iterator[LiveRunner]:
        """Ranks of its own, one for each device unless said, which have loaded what they need; ended afterwards."""
        from kit.clusters.request import checked
        from kit.run.live import LiveRunner

        self._tell(Doing(f"the start of {self.ranks if ranks is None else ranks} ranks"))
        with LiveRunner(checked(self.ranks if ranks is None else ranks, self.device)) as cluster:
            self.doing("the first run")
            self.record(cluster, self.programs.about, patience=FIRST * self.patience)
            yield cluster

    def record(
        self,
        cluster: LiveRunner,
        program: Callable[..., Any],
        *args: Any,
        ranks: int | None = None,
        patience: float | None = None,
        memory: bool = False,
    ) -> Recording:
        """The program at full speed, with the device as its first argument."""
        import kit

        options = kit.options(cluster=cluster, ranks=ranks, limit=patience or self.patience, memory=memory)
        return options.record(program, self.device, *args)

    def step(self, cluster: LiveRunner, program: Callable[..., Any], *args: Any) -> list[Any]:
        """What the program returns, by rank, when it is stepped: collective by collective, then to its end."""
        session = cluster.step(program, self.device, *args)
        try:
            session.to_collective(timeout=self.patience)
            position = session.finish(timeout=self.patience)
            if any(state.phase == "paused" for state in position):  # it came to the collective as it was to go on
                session.finish(timeout=self.patience)
            return session.results
        except NotFinished as unfinished:
            said = what_went_wrong(session.state) or str(session.state)
            raise RankError(said, session.trace) from unfinished
        finally:
            session.close()

    # -- what is said

    def doing(self, part: str) -> None:
        """Which part it has come to."""
        self._tell(Doing(part))

    def fact(self, name: str, value: Any) -> None:
        """For the file that is sent home."""
        self._tell(Fact(name, value))

    def expect(self, truth: object, sentence: str) -> bool:
        """Notes a failure where something is not as it should be; the step goes on."""
        if not truth:
            self._tell(Failure(sentence))
        return bool(truth)

    def expect_right(self, name: str, told: list[dict[str, Any]]) -> bool:
        """That every rank had the values it should: what `programs.compared` returned on each."""
        wrong = [(rank, one) for rank, one in enumerate(told) if not one["right"]]
        for rank, one in wrong[:1]:
            others = f" ({len(wrong)} of {len(told)} ranks are wrong)" if len(wrong) > 1 else ""
            self._tell(Failure(f"{name}: rank {rank} has {one['got']} where {one['expected']} is right{others}"))
        return not wrong

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """A part of the step: what goes wrong in it is a failure, and the next one is tried all the same."""
        self._tell(Doing(name))
        began = time.perf_counter()
        try:
            yield
        except Exception as error:  # anything the machine under test may do
            self._tell(Failure(f"{name}: {in_short(error)}", traceback.format_exc()))
        self.fact(f"seconds of {name}", round(time.perf_counter() - began, 3))


def in_short(error: BaseException) -> str:
    """'RankError: rank 1 died: killed by SIGKILL / ...': an exception in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = " / ".join(lines)
    return f"{type(error).__name__}: {said[:LONGEST]}" if said else type(error).__name__


def learners_copy(folder: Path) -> ModuleType:
    """`programs` as a learner's file in `folder`: its functions travel by value and are stepped line by line, which
    those of an installed package are not.
    """
    file = Path(shutil.copy(Path(__file__).with_name("programs.py"), folder / "gpu_programs.py"))
    spec = importlib.util.spec_from_file_location("gpu_programs", file)
    assert spec is not None and spec.loader is not None, "a file that was just written"
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
