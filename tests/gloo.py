"""Real gloo ranks for tests, without a cluster: k processes that run the functions they are handed.

They are forked from a server process that has imported torch and done nothing else (one thread, no group), so a world
starts in a fraction of a second and the test runner's own threads do no harm. Functions must be importable (top level
of a test module).
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

PATIENCE = (
    240.0  # seconds for one function on all ranks: longer is a hang; gloo gives up a little earlier, and says why
)


def world_sizes(full: bool) -> tuple[int, ...]:
    """The worlds to test: 1 to 8 ranks when asked for in full, here or by LOCKSTEP_FULL_MATRIX=1; else 1, 2 and 3."""
    return tuple(range(1, 9)) if full or os.environ.get("LOCKSTEP_FULL_MATRIX") == "1" else (1, 2, 3)


class RankFailed(AssertionError):
    """A function raised on at least one rank; the message holds every traceback."""


class World:
    """n gloo ranks. `run(fn, *args)` calls fn(*args) on every rank and returns the results by rank."""

    def __init__(self, n: int) -> None:
        self.n = n
        self.folder = tempfile.TemporaryDirectory(prefix="lockstep-ranks-")
        context = _fork_server()
        pairs = [context.Pipe() for _ in range(n)]
        self.pipes = [ours for ours, _ in pairs]
        store = str(Path(self.folder.name) / "store")
        self.processes = [
            context.Process(target=_serve, args=(r, n, store, pairs[r][1]), daemon=True, name=f"rank-{r}")
            for r in range(n)
        ]
        for process in self.processes:
            process.start()
        for _, theirs in pairs:
            theirs.close()

    def run(self, fn: Callable[..., Any], *args: Any) -> list[Any]:
        """Results of fn(*args) by rank. Raises RankFailed with the tracebacks of those that raised or fell silent."""
        for pipe in self.pipes:
            pipe.send_bytes(pickle.dumps((fn, args)))
        answers = [self._answer(rank) for rank in range(self.n)]
        failures = [f"rank {rank}: {value}" for rank, (good, value) in enumerate(answers) if not good]
        if failures:
            raise RankFailed("\n".join(failures))
        return [value for _, value in answers]

    def _answer(self, rank: int) -> tuple[bool, Any]:
        try:
            if not self.pipes[rank].poll(PATIENCE):
                return False, f"no answer within {PATIENCE:.0f} s"
            return pickle.loads(self.pipes[rank].recv_bytes())
        except EOFError:
            return False, "its process ended"

    def close(self) -> None:
        for pipe in self.pipes:
            pipe.close()
        for process in self.processes:
            process.join(2)
            if process.is_alive():
                process.kill()
                process.join()
        self.folder.cleanup()


@contextmanager
def world(n: int) -> Iterator[World]:
    ranks = World(n)
    try:
        yield ranks
    finally:
        ranks.close()


def _fork_server() -> Any:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "torch.distributed", "torch._dynamo"])  # optimizers load the last
    # Read when torch is first imported, in the server: a second OpenMP thread there would hang its forks.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    return context


def _serve(rank: int, n: int, store: str, pipe: Any) -> None:
    """A rank's life: join the group, then run what comes down the pipe until it closes."""
    import torch.distributed as dist

    dist.init_process_group(
        "gloo", store=dist.FileStore(store, n), rank=rank, world_size=n, timeout=timedelta(seconds=PATIENCE - 10)
    )
    while True:
        try:
            fn, args = pickle.loads(pipe.recv_bytes())
        except EOFError:
            break
        try:
            answer = (True, fn(*args))
        except BaseException:
            answer = (False, traceback.format_exc())
        pipe.send_bytes(pickle.dumps(answer))
    dist.destroy_process_group()
