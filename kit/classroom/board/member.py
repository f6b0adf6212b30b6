"""A learner who has joined the board: what is told of them is shown to them first, and never their code unasked."""

from __future__ import annotations

import html
import inspect
import os
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from secrets import token_hex
from typing import Any

import ipywidgets as widgets
from IPython.core.getipython import get_ipython

from kit.classroom.board.mail import Mail, mail_to
from kit.classroom.board.news import News, sealed
from kit.grade.verdict import Verdict, listen

AGAIN = 5.0  # s before what did not get there is sent again
PACE = 1.0  # s between two messages


class Sender:
    """Sends the latest in a thread of its own: nobody waits for it, and what is superseded is never sent."""

    def __init__(self, mail: Mail, code: str, said: Callable[[str], None]) -> None:
        self._mail, self._code, self._said = mail, code, said
        self._latest: News | None = None
        self._changed = threading.Condition()
        self._over = threading.Event()
        threading.Thread(target=self._send, name="class board", daemon=True).start()

    def tell(self, news: News) -> None:
        with self._changed:
            self._latest = news
            self._changed.notify()

    def end(self) -> None:
        self._over.set()
        with self._changed:
            self._changed.notify()

    def _send(self) -> None:
        trouble = ""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._latest is not None or self._over.is_set())
                news, self._latest = self._latest, None
            if news is None:
                return
            try:
                self._mail.send(news.learner, sealed(news, self._code))
            except OSError as problem:
                if not trouble:  # once
                    trouble = str(problem)
                    self._said(
                        f"The board cannot be reached ({trouble}). It is tried again; nothing else waits for it."
                    )
                with self._changed:
                    self._latest = self._latest or news
                if self._over.wait(AGAIN):
                    return
            else:
                if trouble:
                    trouble = ""
                    self._said("The board is there again.")
                if self._over.wait(PACE):
                    return


class Member(widgets.VBox):  # type: ignore[misc]  # ipywidgets has no types
    """What `kit.join` gives: shows what the board would be told, and tells it once *Join* is pressed.

    `join()`, `ask_for_help()`, `leave()` are the buttons. `news` is what is told next.
    """

    def __init__(self, code: str, name: str, at: str | os.PathLike[str] | None = None) -> None:
        self._mail, self._code = mail_to(at, code), code
        lab = Path(os.environ.get("JPY_SESSION_NAME", "")).stem
        self.news = News(token_hex(16), name, lab=lab)
        if not self.news.name:
            raise ValueError('say by which name you are on the board: kit.join("CODE", name="ada")')
        self.joined = False
        self._sender: Sender | None = None
        self._tries: dict[str, int] = {}
        self._function: Callable[..., Any] | None = None
        self._leaving: list[Callable[[], None]] = []
        self._shown, self._said = widgets.HTML(), widgets.HTML()
        self._join = _button("Join", "Tell the board this, and how checks end", self.join, "primary")
        self._help = _button("Ask for help", "Tell the board this, with your code", self.ask_for_help, "warning")
        self._leave = _button("Leave", "Tell the board nothing more", self.leave, "")
        super().__init__([self._shown, widgets.HBox([self._join, self._help, self._leave]), self._said])
        self._show()

    def join(self) -> Member:
        """From now on the board is told of each check and of the cell that runs."""
        if not self.joined:
            self.joined, self._sender = True, Sender(self._mail, self._code, self._say)
            self._leaving = [listen(self._checked)]
            shell = get_ipython()
            if shell is not None:
                shell.events.register("pre_run_cell", self._runs)
                self._leaving.append(lambda: shell.events.unregister("pre_run_cell", self._runs))
            self._tell(self.news)
        return self

    def ask_for_help(self) -> Member:
        """The first time shows the code that would be told, the second time tells it. Once more takes it back."""
        if self.news.asks:
            self._tell(replace(self.news, asks=False, code=""))
            self._help.description = "Ask for help"
        elif self._help.description == "Ask for help":
            self._help.description = "Send this, with my code"
            self._show(replace(self.news, asks=True, code=self._source()))
        else:
            self.join()
            self._tell(replace(self.news, asks=True, code=self._source()))
            self._help.description = "I have been helped"
        return self

    def leave(self) -> Member:
        """The board is told nothing more; what it was told last stays there until it ends."""
        for undo in self._leaving:
            undo()
        if self._sender is not None:
            self._sender.end()
        self.joined, self._sender, self._leaving = False, None, []
        self._show()
        return self

    def _checked(self, verdict: Verdict, function: Callable[..., Any]) -> None:
        self._function = function
        tries = 0 if verdict.passed else self._tries.get(verdict.exercise, 0) + verdict.attempted
        self._tries[verdict.exercise] = tries
        passed = tuple(dict.fromkeys((*self.news.passed, verdict.exercise))) if verdict.passed else self.news.passed
        self._tell(
            replace(
                self.news,
                exercise=verdict.exercise,
                status=verdict.status,
                stage=verdict.stage,
                sentence=verdict.sentence,
                tries=tries,
                passed=passed,
                asks=self.news.asks and not verdict.passed,
                code=self._source() if self.news.asks and not verdict.passed else "",
            )
        )

    def _runs(self, info: Any) -> None:
        cell = str(getattr(info, "cell_id", None) or "")
        if cell and cell != self.news.cell:
            self._tell(replace(self.news, cell=cell))

    def _source(self) -> str:
        if self._function is None:
            return ""
        try:
            return inspect.getsource(self._function)
        except (OSError, TypeError):  # typed where no text is kept
            return ""

    def _tell(self, news: News) -> None:
        self.news = news
        self._show()
        if self._sender is not None:
            self._sender.tell(news)

    def _show(self, news: News | None = None) -> None:
        told = news or self.news
        rows = {
            "name": told.name,
            "lab": told.lab or "–",
            "cell": told.cell or "–",
            "latest check": f"{told.exercise}: {told.status}" if told.exercise else "none yet",
            "what it says": told.sentence or "–",
            "tries": str(told.tries),
            "passed": ", ".join(told.passed) or "none yet",
            "code": told.code or "not told, unless you ask for help",
        }
        head = "The board is told this, and nothing else:" if self.joined else "The board would be told this:"
        lines = "".join(
            f'<tr><td style="padding-right:12px;vertical-align:top">{name}</td>'
            f'<td style="white-space:pre-wrap">{html.escape(text)}</td></tr>'
            for name, text in rows.items()
        )
        self._shown.value = f"<b>{head}</b><table>{lines}</table>"
        self._join.layout.display = "none" if self.joined else ""
        self._leave.layout.display = "" if self.joined else "none"

    def _say(self, sentence: str) -> None:
        self._said.value = html.escape(sentence)


def join(code: str, name: str, at: str | os.PathLike[str] | None = None) -> Member:
    """Shows what the class board would be told of you; *Join* tells it. The code is your instructor's.

    name: by which you want to be there. at: where the board is, a folder or 'host:port', as the instructor's line says;
    None: on this machine. Your code is told when you ask for help, after you have seen it, and never otherwise. Raises
    ValueError where there is no board of this code.
    """
    return Member(code, name, at)


def _button(text: str, tip: str, press: Callable[[], object], style: str) -> widgets.Button:
    button = widgets.Button(description=text, tooltip=tip, button_style=style, layout={"width": "auto"})
    button.on_click(lambda _: press())
    return button
