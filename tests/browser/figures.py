"""Takes the pictures of the README anew: lab 01 in Chromium, six steps of real ranks, rank 2 held back; a terminal with
`lockstep doctor --gpu`, whose steps play on CPU ranks here.

    python -m tests.browser.figures [FOLDER]

Writes panel-light.png, panel-dark.png, doctor-light.png and doctor-dark.png into assets/figures, or into FOLDER.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from html import escape
from pathlib import Path
from typing import Any

from kit.plot.palette import THEMED
from kit.resources import assets, labs
from tests.browser.book import NotebookPage, launched
from tests.browser.jupyter import LabServer

MOST = 300_000  # bytes a picture may have


def held_panel(server: LabServer, browser: Any, theme: str, target: Path) -> None:
    shutil.copyfile(labs() / "01a_collectives.ipynb", server.notebooks / f"{theme}.ipynb")
    context = browser.new_context(viewport={"width": 1280, "height": 1300}, device_scale_factor=1.6)
    book = NotebookPage(server, context, f"{theme}.ipynb").open(theme).run_all(limit=240)
    panel = book.page.locator(".lsp-panel:not(.lsp-record)").last
    panel.scroll_into_view_if_needed()
    panel.locator(".lsp-reset").click()  # the script to take home was given to the ranks since
    panel.locator(".lsp-step:enabled").wait_for()
    for step in range(9):
        if step == 6:
            panel.locator(".lsp-hold-2").click()
        panel.locator(".lsp-step").click()
        panel.get_by_text(f"stop {step + 1} ·").wait_for()
    panel.locator(".lsp-time.lsp-drawn[data-painted]").wait_for()
    book.page.wait_for_timeout(3000)  # Bokeh paints on a canvas: nothing in the page tells when
    panel.screenshot(path=str(target))
    context.close()
    server.shut_kernels()


def doctor_says(scratch: Path) -> str:
    command = [sys.executable, "-m", "kit.cli", "doctor", "--gpu", "--device", "cpu", "--to", "lockstep-gpu.json"]
    said = subprocess.run(command, cwd=scratch, capture_output=True, text=True, check=True).stdout
    return said.replace(f"{scratch}/", "")


def terminal(said: str, command: str, browser: Any, theme: str, target: Path) -> None:
    """What a command says, as a terminal shows it."""
    ink, paper = (getattr(THEMED[name], theme) for name in ("ink", "paper"))
    page = browser.new_page(viewport={"width": 760, "height": 900}, device_scale_factor=1.6)
    shown = f"<b>$ {escape(command)}</b>\n{escape(said)}"
    page.set_content(
        f"<body style='margin:0;background:{paper}'><pre style='display:inline-block;margin:0;padding:14px 18px;"
        f"font:13px/1.45 monospace;color:{ink};background:{paper}'>{shown}</pre>"
    )
    page.locator("pre").screenshot(path=str(target))
    page.close()


def squeeze(picture: Path) -> None:
    """Lossless first: fewer colours would bend the ones that mean something."""
    from PIL import Image

    with Image.open(picture) as image:
        image.convert("RGB").save(picture, optimize=True)
    if picture.stat().st_size > MOST:
        raise SystemExit(f"{picture} has {picture.stat().st_size} bytes; a page should not wait for more than {MOST}")


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else assets() / "figures"
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch, launched() as browser:
        if browser is None:
            raise SystemExit("no Chromium here: apt-get install chromium, or python -m playwright install chromium")
        server = LabServer(Path(scratch) / "lab")
        try:
            server.wait_until_ready()
            for theme in ("light", "dark"):
                picture = folder / f"panel-{theme}.png"
                held_panel(server, browser, theme, picture)
                squeeze(picture)
        finally:
            server.close()
        said = doctor_says(Path(scratch))
        for theme in ("light", "dark"):
            picture = folder / f"doctor-{theme}.png"
            terminal(said, "lockstep doctor --gpu --device cpu", browser, theme, picture)
            squeeze(picture)
    for picture in sorted(folder.glob("*.png")):
        print(f"{picture}: {picture.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
