"""Python, torch, the libraries of the panels: which versions there are, and whether they go together."""

from __future__ import annotations

import platform
import re
import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version

from kit.cluster.doctor.finding import Finding

PYTHON = (3, 11)  # ipykernel 7.4 needs it
NEEDED = {  # what pyproject.toml asks for, which an environment put together by hand may lack
    "ipykernel": "7.4",
    "ipyparallel": "9.0",
    "ipywidgets": "8.1.5",
    "cloudpickle": "3.0",
    "psutil": "5.9",
    "numpy": "1.26",
}
TORCH = "2.6"

Version = Callable[[str], str | None]


def installed(name: str) -> str | None:
    """The version of a distribution in this environment; None when it is not there."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def numbers(text: str) -> tuple[int, ...]:
    """'2.13.0+cpu' is (2, 13, 0): enough to compare releases."""
    return tuple(int(part) for part in re.match(r"\d+(?:\.\d+)*|", text)[0].split(".") if part)  # type: ignore[index]


def older(found: str, least: str) -> bool:
    return numbers(found) < numbers(least)


def python(running: tuple[int, ...] = sys.version_info[:3], system: str = sys.platform) -> Finding:
    found = f"Python {'.'.join(map(str, running))} on {platform.system()} {platform.machine()}, {sys.executable}"
    if running[:2] < PYTHON:
        least = ".".join(map(str, PYTHON))
        return Finding("Python", "problem", found, f"Make the environment with Python {least} or newer.")
    if system != "linux":
        return Finding("Python", "problem", found, "Ranks need Linux: use WSL, a container or Binder.")
    return Finding("Python", "ok", found)


def torch(of: Version = installed) -> Finding:
    found = of("torch")
    if found is None:
        return Finding("torch", "problem", "not installed", f"Run: {sys.executable} -m pip install torch")
    if older(found, TORCH):
        fix = f"Run: {sys.executable} -m pip install 'torch>={TORCH}'"
        return Finding("torch", "problem", f"torch {found}, the labs need {TORCH} or newer", fix)
    return Finding("torch", "ok", f"torch {found}")


def libraries(of: Version = installed) -> Finding:
    """The libraries that the ranks and the notebook's kernel need."""
    have = {name: of(name) for name in NEEDED}
    missing = [name for name, found in have.items() if found is None]
    old = [f"{name} {found}" for name, found in have.items() if found and older(found, NEEDED[name])]
    if missing or old:
        wishes = " ".join(f"'{name}>={NEEDED[name]}'" for name in [*missing, *(entry.split()[0] for entry in old)])
        words = [f"not here: {', '.join(missing)}" if missing else "", f"too old: {', '.join(old)}" if old else ""]
        fix = f"Run: {sys.executable} -m pip install {wishes}"
        return Finding("libraries", "problem", "; ".join(filter(None, words)), fix)
    return Finding("libraries", "ok", ", ".join(f"{name} {found}" for name, found in have.items()))


def bokeh(of: Version = installed) -> Finding:
    """The plots: bokeh in the kernel and jupyter_bokeh, which carries them to the page, must be of one age."""
    plots, carrier = of("bokeh"), of("jupyter_bokeh")
    if plots is None or carrier is None:
        missing = " and ".join(name for name, found in (("bokeh", plots), ("jupyter_bokeh", carrier)) if found is None)
        return Finding(
            "plots",
            "warning",
            f"{missing} is not installed: the panels use pictures that need ipywidgets alone",
            f"Run: {sys.executable} -m pip install bokeh jupyter_bokeh",
        )
    found = f"bokeh {plots}, jupyter_bokeh {carrier}"
    if older(plots, "3.6") or older(carrier, "4.0.5"):
        fix = f"Run: {sys.executable} -m pip install 'bokeh>=3.6' 'jupyter_bokeh>=4.0.5'"
        return Finding("plots", "warning", f"{found} do not go together: plots may stay empty", fix)
    return Finding("plots", "ok", found)
