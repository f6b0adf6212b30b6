"""Takes the pictures of the README anew: lab 01 in Chromium, six steps of real ranks, rank 2 held back; a terminal with
`lockstep doctor --gpu`, whose steps play on CPU ranks here; the page of a made class that `lockstep grade` has graded.

    python -m tests.browser.figures [FOLDER]

Writes panel-light.png, panel-dark.png, doctor-light.png, doctor-dark.png, class-light.png and class-dark.png into
assets/figures, or into FOLDER.
"""

from __future__ import annotations

import inspect
import shutil
import subprocess
import sys
import tempfile
from html import escape
from pathlib import Path
from random import Random
from typing import Any

from kit.grade import answers, discovery
from kit.grade.exercise import Exercise
from kit.plot.palette import THEMED
from kit.resources import assets, labs
from tests.browser.book import NotebookPage, launched
from tests.browser.jupyter import LabServer
from tests.classroom.made_class import Makes
from tests.classroom.notebooks import notebook
from tests.classroom.seen_class import LAB, NAMES

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


def class_graded(scratch: Path) -> Path:
    """The folder with the pages of a class of seventy: most are right, and some mistakes are commoner than others."""
    random, makes, handins = Random(3), Makes(discovery.labs()[LAB]), scratch / "hand-ins"
    handins.mkdir()
    roster = ["name,key"]
    for number, name in enumerate(NAMES):
        key = f"s{number:03}"
        roster.append(f"{name},{key}")
        if number % 33 == 32:
            continue
        texts = {exercise.id: answer for exercise in makes.lab.exercises if (answer := _answer(exercise, random))}
        made = notebook(*makes.with_answers(texts)) if number % 41 != 40 else ""
        (handins / f"{key}.ipynb").write_text(made, encoding="utf-8")
    (scratch / "class.csv").write_text("\n".join(roster), encoding="utf-8")
    command = [sys.executable, "-m", "kit.cli", "grade", str(handins), "--roster", str(scratch / "class.csv")]
    subprocess.run([*command, "--out", str(scratch / "marks"), "--seed", "7"], cwd=scratch, check=True)
    return scratch / "marks"


def _answer(exercise: Exercise, random: Random) -> str:
    """What a student made of an exercise; nothing where it was not tried."""
    right = inspect.getsource(answers.solution_of(exercise))
    first, second, third, fourth = exercise.mistakes[:4]
    kinds = [right, first.code(right), second.code(right), third.code(right), fourth.code(right), ""]
    return random.choices(kinds, (11, 5, 2, 1, 1, 1))[0]


def class_page(pages: Path, browser: Any, theme: str, target: Path) -> None:
    page = browser.new_page(viewport={"width": 1100, "height": 980}, device_scale_factor=1.6, color_scheme=theme)
    page.goto((pages / "index.html").as_uri())
    page.screenshot(path=str(target))
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
        graded = class_graded(Path(scratch))
        for theme in ("light", "dark"):
            picture = folder / f"class-{theme}.png"
            class_page(graded, browser, theme, picture)
            squeeze(picture)
    for picture in sorted(folder.glob("*.png")):
        print(f"{picture}: {picture.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
