"""Fixtures of the browser tests: a JupyterLab, a Chromium, and notebooks open in it.

Every test fails if the page asks for anything that is not on this machine.
"""

from __future__ import annotations

import json
import secrets
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("playwright.sync_api", reason="playwright drives the browser tests")
pytest.importorskip("jupyterlab", reason="the browser tests open notebooks in JupyterLab")

from playwright.sync_api import expect

from tests.browser.book import SCREEN, NotebookPage, launched
from tests.browser.jupyter import LabServer, notebook_of

expect.set_options(timeout=60_000)  # ms: a busy machine


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    with launched() as browser:
        if browser is None:
            pytest.skip("no Chromium here: apt-get install chromium, or python -m playwright install chromium")
        yield browser


@pytest.fixture(scope="session")
def lab_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabServer]:
    server = LabServer(tmp_path_factory.mktemp("lab"))
    try:
        server.wait_until_ready()
        yield server
    finally:
        server.close()


@pytest.fixture(scope="session")
def context(chromium: Any) -> Iterator[Any]:
    """What pages share: a cache, so that JupyterLab is read and compiled once."""
    shared = chromium.new_context(viewport=SCREEN)
    yield shared
    shared.close()


@pytest.fixture(scope="session")
def lab_page(context: Any) -> Callable[[], Any]:
    """The page that notebooks are opened in one after the other, since loading JupyterLab is most of a test's time."""
    pages: list[Any] = []

    def page() -> Any:
        if not pages or pages[-1].is_closed():
            pages.append(context.new_page())
        return pages[-1]

    return page


@pytest.fixture
def open_notebook(
    lab_server: LabServer, context: Any, lab_page: Callable[[], Any]
) -> Iterator[Callable[..., NotebookPage]]:
    """`open_notebook(["import kit", "..."], theme="dark")`: a new notebook of these cells, open in JupyterLab.

    reload: load JupyterLab anew, where what earlier notebooks left in the page (BokehJS, for one) would matter.
    """
    books: list[NotebookPage] = []

    def opened(cells: list[str] | Path, theme: str = "light", reload: bool = False) -> NotebookPage:
        name = f"n{secrets.token_hex(4)}.ipynb"
        target = lab_server.notebooks / name
        if isinstance(cells, Path):
            shutil.copyfile(cells, target)
        else:
            target.write_text(json.dumps(notebook_of(cells)))
        books.append(NotebookPage(lab_server, context, name, None if reload else lab_page()))
        return books[-1].open(theme)

    yield opened
    foreign = [address for book in books for address in book.foreign_requests()]
    for book in books:
        book.leave()
    for page in context.pages:
        if page is not lab_page():
            page.close()
    lab_server.shut_kernels()
    assert not foreign, f"the page asked for {foreign}"


@pytest.fixture
def screenshots(tmp_path: Path) -> Path:
    return tmp_path / "screenshots"
