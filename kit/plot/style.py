"""The style sheet: colours from the palette, then `assets/style`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from kit.plot.palette import PAGE, RANKS, ROLES, Paint, role_class, text_on
from kit.resources import assets

_SHORT = {"paper": "bg", "ink": "fg", "muted": "mut", "ruler": "line"}  # what the style sheet calls a role
_JUPYTER = {"paper": "--jp-layout-color1", "ink": "--jp-content-font-color0"}  # JupyterLab's own, where there is one
_LIGHT = ".ls"
_DARK = '[data-jp-theme-light="false"] .ls,.ls-theme-dark .ls,.ls.ls-theme-dark'
_DARK_SYSTEM = "body:not([data-jp-theme-light]):not(.ls-theme-light) .ls"  # where neither Jupyter nor a person chose


@cache
def stylesheet() -> str:
    """All CSS the views need, to be put on a page once, inside `<style>`. Every selector is about `ls-` classes."""
    return _colors() + themes() + _read("lockstep.css") + _read("drawings.css")


@cache
def themes() -> str:
    """The variables of both themes alone, for a page with a look of its own under `.ls`."""
    dark = _theme(True, _JUPYTER)
    return (
        f"{_LIGHT}{{{_theme(False, _JUPYTER)}}}\n{_DARK}{{{dark}}}\n"
        f"@media (prefers-color-scheme: dark){{{_DARK_SYSTEM}{{{dark}}}}}\n"
    )


@cache
def standalone_style() -> str:
    """CSS for an SVG that leaves the page, where no theme can be known: it brings its own light paper."""
    paper = f".ls{{{_theme(False)}--ls-sans:system-ui,'DejaVu Sans',sans-serif;background:var(--ls-bg)}}\n"
    return _colors() + paper + _read("drawings.css").partition("*/")[2].strip()


def _colors() -> str:
    """`--c` of every role, of every rank and of text on it, which `--t` is too."""
    by_color: dict[str, list[str]] = {}
    for role, paint in ROLES.items():
        color = f"var({_variable(role)})" if _follows_theme(paint) else paint.light
        by_color.setdefault(color, []).append(f".{role_class(role)}")
    roles = "".join(f"{','.join(classes)}{{--c:{color}}}" for color, classes in by_color.items())
    ranks = "".join(
        f".ls-r{i}{{--c:{color};--t:{text_on(color)}}}.ls-on-r{i}{{--c:{text_on(color)}}}"
        for i, color in enumerate(RANKS)
    )
    return f"{roles}\n{ranks}\n"  # ranks last: the chip of a rank that is held is `ls-held` too, in the rank's colour


def _theme(dark: bool, given: Mapping[str, str] = MappingProxyType({})) -> str:
    """The variables of a theme. given: role -> a variable of the page that is taken instead, where the page has it."""
    colors = {role: paint.on(dark) for role, paint in (ROLES | PAGE).items() if _follows_theme(paint)}
    colors |= {role: f"var({name}, {colors[role]})" for role, name in given.items()}
    return "".join(f"{_variable(role)}:{color};" for role, color in colors.items())


def _variable(role: str) -> str:
    return f"--ls-{_SHORT.get(role, role).replace(' ', '-')}"


def _follows_theme(paint: Paint) -> bool:
    return paint.light != paint.dark


def _read(name: str) -> str:
    return (assets() / "style" / name).read_text(encoding="utf-8")
