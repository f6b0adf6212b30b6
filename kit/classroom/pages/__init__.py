"""Pages of a class: one for the instructor, one for each exercise, and one for each student to be handed back.

They are plain HTML in files: nothing is asked of a network, and nothing but sorting and filtering needs a script.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kit.classroom.files import put
from kit.classroom.pages import class_page, exercise_page, student_page
from kit.classroom.pages.overview import Overview

if TYPE_CHECKING:
    from pathlib import Path

    from kit.classroom.marks import Class


def write(class_: Class, folder: Path) -> Path:
    """`index.html`, `exercises/*.html` and `students/*.html`; returns the path of the first, the class page.

    Each is whole or not there. Raises OSError where they cannot be written.
    """
    seen = Overview(class_)
    for path, page in (
        *((folder / each.page, exercise_page.html(seen, each)) for each in seen.exercises),
        *((folder / row.page, student_page.html(seen, row)) for row in seen.rows if not row.missing),
    ):
        put(path, page)
    return put(folder / "index.html", class_page.html(seen))
