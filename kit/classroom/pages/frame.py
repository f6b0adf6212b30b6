"""What all pages of a class share: their head, look and script, and the mark of an outcome."""

from __future__ import annotations

import base64
import hashlib
from functools import cache

from kit.classroom.pages.words import plain
from kit.grade.marks import FAILED, NOT_ATTEMPTED, PASSED, UNCHECKED
from kit.plot.style import themes
from kit.resources import assets

SIGNS = {PASSED: "✓", FAILED: "✗", NOT_ATTEMPTED: "–", UNCHECKED: "?"}
_CLASSES = {PASSED: "passed", FAILED: "failed", NOT_ATTEMPTED: "untried", UNCHECKED: "unchecked"}


def page(title: str, body: str, script: str = "", live: bool = False) -> str:
    """A whole page. Nothing on it can load anything, and no script but ours runs, whatever text it holds.

    script: a file of assets/classroom. live: it asks the server that it comes from for news.
    """
    code = _asset(script) if script else ""
    allowed = f"'sha256-{base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()}'" if script else "'none'"
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src {allowed}; base-uri 'none'; form-action 'none'"
    policy += "; connect-src 'self'" if live else ""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{plain(title)}</title><style>{_style()}</style></head>\n"
        f'<body><main class="ls">\n{body}\n</main>{f"<script>{code}</script>" if script else ""}</body></html>\n'
    )


def mark(outcome: str, letter: str = "") -> str:
    """The sign of an outcome: a shape, a colour and a word. letter: of the group of its sentence."""
    group = f'<span aria-hidden="true">{letter}</span><span class="unseen">, group {letter}</span>' if letter else ""
    sign = f'<span class="sign {css(outcome)}" aria-hidden="true">{SIGNS[known(outcome)]}</span>'
    return f'{sign}<span class="unseen">{plain(outcome)}</span>{group}'


def known(outcome: str) -> str:
    """The outcome, or that nothing was checked for a word of another version."""
    return outcome if outcome in SIGNS else UNCHECKED


def css(outcome: str) -> str:
    return _CLASSES[known(outcome)]


@cache
def _style() -> str:
    return themes() + _asset("pages.css")


@cache
def _asset(name: str) -> str:
    return (assets() / "classroom" / name).read_text(encoding="utf-8")
