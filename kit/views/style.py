"""The style sheet: ranks' colours from the palette, then `assets/style`."""

from __future__ import annotations

from functools import cache

from kit.resources import assets
from kit.views.palette import COMMUNICATE, COMPUTE, EXPOSED, INK, MEMORY, RANKS, UNKNOWN, text_on


@cache
def stylesheet() -> str:
    """All CSS the views need, to be put on a page once, inside `<style>`. Every selector is about `ls-` classes."""
    return _colors() + _read("lockstep.css") + _read("drawings.css")


@cache
def standalone_style() -> str:
    """CSS for an SVG that leaves the page, where no theme can be known: greys that read on white and on near black."""
    unknown = f"--ls-bg:#ffffff;--ls-fg:{INK};--ls-mut:{UNKNOWN};--ls-line:{UNKNOWN};--ls-soft:#e7e9ec;--ls-bad:#cf222e"
    fonts = "--ls-sans:system-ui,'DejaVu Sans',sans-serif"
    return _colors() + f".ls{{{unknown};{fonts}}}\n" + _read("drawings.css").partition("*/")[2].strip()


def _colors() -> str:
    ranks = "".join(f".ls-r{i}{{--c:{color};--t:{text_on(color)}}}" for i, color in enumerate(RANKS))
    work = f"--ls-compute:{COMPUTE};--ls-communicate:{COMMUNICATE};--ls-exposed:{EXPOSED}"
    work += f";--ls-on-compute:{text_on(COMPUTE)}"
    memory = "".join(
        f".ls-{kind.replace(' ', '-')}{{--c:{'var(--ls-communicate)' if color == COMMUNICATE else color}}}"
        for kind, color in MEMORY.items()
    )
    return f"{ranks}\n.ls{{{work}}}\n{memory}\n"


def _read(name: str) -> str:
    return (assets() / "style" / name).read_text(encoding="utf-8")
