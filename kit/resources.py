"""Where the labs and the assets lie: inside an installed wheel, or beside `kit` in a checkout."""

from __future__ import annotations

import shutil
from importlib.resources import files
from pathlib import Path


def labs() -> Path:
    """The folder of the notebooks `NN_topic.ipynb`, with `solutions/NN_topic.py` in it."""
    return _folder("labs")


def assets() -> Path:
    """The folder of styles, recorded traces, figures and the settings JupyterLab starts with."""
    return _folder("assets")


def installed() -> bool:
    """Whether labs and assets are those of an installed wheel, which are not for changing."""
    return assets().parent.name == "_carried"


def copy_to(folder: Path) -> tuple[list[Path], list[Path]]:
    """Copy the notebooks and the assets to `folder/labs` and `folder/assets`; what is there already stays as it is.

    Solutions are not copied: a lab shows one when it is asked to. Returns the files that were copied and those that
    were there. Raises OSError where the folder cannot be made or written.
    """
    copied, kept = [], []
    for source, target in _pairs(folder):
        if target.exists():
            kept.append(target)
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        # into place in one move: a copy that was cut short must not be taken for the learner's own file
        beside = target.with_name(f".{target.name}.part")
        shutil.copyfile(source, beside)
        beside.rename(target)
        copied.append(target)
    return copied, kept


def _pairs(folder: Path) -> list[tuple[Path, Path]]:
    notebooks = [(notebook, folder / "labs" / notebook.name) for notebook in sorted(labs().glob("*.ipynb"))]
    others = [path for path in sorted(assets().rglob("*")) if path.is_file()]
    return notebooks + [(path, folder / "assets" / path.relative_to(assets())) for path in others]


def _folder(name: str) -> Path:
    package = Path(str(files("kit")))
    for folder in (package / "_carried" / name, package.parent / name):
        if folder.is_dir():
            return folder
    raise ValueError(
        f"The {name} of Lockstep are missing beside {package}: install it again with "
        "'pip install --force-reinstall --no-deps lockstep-labs'."
    )
