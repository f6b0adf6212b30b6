"""The inside of a panel as plain HTML, without controls: for its still picture. Returned with its height in px."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kit.panels.areas import about_area, about_height
from kit.views import (
    messages_height,
    messages_html,
    source_height,
    source_html,
    tensors_height,
    tensors_html,
    timeline_html,
    traffic_svg,
    words_html,
)
from kit.views.markup import heading

if TYPE_CHECKING:
    from kit.trace.facts import Trace

_HEADER, _PADDING, _HEADING, _NOTE, _WORD, _VERDICT = 36, 17, 22, 19, 21, 34  # px, as in the style sheets


def stepper_page(
    trace: Trace,
    position: int,
    held: frozenset[int],
    name: str | None,
    predicted: Trace | None,
    header: str,
    about: str = "",
) -> tuple[str, int]:
    """A stepping panel without its controls."""
    world = trace.meta.world
    upper = _PADDING + _HEADING + max(source_height(trace), tensors_height(world)) + _NOTE
    lower = _PADDING + _HEADING + messages_height(world)
    page = (
        _header(header)
        + about_area(about)
        + _two(upper, source_html(trace, position, held=held), tensors_html(trace, position, name))
        + _two(lower, messages_html(trace, position), timeline_html(trace, position, predicted))
        + f'<div class="lsp-area lsp-words">{words_html(trace, position, held=held)}</div>'
    )
    return page, _HEADER + about_height(about) + upper + lower + _words_height(world)


def record_page(trace: Trace, predicted: Trace | None, header: str, about: str = "") -> tuple[str, int]:
    """A record's panel."""
    traffic = traffic_svg(trace)
    drawn = int(traffic.split('height="', 1)[1].split('"', 1)[0])
    high = _PADDING + _HEADING + max(drawn, messages_height(trace.meta.world))
    words = words_html(trace, len(trace.positions) - 1) if trace.positions else ""
    page = _header(header) + about_area(about) + _two(high, traffic_area(trace), timeline_html(trace, None, predicted))
    page += f'<div class="lsp-area lsp-words">{words}</div>'
    return page, _HEADER + about_height(about) + high + (_words_height(trace.meta.world) if words else 0)


def traffic_area(trace: Trace) -> str:
    """Bytes by rank under their heading."""
    return f'<div class="ls">{heading("Traffic by rank", "filled sent · outlined received")}{traffic_svg(trace)}</div>'


def _header(inner: str) -> str:
    return f'<div class="lsp-header"><div class="widget-html-content">{inner}</div></div>'


def _two(height: int, left: str, right: str) -> str:
    return (
        f'<div class="lsp-two" style="height:{height}px"><div class="lsp-area">{left}</div>'
        f'<div class="lsp-area">{right}</div></div>'
    )


def _words_height(world: int) -> int:
    return 14 + _WORD * world + _VERDICT + 4
