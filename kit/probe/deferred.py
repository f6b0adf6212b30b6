"""A c10d Work that this process completes itself, at a moment of its choosing."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import torch

from kit.probe.accelerator import Accelerator
from kit.probe.work import OwnWork


class DeferredWork(OwnWork):
    """Done when somebody calls `finish` or `fail`; until then `wait` blocks in Python, where it can be freed.

    tensors: what the operation gives, for `result` and for the future, on the rank's accelerator.
    """

    def __init__(self, tensors: list[torch.Tensor], accelerator: Accelerator) -> None:
        super().__init__()
        self.done = threading.Event()
        self.error: BaseException | None = None
        self.future: torch.futures.Future[Any] | None = None
        self.source: int | None = None  # of a receive from any source, as a rank of the group
        self._after: list[Callable[[], None]] = []
        self._tensors = tensors
        self._accelerator = accelerator
        self._settling = threading.Lock()
        self._settled = False

    def finish(self) -> None:
        with self._settling:
            self.done.set()
            future, after = self.future, self._after
        for call in after:  # first, while whoever waits for the future still does
            call()
        self._comes(future)

    def after(self, call: Callable[[], None]) -> None:
        """Calls `call()` once it is done, in the thread that finishes it, or at once."""
        with self._settling:
            if not self.done.is_set():
                self._after.append(call)
                return
        call()

    def fail(self, error: BaseException) -> None:
        self.error = error
        self.finish()

    def wait(self, timeout: Any = None) -> bool:
        self.done.wait()
        if self.error is not None:
            raise self.error
        return True

    def synchronize(self) -> None:
        self.wait()

    def is_completed(self) -> bool:
        return self.done.is_set()

    def is_success(self) -> bool:
        return self.done.is_set() and self.error is None

    def exception(self) -> BaseException | None:
        return self.error

    def result(self) -> list[torch.Tensor]:
        return self._tensors

    def source_rank(self) -> int:
        return self.source if self.source is not None else -1

    _source_rank = source_rank

    def get_future(self) -> torch.futures.Future[Any]:
        with self._settling:
            if self.future is None:
                self.future = self._accelerator.future()
            done = self.done.is_set()
        if done:
            self._settle(self.future)
        return self.future

    def _comes(self, future: torch.futures.Future[Any] | None) -> None:
        """A future that was handed out is to have its value; what its holder does then is done in this thread."""
        self._settle(future)

    def _settle(self, future: torch.futures.Future[Any] | None) -> None:
        with self._settling:
            if future is None or self._settled:
                return
            self._settled = True
        if self.error is not None:  # not set_exception: DDP's reducer would take the exception for tensors, and crash
            future._set_unwrap_func(self._raise)
        future.set_result(self._tensors)

    def _raise(self, _: Any) -> None:
        raise RuntimeError(str(self.error))


class AwaitedWork(DeferredWork):
    """Done when it has come (`_come`). Whoever waits completes it in its own thread; only a future, or a question,
    starts another.
    """

    def __init__(self, tensors: list[torch.Tensor], accelerator: Accelerator) -> None:
        super().__init__(tensors, accelerator)
        self._waiting = threading.Lock()
        self._watched = False

    @abstractmethod
    def _come(self, timeout: Any, waited_for: bool) -> None:
        """Returns when it has. What it raises reaches the rank that waits. waited_for: by the calling thread."""

    def wait(self, timeout: Any = None) -> bool:
        self._complete(timeout, waited_for=True)
        return super().wait()

    def after(self, call: Callable[[], None]) -> None:
        super().after(call)
        self._watch()

    def is_completed(self) -> bool:
        self._watch()
        return super().is_completed()

    def get_future(self) -> torch.futures.Future[Any]:
        future = super().get_future()
        self._watch()
        return future

    def _watch(self) -> None:
        """From now on it is completed without anybody's waiting."""
        with self._settling:
            first, self._watched = not self._watched, True
        if first and not self.done.is_set():
            threading.Thread(target=self._complete_here, daemon=True).start()

    def _complete_here(self) -> None:
        self._accelerator.take()
        self._complete(None, waited_for=False)

    def _complete(self, timeout: Any, waited_for: bool) -> None:
        with self._waiting:  # gloo forgets a message that has been waited for: a second wait would never end
            if self.done.is_set():
                return
            try:
                self._come(timeout, waited_for)
            except Exception as error:  # what the library raises reaches the rank that waits
                self.fail(error)
            else:
                self.finish()
