"""Recording with an account of memory: slower, since every operation is looked at on its way."""

from __future__ import annotations

import os
from contextlib import ExitStack
from types import FrameType
from typing import Any

import torch.distributed as dist

from kit.probe.backend import Launch, ObservedGroup
from kit.probe.memory.account import Accounting
from kit.probe.operations import Draft
from kit.probe.passes import Passes
from kit.probe.record import RecordRun
from kit.probe.wire import Message
from kit.trace.facts import Account

_GPT = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "gpt") + os.sep


class AccountedRun(RecordRun):
    """One rank's part of a recorded function whose memory is accounted for.

    The order to run has `account`: for a kind of memory the names of the variables that hold it.
    """

    def __init__(self, request: Message, *arguments: Any) -> None:
        super().__init__(request, *arguments)
        self._accounting = Accounting(self.device, request["account"], self._scopes)
        self._passes = Passes(self._accounting.told)
        self._open = ExitStack()
        self._account: Account | None = None

    def _scopes(self, frame: FrameType | None) -> list[FrameType]:
        """The frames in whose variables objects may be that know what their memory is: the learner's and the kit's."""
        found = []
        while frame is not None:
            if self.code.kind(frame.f_code.co_filename) or frame.f_code.co_filename.startswith(_GPT):
                found.append(frame)
            frame = frame.f_back
        return found

    def start(self) -> None:
        super().start()
        self._accounting.notice((self._args, self._kwargs))
        self._accounting.sample("begins")
        self._passes.start()
        self._open.callback(self._passes.stop)
        self._open.enter_context(self._accounting)

    def end(self) -> None:
        self._open.close()
        self._accounting.sample("ends")
        self._account = self._accounting.facts()
        super().end()

    def perform(self, group: ObservedGroup, draft: Draft, launch: Launch) -> dist.Work:
        self._accounting.sent([*draft.inputs, *draft.outputs])
        self._accounting.sample(f"{draft.name} issued")
        return super().perform(group, draft, launch)

    def tell(self, kind: str, **content: Any) -> None:
        if kind == "operations" and self._account is not None:
            content |= {"account": self._account, "passes": tuple(self._passes.facts)}
        super().tell(kind, **content)
