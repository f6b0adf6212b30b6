"""A notebook open in a real Chromium: run it, press things in it, read it, and see what it asks the network for."""

from __future__ import annotations

import contextlib
import secrets
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.browser.jupyter import LabServer

CHROMIUM_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
SCREEN = {"width": 1280, "height": 1000}
LOOPBACK = {"127.0.0.1", "localhost", "[::1]", "::1"}


def find_chromium(api: Any) -> str | None:
    """The browser to drive: the system's, else the one playwright has installed."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if found := shutil.which(name):
            return found
    own = Path(api.chromium.executable_path)
    return str(own) if own.exists() else None


@contextlib.contextmanager
def launched() -> Iterator[Any]:
    """A headless Chromium; None when this machine has none."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as api:
        path = find_chromium(api)
        if path is None:
            yield None
            return
        browser = api.chromium.launch(executable_path=path, headless=True, args=list(CHROMIUM_FLAGS))
        try:
            yield browser
        finally:
            browser.close()


class NotebookPage:
    """One notebook, open in JupyterLab at 1280 pixels with the side bar, its cells run by `run_all`.

    page: one in which JupyterLab is open already, where a notebook opens much sooner; by default a new one.
    """

    def __init__(self, server: LabServer, context: Any, name: str, page: Any = None) -> None:
        self.server, self.name = server, name
        self.page = page or context.new_page()
        self.requests: list[str] = []
        self.console: list[str] = []
        self.page.on("request", self._requested)
        self.page.on("console", self._said)

    def open(self, theme: str = "light") -> NotebookPage:
        if self.page.url.startswith(self.server.url):
            self.page.evaluate("path => { jupyterapp.commands.execute('docmanager:open', {path}); }", self.name)
        else:
            workspace = secrets.token_hex(6)
            self.page.goto(f"{self.server.url}/lab/workspaces/{workspace}/tree/{self.name}?token={self.server.token}")
        self.page.wait_for_function(
            """path => { const opened = window.jupyterapp?.shell?.currentWidget?.context;
                 return opened?.path === path && opened.isReady; }""",
            arg=self.name,
            timeout=90_000,
        )
        self.page.evaluate("async () => { await jupyterapp.shell.currentWidget.context.sessionContext.ready; }")
        self.page.set_viewport_size(SCREEN)
        self.turn(theme)
        return self

    def leave(self) -> None:
        """Closes the notebook unsaved; JupyterLab stays open in its page."""
        self.page.remove_listener("request", self._requested)
        self.page.remove_listener("console", self._said)
        self.page.evaluate("() => { for (const tab of [...jupyterapp.shell.widgets('main')]) tab.dispose(); }")

    def restart(self) -> None:
        """Restarts the notebook's kernel, as the menu does."""
        self.page.evaluate(
            "async () => { await jupyterapp.shell.currentWidget.context.sessionContext.session.kernel.restart(); }"
        )

    def _requested(self, request: Any) -> None:
        self.requests.append(request.url)

    def _said(self, message: Any) -> None:
        self.console.append(f"{message.type}: {message.text}")

    def turn(self, theme: str) -> None:
        """Changes the theme, as the menu does."""
        title = {"light": "JupyterLab Light", "dark": "JupyterLab Dark"}[theme]
        self.page.evaluate(
            "async theme => { await jupyterapp.commands.execute('apputils:change-theme', {theme}); }", title
        )
        dark = "false" if theme == "dark" else "true"
        self.page.wait_for_selector(f'body[data-jp-theme-light="{dark}"]', state="attached")

    def both_themes(self, drawn: int = 0) -> Iterator[str]:
        """Yields the theme's name in light, then in dark, once as many Bokeh pictures as said have been drawn in it."""
        for theme in ("light", "dark"):
            self.turn(theme)
            self.page.wait_for_function(
                "n => document.querySelectorAll('.lsp-drawn[data-painted]').length >= n", arg=drawn
            )
            self.page.wait_for_timeout(500)  # Bokeh paints on a canvas: nothing in the page tells when
            yield theme

    def run_all(self, limit: float = 120.0) -> NotebookPage:
        """Runs every cell and waits for the last. Raises AssertionError with the traceback when one failed."""
        self.page.set_default_timeout(limit * 1000)
        self.page.evaluate("async () => { await jupyterapp.commands.execute('notebook:run-all-cells'); }")
        for index, outputs in enumerate(self.outputs()):
            for output in outputs:
                assert output["output_type"] != "error", f"cell {index}: " + "\n".join(output["traceback"])
        return self

    def ask(self, expression: str) -> str:
        """The str() of an expression in the notebook's kernel. Raises AssertionError with the error it ends in."""
        answer = self.page.evaluate(
            """async code => {
                 const kernel = jupyterapp.shell.currentWidget.context.sessionContext.session.kernel;
                 const future = kernel.requestExecute({code, store_history: false});
                 let text = "", error = "";
                 future.onIOPub = message => {
                   if (message.header.msg_type === "stream") text += message.content.text;
                   if (message.header.msg_type === "error") error = message.content.traceback.join("\\n");
                 };
                 await future.done;
                 return [text, error];
               }""",
            f"print({expression}, end='')",
        )
        text, error = answer
        assert not error, error
        return text

    def until(self, expression: str, limit: float = 60.0) -> None:
        """Returns when an expression in the kernel is true. Raises AssertionError when it is not within `limit` s."""
        deadline = time.monotonic() + limit
        while self.ask(f"bool({expression})") != "True":
            assert time.monotonic() < deadline, f"still not true after {limit:g} s: {expression}"
            self.page.wait_for_timeout(100)

    def outputs(self) -> list[list[dict[str, Any]]]:
        """What each code cell shows, as nbformat outputs."""
        return self.page.evaluate(
            """() => jupyterapp.shell.currentWidget.content.widgets
                  .filter(cell => cell.model.type === 'code').map(cell => cell.model.outputs.toJSON())"""
        )

    def save(self) -> Path:
        self.page.evaluate("async () => { await jupyterapp.shell.currentWidget.context.save(); }")
        return self.server.notebooks / self.name

    def screenshot(self, target: Path, selector: str | None = None) -> Path:
        target.parent.mkdir(parents=True, exist_ok=True)
        shot = self.page.locator(selector).first if selector else self.page
        shot.screenshot(path=str(target))
        return target

    def foreign_requests(self) -> list[str]:
        """Addresses the page asked for that are neither on loopback nor inside the page itself."""
        asked = (urlsplit(address) for address in self.requests)
        return [a.geturl() for a in asked if a.scheme not in {"data", "blob"} and a.hostname not in LOOPBACK]
